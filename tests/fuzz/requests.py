#!/usr/bin/env python3
"""Send requests that follow from a server's description of itself, /openapi.json, and are wrong in places, to a sanitizer's build:

    tests/fuzz/requests.py build/asan/bin/chunkllama MODEL [--requests 100000] [--seed 1] [--grammar-library FILE]

Each request is a function of the seed and its number, so `--first N --requests 1` sends one of them again. A finding is an answer
with status 500, one that is not what the API's errors are, a server that ends or stops to answer, or a sanitizer's report. The exit
status is 1 then.
"""
import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "e2e")]
import hostile  # noqa: E402
from waiting import LIMIT_S, wait_until  # noqa: E402

NUMBERS = [0, -1, 1, 2, 0.5, 1e-9, 1e308, -1e308, 2**31 - 1, 2**31, 2**53, 2**63 - 1, -2**63, 2**64]
TEXTS = ["", " ", "\0", "a", "<|im_end|>", "../../etc/passwd", "\u202e\u0301", "\ud800", "a\nb\r\nc", "{}", "[1]", "null", "(a+)+$",
         "%s%n"]  # fmt: skip
PATTERNS = ["^a{1,3}$", "(a|b)*c", "[", "\\d{4}-\\d\\d", "(?=a)", "a{1,99999}"]
WORDS = ["Once", "upon", "a", "time", "the", "sea", "was", "wide", "and", "nobody", "knew"]
OVERLOADED = {429, 503, 504}
TOO_LONG = {414, 431}  # heads of more than 15 KB, which libmicrohttpd answers by itself
# Fields whose value is a JSON schema, and those that have a grammar.
SCHEMAS = {"schema", "guided_json", "json", "json_schema", "parameters", "input_schema"}
GRAMMARS = {name: [text for text in table.values() if len(text) < 5000] for names, table in [
    (("guided_regex", "regex", "guided_whitespace_pattern"), hostile.REGEXES), (("guided_grammar",), hostile.LARKS),
    (("grammar", "ebnf"), hostile.GBNFS)] for name in names}  # fmt: skip
# How far numbers exceed their minimum, so that an answer ends soon.
FEW = {"n": 3, "n_cmpl": 3, "best_of": 4, "max_tokens": 8, "max_completion_tokens": 8, "max_output_tokens": 8, "n_predict": 8}


class Generator:
    """Values that a description's schemas allow, and others. How many members an object has, and how many values are wrong, differs
    from request to request."""

    def __init__(self, description, rng):
        self.root, self.rng = description, rng
        self.optional, self.mistakes = rng.choice([0.02, 0.05, 0.12, 0.4]), rng.choice([0, 0, 0.01, 0.05])

    def chance(self, p):
        return self.rng.random() < p

    def some(self, make, counts):
        return [make() for _ in range(self.rng.choice(counts))]

    def nested(self):
        value = self.rng.choice([None, 1, "x"])
        for _ in range(self.rng.choice([2, 20, 200])):
            value = [value] if self.chance(0.5) else {"type": value, "x": 1}
        return value

    def wrong(self):
        choice = self.rng.choice
        kinds = [lambda: choice(NUMBERS), lambda: choice(TEXTS), lambda: choice(TEXTS) * choice([10, 1000, 100_000]), self.nested,
                 lambda: self.some(lambda: choice(NUMBERS + TEXTS), [0, 1, 3, 3000]),
                 lambda: {choice(TEXTS): choice(NUMBERS) for _ in range(choice(range(5)))},
                 lambda: choice([None, True, False])]  # fmt: skip
        return choice(kinds)()

    def text(self, schema):
        if "pattern" in schema and self.chance(0.8):
            return "".join(self.some(lambda: self.rng.choice("abcXYZ019_-"), range(1, 20)))
        if self.chance(0.1):
            return self.rng.choice(TEXTS)
        return " ".join(self.some(lambda: self.rng.choice(WORDS), [1, 3, 10, 60]))

    def number(self, schema, name, kind):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -2))
        high = schema.get("maximum", 40)
        if self.chance(self.mistakes):
            return self.rng.choice([low, high, *NUMBERS])
        value = self.rng.uniform(low, min(high, low + FEW.get(name, 40)))
        return value if kind == "number" else int(value)

    # ---- Grammars ----

    def schema_of_type(self, kind, depth):
        if kind == "array":
            return {"items": self.json_schema(depth + 1), "maxItems": self.rng.choice([0, 1, 3, 10**9])}
        if kind == "object":
            names = self.some(lambda: self.rng.choice(WORDS), range(4))
            extra = {"additionalProperties": self.chance(0.5)} if self.chance(0.5) else {}
            return {"properties": {name: self.json_schema(depth + 1) for name in names}, "required": names[:1], **extra}
        if kind == "string" and self.chance(0.5):
            return {"pattern": self.rng.choice(PATTERNS)}
        more = {"minimum": self.rng.choice(NUMBERS)} if kind in ("integer", "number") and self.chance(0.3) else {}
        return {"multipleOf": self.rng.choice([1, 7, 0, -1, 9999991]), **more} if kind == "integer" and self.chance(0.3) else more

    def json_schema(self, depth=0):
        """A JSON schema for an answer."""
        types = ["string", "integer", "number", "boolean", "null"] + ["array", "object"] * (depth < 4)
        kind = self.rng.choice(types + ["anyOf", "oneOf", "allOf", "enum", "$ref"] * (depth < 4))
        if kind in types:
            return {"type": kind, **self.schema_of_type(kind, depth)}
        if kind == "enum":
            return {"enum": self.some(lambda: self.rng.choice(NUMBERS + TEXTS[:5]), [1, 3])}
        if kind == "$ref":
            return {"$ref": "#/$defs/a", "$defs": {"a": self.json_schema(depth + 1)}}
        return {kind: self.some(lambda: self.json_schema(depth + 1), [1, 2, 3])}

    # ---- Values ----

    def merged(self, values):
        objects = [value for value in values if isinstance(value, dict)]
        return {key: value for members in objects for key, value in members.items()} if objects else values[0]

    def object(self, schema, depth):
        members = schema.get("properties", {})
        required, extra = schema.get("required", []), schema.get("additionalProperties")
        found = {key: self.value(part, key, depth + 1) for key, part in members.items()
                 if self.chance(1 - self.mistakes if key in required else self.optional)}  # fmt: skip
        if extra and isinstance(extra, dict):
            keys = self.some(lambda: self.rng.choice([*WORDS, "7"]), [0, 1, 2])
            found |= {key: self.value(extra, key, depth + 1) for key in keys}
        return found

    def array(self, schema, name, depth):
        first = [self.value(part, name, depth + 1) for part in schema.get("prefixItems", [])]
        return first or self.some(lambda: self.value(schema.get("items", {}), name, depth + 1), [0, 1, 1, 2, 3])

    def of_type(self, schema, name, depth):
        kind = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else None)
        kind = self.rng.choice(kind) if isinstance(kind, list) else kind
        makers = {"object": lambda: self.object(schema, depth), "array": lambda: self.array(schema, name, depth),
                  "string": lambda: self.text(schema), "integer": lambda: self.number(schema, name, kind),
                  "number": lambda: self.number(schema, name, kind), "boolean": lambda: self.chance(0.5),
                  "null": lambda: None}  # fmt: skip
        return makers.get(kind, self.wrong)()

    def value(self, schema, name="", depth=0):
        if schema is True or depth > 12 or self.chance(self.mistakes):
            return self.wrong()
        if name in SCHEMAS and self.chance(0.9):
            return self.json_schema()
        if name in GRAMMARS and self.chance(0.8):
            return self.rng.choice(GRAMMARS[name])
        schema = resolved(self.root, schema)
        if "const" in schema or "enum" in schema:
            return schema["const"] if "const" in schema else self.rng.choice(schema["enum"])
        parts = schema.get("allOf", []) + [self.rng.choice(schema[key]) for key in ("anyOf", "oneOf") if key in schema]
        if not parts:
            return self.of_type(schema, name, depth)
        own = [self.object(schema, depth)] if "properties" in schema else []
        return self.merged([self.value(part, name, depth + 1) for part in parts] + own)


# ---- Requests ----


def resolved(description, value):
    """A value of the description, or the one that it refers to."""
    while "$ref" in value:
        target = description
        for step in value["$ref"].removeprefix("#/").split("/"):
            target = target[step.replace("~1", "/")]
        value = target
    return value


def operations(description):
    """(method, path, parameters, type and schema of the body or None) of all that the server does."""
    found = []
    for path, item in description["paths"].items():
        for method, operation in resolved(description, item).items():
            bodies = resolved(description, operation.get("requestBody", {})).get("content", {})
            kind, body = next(iter(bodies.items()), (None, {}))
            parameters = [resolved(description, parameter) for parameter in operation.get("parameters", [])]
            found.append((method.upper(), path, parameters, kind, body.get("schema")))
    return found


def form(g, description, all_operations):
    """An upload: a file of requests for a batch, each with its body."""
    paths = ["/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"]
    schemas = {path: schema for _, path, _, _, schema in all_operations if path in paths}
    lines = [{"custom_id": g.text({}), "method": "POST", "url": path, "body": g.value(schemas[path])}
             for path in g.some(lambda: g.rng.choice(paths), [0, 1, 5])]  # fmt: skip
    file = "".join(json.dumps(g.wrong() if g.chance(g.mistakes) else line) + "\n" for line in lines)
    parts = [("purpose", "", g.rng.choice(["batch", "batch", "user_data", "\u0301"])), ("file", '; filename="a.jsonl"', file)]
    head = "--cut\r\nContent-Disposition: form-data; name="
    text = "".join(f'{head}"{name}"{more}\r\n\r\n{value}\r\n' for name, more, value in parts)
    return (text + "--cut--\r\n").encode()


def make_body(g, description, all_operations, kind, schema):
    if kind is None:
        return b""
    body = form(g, description, all_operations) if kind.startswith("multipart") else json.dumps(g.value(schema)).encode()
    if g.chance(0.03):
        place = g.rng.randrange(len(body))
        body = body[:place] + bytes([g.rng.randrange(256)]) + body[place + g.rng.randrange(3) :]
    return body


def make_request(description, seed, number):
    """Method, target, type and bytes of a body."""
    rng = random.Random(f"{seed} {number}")
    g = Generator(description, rng)
    all_operations = operations(description)
    with_body = [operation for operation in all_operations if operation[3]]
    method, path, parameters, kind, schema = rng.choice(with_body if g.chance(0.85) else all_operations)
    query = [f"{p['name']}={g.value(p.get('schema', {}))}" for p in parameters if p.get("in") == "query" and g.chance(0.5)]
    target = re.sub(r"\{\w+\}", lambda _: rng.choice(["x", "file-0", "batch_1", "1", "%00", "a" * 300]), path)
    target += "?" + "&".join(query) if query else ""
    body = make_body(g, description, all_operations, kind, schema)
    return method, re.sub(r"[^!-~]", "_", target), kind and kind.replace("form-data", "form-data; boundary=cut"), body


# ---- The server ----


class Server:
    def __init__(self, args, folder):
        self.log = open(folder / "log", "w+b")
        grammars = ["--grammar-library", args.grammar_library] if args.grammar_library else []
        self.process = subprocess.Popen(
            [args.program, "serve", "-m", args.model, "--port", "0", "-c", "128", "--max-tokens", "4", "--kv-budget", "64M",
             "--pin-budget", "8M", "--timeout", "60", "--log-level", "error", "--files-dir", folder / "files", *grammars],
            stdout=subprocess.PIPE, stderr=self.log, text=True)  # fmt: skip
        hello = self.process.stdout.readline()
        self.host, self.port = re.search(r"at http://([^:]+):(\d+)", hello).groups()

    def runs(self):
        return self.process.poll() is None

    def send(self, method, target, kind=None, body=b""):
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=LIMIT_S)
        connection.request(method, target, body or None, {"Content-Type": kind} if kind else {})
        reply = connection.getresponse()
        data = reply.read()
        connection.close()
        return reply.status, data

    def is_idle(self):
        return not re.search(rb"vllm:num_requests_(running|waiting)\{[^}]*\} [1-9]", self.send("GET", "/metrics")[1])

    def end(self):
        """What is wrong with the server's end, or None."""
        if self.runs():
            wait_until(self.is_idle, "no request")
            self.process.terminate()
        status = self.process.wait(LIMIT_S)
        self.log.seek(0)
        text = self.log.read().decode(errors="replace")
        return f"status {status}\n{text[-8000:]}" if status != 0 or re.search(r"Sanitizer|runtime error:", text) else None


def problem_of(status, data):
    """What is wrong with an answer, or None."""
    if status >= 500 and status not in OVERLOADED:
        return f"status {status}: {data[:300]}"
    if status < 400:
        is_stream = data.startswith((b"data: ", b"event: "))
        return f"a stream with {data[-300:]}" if is_stream and re.search(rb'"(server_error|api_error)"', data) else None
    if status in TOO_LONG and b"too big" in data:
        return None
    try:
        error = json.loads(data)["error"]
        message = error["message"] if isinstance(error, dict) else error  # Ollama's errors are texts
    except (ValueError, KeyError, TypeError):
        message = None
    return None if message and isinstance(message, str) else f"status {status} without an error's message: {data[:300]}"


class Run:
    """The requests of a run, and what was found."""

    def __init__(self, args, server):
        self.seed, self.server = args.seed, server
        self.description = json.loads(server.send("GET", "/openapi.json")[1])
        self.n_problems, self.statuses, self.lock = 0, collections.Counter(), threading.Lock()

    def send(self, number):
        if not self.server.runs():
            return
        method, target, kind, body = make_request(self.description, self.seed, number)
        try:
            status, data = self.server.send(method, target, kind, body)
            problem = problem_of(status, data)
        except Exception as failure:  # a finding, too
            status, problem = 0, repr(failure)
        with self.lock:
            self.note(status, problem and f"{method} {target[:100]}, number {number} of seed {self.seed}: {problem}")

    def note(self, status, problem):
        self.statuses[status] += 1
        if problem:
            self.n_problems += 1
            print(problem, flush=True)
        if self.statuses.total() % 1000 == 0:
            print(self, flush=True)

    def __str__(self):
        return f"{self.statuses.total()} requests, {self.n_problems} findings, by status {dict(sorted(self.statuses.items()))}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--grammar-library")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(args, pathlib.Path(folder))
        run = Run(args, server)
        with concurrent.futures.ThreadPoolExecutor(args.connections) as pool:
            list(pool.map(run.send, range(args.first, args.first + args.requests)))
        end = server.end()
    print(run, end or "", sep="\n")
    return 1 if run.n_problems or end else 0


if __name__ == "__main__":
    sys.exit(main())
