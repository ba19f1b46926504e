"""
What keeps a server busy, or makes it keep memory: requests that are mostly right, but large, deep or endless. ATTACKS has their
makers by name; each makes its request when it is needed, since many have megabytes. All come from the tenant with the key KEY.
"""
import functools
import json
import random
import string
from typing import Callable, NamedTuple

import hostile
from hostile import PATHS, SAY, call, nested

KEY = "key-mallory"
CONTEXT = 4096  # tokens; the server's
BIG = 15_000_000  # bytes of a text, in a body that may have 16 MiB
LONG_ANSWER = 48  # tokens


class Attack(NamedTuple):
    wire: bytes  # a request, or its beginning
    n: int = 1  # connections that send it at once
    ends: bool = True  # whether there is an answer
    then: Callable[[bytes], "Attack"] | None = None  # what the answer makes the client send next


def head(path, *fields):
    first = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {KEY}", "Connection: close"]
    return "\r\n".join([*first, *fields, "", ""]).encode()


def post(path, body, kind="application/json", **more):
    data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return Attack(head(path, f"Content-Type: {kind}", f"Content-Length: {len(data)}") + data, **more)


def send(api, **fields):
    return post(PATHS[api], {**hostile.BASE[api], **fields})


# ---- Texts ----

# Each is repeated up to a text's size: what some part of a tokenizer takes longest for.
UNITS = {
    "one word": "".join(random.Random(1).choices(string.ascii_lowercase, k=100_000)), "one letter": "a",
    "marks": "e" + "\u0301" * 40,
    "special tokens": "<|im_end|><|im_start|>", "digits": "7310498", "blanks": " ", "lines": "\n \n\t\r\n",
    "emoji": "\U0001f469\u200d\U0001f52c",
    "contractions": "'s'll'", "scripts": "a\u044f\u5b57\u0623", "decomposed": "\u1112\u1161\u11ab",
    "words": "the sea was wide and ",
}


def text(kind, n=BIG):
    return UNITS[kind] * (n // len(UNITS[kind].encode()))


def tool(**fields):
    return {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, **fields}}


def user(content):
    return [{"role": "user", "content": content}]


# Where a body may have text.
PLACES = {
    "prompt": lambda t: send("completion", prompt=t), "prompts": lambda t: send("completion", prompt=[t[: len(t) // 1000]] * 1000),
    "suffix": lambda t: send("completion", suffix=t), "stop": lambda t: send("completion", stop=t),
    "stops": lambda t: send("completion", stop=[t[: len(t) // 16]] * 16),
    "logit_bias": lambda t: send("completion", logit_bias=[[t, 1]]),
    "many biases": lambda t: send("completion", logit_bias=[[t[: len(t) // 20_000], 1]] * 20_000),
    "bias's name": lambda t: send("completion", logit_bias={t: 1}),
    "bad_words": lambda t: send("completion", bad_words=[t]),
    "many bad_words": lambda t: send("completion", bad_words=[t[: len(t) // 12_000]] * 12_000),
    "model": lambda t: send("completion", model=t), "user": lambda t: send("completion", user=t),
    "cache_salt": lambda t: send("completion", cache_salt=t),
    "request_id": lambda t: send("completion", request_id=t), "samplers": lambda t: send("completion", samplers=t),
    "guided_regex": lambda t: send("completion", guided_regex=t),
    "guided_grammar": lambda t: send("completion", guided_grammar="start: \"" + t + "\""),
    "grammar": lambda t: send("completion", grammar="root ::= \"" + t + "\""),
    "guided_choice": lambda t: send("completion", guided_choice=[t, "x"]),
    "guided_json": lambda t: send("completion", guided_json=t), "const": lambda t: send("completion", json_schema={"const": t}),
    "pattern": lambda t: send("chat", guided_json={"type": "string", "pattern": t}),
    "content": lambda t: send("chat", messages=user(t)), "role": lambda t: send("chat", messages=[{"role": t, "content": "x"}]),
    "arguments": lambda t: send("chat", messages=call(arguments=t)), "a call's name": lambda t: send("chat", messages=call(name=t)),
    "reasoning": lambda t: send("chat", messages=[*SAY, {"role": "assistant", "content": "x", "reasoning_content": t}, *SAY]),
    "a tool's name": lambda t: send("chat", tools=[tool(name=t)]),
    "a description": lambda t: send("chat", tools=[tool(description=t)]),
    "variables": lambda t: send("chat", chat_template_kwargs={"word": t}),
    "a variable's name": lambda t: send("chat", chat_template_kwargs={t: 1}),
    "documents": lambda t: send("chat", documents=[{"text": t}]), "input": lambda t: send("responses", input=t),
    "instructions": lambda t: send("responses", instructions=t), "metadata": lambda t: send("responses", metadata={"a": t}),
    "system": lambda t: send("messages", system=[{"type": "text", "text": t}]),
    "stop_sequences": lambda t: send("messages", stop_sequences=[t]),
    "a tool's result": lambda t: send("messages", messages=user([{"type": "tool_result", "tool_use_id": "c", "content": t}])),
    "tokens to count": lambda t: post("/v1/messages/count_tokens", {"messages": user(t)}),
    "template": lambda t: post("/apply-template", {"messages": user(t)}),
    "tokenize": lambda t: post("/tokenize", {"content": t, "with_pieces": True}),
    "embeddings": lambda t: post("/v1/embeddings", {"input": t}),
    "infill": lambda t: post("/infill", {"input_prefix": t, "input_suffix": t[:10]}),
    "multipart": lambda t: post("/v1/files", t.encode(), "multipart/form-data; boundary=cut"),
    "an unknown field": lambda t: send("completion", x=t),
}  # fmt: skip


def texts():
    kinds = list(UNITS)
    for i, (name, make) in enumerate(PLACES.items()):
        yield f"15 MB in {name}", lambda make=make, kind=kinds[i % len(kinds)]: make(text(kind))
    for kind in kinds:  # as much as is tokenized at all
        yield f"tokens of {kind}", lambda kind=kind: post("/tokenize", {"content": text(kind, 300_000), "with_pieces": True})


# ---- Many small things ----

PARAMETERS = {"type": "object", "properties": {f"p{k}": {"type": "string", "description": "a text"} for k in range(8)}}
TOOLS = [tool(name=f"f{i}", parameters=PARAMETERS) for i in range(512)]
CALL = {"type": "function", "function": {"name": "f", "arguments": "{\"a\": [1, {\"b\": null}]}"}}
CALLS = [*SAY, {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{i}", **CALL} for i in range(512)]}]

MANY = {
    "unknown fields": lambda: send("completion", **{f"x{i}": 0 for i in range(150_000)}),
    "values": lambda: send("completion", x=[0] * 2_000_000), "objects": lambda: send("completion", x=[{}] * 120_000),
    "token ids": lambda: send("completion", prompt=[7] * 2_000_000),
    "ids to keep": lambda: send("completion", prompt=[7] * 2_000_000, truncate_prompt_tokens=8),
    "allowed tokens": lambda: send("completion", allowed_token_ids=[7] * 1_500_000),
    "biases": lambda: send("completion", logit_bias={str(i): 1 for i in range(49_000)}, n=8),
    "banned words": lambda: send("completion", bad_words=[f"w{i}" for i in range(1024)], n=16),
    "stops": lambda: send("completion", stop=[f"{i:1024}" for i in range(16)], n=32),
    "messages": lambda: send("chat", messages=SAY * 40_000),
    "parts": lambda: send("chat", messages=user([{"type": "text", "text": "x"}] * 60_000)),
    "few parts": lambda: send("chat", messages=user([{"type": "text", "text": "x"}] * 4000)),
    "turns": lambda: send("chat", messages=SAY * 400),
    "items": lambda: send("responses", input=SAY * 40_000), "tools": lambda: send("chat", tools=TOOLS),
    "forced tools": lambda: send("chat", tools=TOOLS, tool_choice="required"),
    "calls": lambda: send("chat", messages=CALLS), "documents": lambda: send("chat", documents=[{"a": [[[]]]}] * 20_000),
    "system messages": lambda: send("messages", system=[{"type": "text", "text": "x"}] * 30_000),
    "tokens of a text": lambda: post("/detokenize", {"tokens": [7] * 2_000_000}),
    "inputs": lambda: post("/v1/embeddings", {"input": ["the sea was wide"] * 2048}),
    "long inputs": lambda: post("/v1/embeddings", {"input": ["the sea was wide " * 60] * 64}),
}  # fmt: skip


# ---- Templates ----

VARIABLES = {
    "an endless loop": {"trap": "loop"}, "text that doubles": {"trap": "text"},
    "endless output": {"trap": "output", "word": "a" * 1000},
    "recursion": {"trap": "recursion"}, "replacements": {"trap": "replace", "word": "a" * 1000},
    "indentation": {"trap": "indent", "word": "a\n" * 100_000, "times": 1000},
    "deep JSON": {"trap": "json", "word": json.loads(nested(100, '{"a":', "}", "1")), "times": 10**6},
    "JSON": {"trap": "json", "word": [{"a": i} for i in range(30_000)], "times": 4}, "a range": {"trap": "range", "times": 10**9},
    "names": {f"v{i}": i for i in range(60_000)},
}  # fmt: skip


# ---- Grammars ----


def chain(n, last):
    """A schema behind n references."""
    return {"$ref": "#/$defs/d0", "$defs": {**{f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(n)}, f"d{n}": last}}


PRIMES = [9973, 9967, 9949, 9941, 9931, 9929, 9923, 9907, 9901, 9887, 9883, 9871]
NODE = {"type": "object", "required": ["l", "r"], "properties": {side: {"$ref": "#/$defs/node"} for side in "lr"}}
NAMES = {f"a rather long name {i}": {"const": i} for i in range(900)}
FORMATS = [{"type": "string", "format": name} for name in ("date-time", "email", "uri", "ipv6", "uuid", "hostname")]
INTEGERS = {f"p{i}": {"type": "integer"} for i in range(130)}
SCHEMAS = {
    "a large prime": {"type": "integer", "multipleOf": 15485863}, "a small prime": {"type": "integer", "multipleOf": 9973},
    "primes together": {"allOf": [{"multipleOf": n} for n in PRIMES]},
    "primes behind references": {"allOf": [chain(3, {"multipleOf": 4999}), {"multipleOf": 5003}]},
    "a fraction": {"type": "number", "multipleOf": 0.0000123457},
    "a prime each": {"type": "object", "required": [str(n) for n in PRIMES], "properties": {
        str(n): {"type": "integer", "multipleOf": n} for n in PRIMES}},
    "alternatives of primes": {"anyOf": [{"type": "integer", "multipleOf": n} for n in PRIMES]},
    "multiples of 2^60": {"type": "integer", "multipleOf": 2**60},
    "long bounds": {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
    "a huge enum": {"enum": [f"value {i} of them" for i in range(4000)]},
    "an enum of objects": {"enum": [{"a": [i, {"b": str(i)}]} for i in range(2000)]},
    "an endless constant": {"const": text("one word", 60_000)},
    "endless items": {"type": "array", "minItems": 4000, "items": {"const": "again and again"}},
    "endless names": {"type": "object", "properties": NAMES, "required": list(NAMES)},
    "an endless string": {"type": "string", "minLength": 100_000, "pattern": "^(ab)*$"},
    "a tree": {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    "a chain": chain(3000, {"type": "integer"}),
    "deep": json.loads(nested(100, '{"type":"array","items":', "}", "{}")),
    "unions": {"allOf": [{"anyOf": [{"properties": {f"p{i}_{k}": {"type": "string"}}} for k in range(5)]} for i in range(9)]},
    "patterns": {"type": "object", "patternProperties": {f"^(a|b)*{i}(a|b){{9}}$": {"pattern": f"^(c|d)*{i}$"} for i in range(40)}},
    "overlapping objects": {
        "oneOf": [{"type": "object", "properties": dict(list(INTEGERS.items())[i : i + 5])} for i in range(120)]},
    "lengths of patterns": {"type": "string", "pattern": "^(a|b)*a(a|b){12}$", "maxLength": 4000, "minLength": 300},
    "formats": {"type": "array", "minItems": 50, "items": {"anyOf": FORMATS}},
    "conditions": {"type": "object", "properties": INTEGERS, "dependentRequired": {
        f"p{i}": [f"p{(i + 1) % 12}"] for i in range(12)}},
    "unique items": {"type": "array", "uniqueItems": True, "items": {"enum": list(range(200))}},
    "everything but": {"not": {"anyOf": [{"const": f"word {i}"} for i in range(500)]}},
}  # fmt: skip
REGEXES = {
    "nested counts": "(((a?){1,50}){1,50}){1,50}", "counts": "(ab|cd){20000}", "a window": "(a|b)*a(a|b){16}",
    "an endless text": "(again and ){5000}",
    "alternatives": "|".join(f"word{i}[a-z]{{1,9}}" for i in range(2000)), "classes": r"(?u)[\p{L}\p{N}]{1,800}",
    "dots": "(.*a){24}", "lazy dots": "(.*?.*?)*x" * 8,
    "nothing": r"[^\s\S]", "stars": "(((a*)*)*)*b",
}  # fmt: skip
LARKS = {
    "two ways for everything": "start: e\ne: e e | \"a\" | \"b\" | \"ab\" | e \"a\" e",
    "nested counts": "start: a{90}\na: b{90}\nb: /x?y?/{90}",
    "terminals that double": "start: T18\nT0: /[a-z]?b/\n" + "\n".join(f"T{i}: T{i - 1} T{i - 1}" for i in range(1, 19)),
    "rules that double": "start: t20\nt0: \"a\" | \"b\"\n" + "\n".join(f"t{i}: t{i - 1} t{i - 1}" for i in range(1, 21)),
    "an intersection": "start: A\nA: /(.*[aeiou].*){8}/ & /(.*[xyz].*){8}/ & ~/.*qq.*/",
    "a chain": "start: r0\n" + "\n".join(f"r{i}: r{i + 1} | \"a\" r{i + 1}" for i in range(1500)) + "\nr1500: \"b\"",
    "an endless text": "start: " + "\"again and again \" " * 900,
    "primes": "start: " + " \"|\" ".join(f"%json {{\"type\": \"integer\", \"multipleOf\": {n}}}" for n in PRIMES),
    "a substring": "start: %regex {\"substring_chars\": \"" + text("words", 9000) + "\"}",
    "texts in texts": "start: (/[a-z ]{1,60}/ | /[a-y ]{2,70}/ | /[b-z ]{3,80}/){40}",
    "empty": "start: a*\na: b*\nb: \"x\"? \"y\"? \"z\"?",
}  # fmt: skip
GBNFS = {
    "two ways for everything": "root ::= root root | \"a\" | \"b\" | [a-z] root [a-z]",
    "nested counts": "root ::= (((\"a\"? \"b\"?){1,60}){1,60}){1,60}",
    "rules that double": "root ::= t14\nt0 ::= [a-z]\n" + "\n".join(f"t{i} ::= t{i - 1} t{i - 1}" for i in range(1, 15)),
    "an endless text": "root ::= \"" + text("words", 50_000) + "\"",
    "many rules": "root ::= r0\n" + "\n".join(f"r{i} ::= \"{i % 7}\" r{i + 1} | [x-z]" for i in range(4000)) + "\nr4000 ::= \"b\"",
    "a class": "root ::= [\\U00000001-\\U0010FFFF]{1,900} \"x\"",
    "alternatives": "root ::= (" + " | ".join(f"\"{i * 7919 % 10000:05}\" [a-f]" for i in range(3000)) + "){1,9}",
}  # fmt: skip


def send_schema(i, schema):
    """In one of the fields that take a schema."""
    function, more = {"name": "f", "parameters": schema, "strict": True}, {"max_tokens": LONG_ANSWER}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    doors = [
        lambda: send("completion", json_schema=schema, **more), lambda: send("completion", guided_json=schema, n=8, **more),
        lambda: send("chat", response_format=form, **more),
        lambda: send("chat", tools=[tool(**function)], tool_choice="required", **more),
        lambda: send("responses", tools=[{"type": "function", **function}], tool_choice="required", max_output_tokens=LONG_ANSWER),
        lambda: send("messages", tools=[{"name": "f", "input_schema": schema}], tool_choice={"type": "any"}, **more),
        lambda: send("completion", guided_grammar=f"start: %json {json.dumps(schema)}", **more),
    ]  # fmt: skip
    return doors[i % len(doors)]()


def grammars():
    for i, (name, schema) in enumerate(SCHEMAS.items()):
        yield f"schema of {name}", functools.partial(send_schema, i, schema)
    for field, table in {"guided_regex": REGEXES, "guided_grammar": LARKS, "grammar": GBNFS}.items():
        for name, grammar in table.items():
            fields = {field: grammar, "n": 8, "max_tokens": LONG_ANSWER, "temperature": 2}
            yield f"{field} of {name}", functools.partial(send, "completion", **fields)
    tools = [tool(name=f"f{i}", parameters={"type": "integer", "multipleOf": 9001 + i}) for i in range(200)]
    yield "schemas of 200 tools", lambda: send("chat", tools=tools, tool_choice="required")


# ---- Tokens ----

AT_LIMIT = [11] * (CONTEXT - 40)
TOKENS = {
    "4,096 choices": lambda: send("completion", prompt=[[i, 7] for i in range(32)], n=128, max_tokens=1),
    "128 choices": lambda: send("completion", n=128, max_tokens=8, logprobs=20),
    "the best of 128": lambda: send("completion", best_of=128, n=2, max_tokens=4),
    "a wide search": lambda: send("completion", use_beam_search=True, n=64, max_tokens=4),
    "1,024 prompts": lambda: send("completion", prompt=[f"{i} times" for i in range(1024)], max_tokens=1),
    "a prompt at the limit": lambda: send("completion", prompt=AT_LIMIT),
    "a text at the limit": lambda: send("completion", prompt=text("words", 14_000), truncate_prompt_tokens=-1),
    "a chat at the limit": lambda: send("chat", messages=user(text("words", 14_000))),
    "logprobs at the limit": lambda: send("completion", prompt=[13] + AT_LIMIT[:1000], prompt_logprobs=20),
    "echo at the limit": lambda: send("completion", prompt=[17] + AT_LIMIT[:1000], echo=True, logprobs=20),
    "prompts at the limit": lambda: send("completion", prompt=[[i] + AT_LIMIT[:1500] for i in range(4)], max_tokens=1),
    "embedding at the limit": lambda: post("/v1/embeddings", {"input": [19] + AT_LIMIT}),
    "penalties": lambda: send("completion", prompt=AT_LIMIT[:500], repeat_penalty=1.3, repeat_last_n=-1, presence_penalty=1, n=16),
    "one too many": lambda: send("completion", prompt=[7] * (CONTEXT + 1)),
}  # fmt: skip


# ---- Framing and files ----

CHUNKED = head(PATHS["completion"], "Transfer-Encoding: chunked")
PIPELINED = head(PATHS["completion"], "Content-Length: 2").replace(b"Connection: close\r\n", b"") + b"{}"
FRAMES = {
    "unfinished bodies": lambda: Attack(head(PATHS["completion"], f"Content-Length: {BIG}") + b" " * (BIG - 1), n=12, ends=False),
    "unfinished heads": lambda: Attack(head(PATHS["completion"], "Content-Length: 2")[:-2], n=100, ends=False),
    "idle connections": lambda: Attack(b"", n=200, ends=False),
    "unfinished chunks": lambda: Attack(CHUNKED + b"fffff\r\n" + b" " * 1_000_000, n=12, ends=False),
    "chunks of a byte": lambda: Attack(CHUNKED + b"1\r\n \r\n" * 500_000 + b"2\r\n{}\r\n0\r\n\r\n"),
    "chunks without an end": lambda: Attack(CHUNKED + (b"100000\r\n" + b" " * 0x100000 + b"\r\n") * 30, ends=False),
    "a long extension": lambda: Attack(CHUNKED + b"2;" + b"x" * 1_000_000 + b"\r\n{}\r\n0\r\n\r\n", ends=False),
    "too large": lambda: Attack(head(PATHS["completion"], f"Content-Length: {40 << 20}") + b" " * (18 << 20), ends=False),
    "many heads": lambda: Attack(head(PATHS["completion"], *[f"X-{i}: {i}" for i in range(400)]), n=20),
    "a long head": lambda: Attack(head(PATHS["completion"], "X: " + "x" * 14_000, "Content-Length: 2") + b"{}", n=50),
    "a wrong key": lambda: Attack(
        head(PATHS["completion"], f"Content-Length: {BIG}").replace(KEY.encode(), b"x") + b" " * BIG, n=2),
    "requests in a row": lambda: Attack(PIPELINED * 500, ends=False),
    "many at once": lambda: send("completion", n=2)._replace(n=60),
    "open arrays": lambda: post(PATHS["completion"], b'{"prompt":"x","x":' + b"[" * 2_000_000),
    "names that are equal": lambda: post(PATHS["completion"], b'{"prompt":"x"' + b',"x":{}' * 100_000 + b"}"),
}  # fmt: skip


def upload(purpose, data, **more):
    form = b"".join(b'--cut\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % part for part in [
        (b"purpose", b"", purpose), (b"file", b'; filename="a.jsonl"', data)]) + b"--cut--\r\n"
    return post("/v1/files", form, "multipart/form-data; boundary=cut", **more)


def batch_of(answer):
    """Of the file that was uploaded."""
    id_ = json.loads(answer.split(b"\r\n\r\n", 1)[1])["id"]
    return post("/v1/batches", {"input_file_id": id_, "endpoint": PATHS["completion"], "completion_window": "24h"})


def lines(*bodies):
    more = {"method": "POST", "url": PATHS["completion"]}
    return b"".join(json.dumps({"custom_id": str(i), "body": body, **more}).encode() + b"\n" for i, body in enumerate(bodies))


SHORT_LINES = [{"prompt": f"{i}", "max_tokens": 1} for i in range(300)]
NASTY_LINES = [{"prompt": "x", "json_schema": SCHEMAS["a prime each"], "max_tokens": 8}, {"prompt": [5] + AT_LIMIT}]
FILES = {
    "a large file": lambda: upload(b"batch", b"{}\n" * 5_000_000),
    "a batch of many": lambda: upload(b"batch", lines(*SHORT_LINES), then=batch_of),
    "a batch of nasty lines": lambda: upload(b"batch", lines(*NASTY_LINES), then=batch_of),
}  # fmt: skip

ATTACKS = {
    **dict(texts()), **{f"many {name}": make for name, make in MANY.items()},
    **{f"a template with {name}": functools.partial(send, "chat", chat_template_kwargs=v) for name, v in VARIABLES.items()},
    **dict(grammars()), **TOKENS, **FRAMES, **FILES,
}  # fmt: skip

if __name__ == "__main__":
    print(len(ATTACKS))
