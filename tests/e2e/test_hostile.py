"""
Bodies that are meant to break the server (hostile.py): each gets an error in its API's shape or an answer, soon, and a client that
reads a stream meanwhile gets the same bytes as alone.
"""
import collections
import concurrent.futures
import http.client
import itertools
import json
import os
import re
import threading
import time

import pytest

import hostile
from test_grammar import ENDED, SLOW
from test_server import serving
from waiting import LIMIT_S

STEP = int(os.environ.get("CHUNKLLAMA_HOSTILE_STEP", 1))  # of so many bodies one is sent
CONNECTIONS = 4  # the server reads their bodies one after another, and stops each grammar after some time
MOST_TIMES = 10  # as long as a plain body and a grammar that is stopped take together

STREAM = {"prompt": "Once upon a time there was a lighthouse keeper who", "max_tokens": 48, "temperature": 0, "logprobs": 3, "stream": True}
SEEDED = {"messages": [{"role": "user", "content": "Tell me of the sea."}], "max_tokens": 40, "temperature": 1, "seed": 7,
          "logprobs": True, "top_logprobs": 2, "stream": True}


@pytest.fixture(scope="module")
def server(chunkllama_bin, model_path, grammar_library, tmp_path_factory):
    template = tmp_path_factory.mktemp("hostile") / "traps.jinja"
    template.write_text(hostile.TEMPLATE)
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library, "--chat-template", str(template)) as running:
        yield running


def connect(server):
    host, port = server.url.removeprefix("http://").split(":")
    return http.client.HTTPConnection(host, int(port), timeout=LIMIT_S)


def post(server, path, body):
    """Status, body and seconds."""
    connection = connect(server)
    start = time.monotonic()
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server answers a body that is too large before it has read all of it
    reply = connection.getresponse()
    data = reply.read()
    connection.close()
    return reply.status, data, time.monotonic() - start


def read_stream(server, path, body):
    """What a client sees of a stream's choices, which is all but the answer's id and times."""
    status, data, _ = post(server, path, json.dumps(body))
    assert status == 200, data
    lines = [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line)["choices"] for line in lines]


class Neighbour(threading.Thread):
    """Reads the same two streams again and again; `wrong` is the first that differs from what was read before the start."""

    def __init__(self, server):
        super().__init__()
        self.server, self.over, self.wrong, self.n_read = server, threading.Event(), None, 0
        self.streams = [("/v1/completions", STREAM), ("/v1/chat/completions", SEEDED)]
        self.alone = [text_of(read_stream(server, *stream)) for stream in self.streams]

    def run(self):
        while not self.over.is_set() and not self.wrong:
            for stream, alone in zip(self.streams, self.alone):
                try:
                    got = text_of(read_stream(self.server, *stream))
                except Exception as problem:  # reported by the test
                    got = repr(problem)
                if got != alone:
                    self.wrong = (got, alone)
                self.n_read += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def text_of(chunks):
    """The content, tokens and logprobs of a stream. Several tokens may come in one chunk when drafts were accepted."""
    text, tokens, ends = "", [], []
    for choice in (choice for choices in chunks for choice in choices):
        text += choice["text"] if "text" in choice else choice["delta"].get("content") or ""
        logprobs = choice["logprobs"] or {}
        tokens += logprobs.get("content") or list(zip(logprobs.get("tokens", []), logprobs.get("token_logprobs", []),
                                                      map(repr, logprobs.get("top_logprobs", []))))
        ends.append(choice["finish_reason"])
    return text, tokens, ends[-1]


def longest(server):
    """The seconds that any body may take. It may wait for those of the other connections, each of which may take as long as a grammar
    that is stopped; twice that, and as many times what a plain body takes, is left for what the machine does beside it."""
    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        plain = list(pool.map(lambda api: post(server, hostile.PATHS[api], hostile.body(api)), hostile.PATHS))
    assert all(status == 200 for status, *_ in plain)
    status, data, seconds = post(server, hostile.PATHS["completion"], hostile.body("completion", json_schema=SLOW))
    assert status == 400 and re.search(ENDED.encode(), data), data
    return MOST_TIMES * (max(s for *_, s in plain) + seconds)


def problem_of(path, status, data, seconds, limit):
    """What is wrong with an answer, or None."""
    if status >= 500 or status < 200 or 300 <= status < 400:
        return f"status {status}: {data[:300]}"
    if seconds > limit:
        return f"{seconds:.1f} s instead of {limit:.1f} s, status {status}"
    if status == 200 and (data.startswith(b"data: ") or data.startswith(b"event: ")):
        return f"a stream with a server's error: {data[:300]}" if b'"server_error"' in data or b'"api_error"' in data else None
    try:
        answer = json.loads(data)  # also checks that it is UTF-8
    except ValueError:
        return f"status {status}, not JSON: {data[:300]}"
    if status == 200:
        return None if isinstance(answer, dict) and "error" not in (k for k, v in answer.items() if v) else f"an error with status 200: {data[:300]}"
    error = answer.get("error")
    wanted = {"type", "message"} if path == "/v1/messages" else {"message", "type", "param", "code"}
    if not isinstance(error, dict) or not wanted <= set(error) or not isinstance(error["message"], str) or not error["message"]:
        return f"not this API's error: {data[:300]}"
    if path == "/v1/messages" and answer.get("type") != "error":
        return f"not Anthropic's error: {data[:300]}"
    return None


@pytest.mark.parametrize("group", hostile.GROUPS, ids=lambda group: group.__name__)
def test_hostile(server, group):
    def send(case):
        name, path, body = case
        try:
            status, data, seconds = post(server, path, body)
        except Exception as problem:
            return f"{name} at {path}: {problem!r}", 0, 0, name
        problem = problem_of(path, status, data, seconds, limit)
        return problem and f"{name} at {path}: {problem}", status, seconds, name

    with Neighbour(server) as neighbour, concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        limit = longest(server)
        results = list(pool.map(send, itertools.islice(group(), 0, None, STEP)))
    if log := os.environ.get("CHUNKLLAMA_HOSTILE_LOG"):  # every case with its status and time
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"at most {limit:.2f}\n")
            for problem, status, seconds, name in results:
                file.write(f"{status} {seconds:7.2f} {name[:80]!r} {problem or ''}\n")
    problems = [problem for problem, *_ in results if problem]
    assert not problems, "\n".join(problems[:40]) + f"\n{len(problems)} of {len(results)}"
    assert not neighbour.wrong, neighbour.wrong
    assert neighbour.n_read > 0 and server.process.poll() is None
    assert collections.Counter(status // 100 for _, status, *_ in results)[4] > len(results) // 4  # most are wrong
    server.wait_until_idle()


def test_endless_templates_end(server):
    """At a limit that the error names, while the neighbour's streams go on."""
    with Neighbour(server) as neighbour:
        most = longest(server)
        for trap, limit in hostile.ENDLESS.items():
            kwargs = {"trap": trap, "word": "a" * 1000}
            status, data, seconds = post(server, "/v1/chat/completions", hostile.body("chat", chat_template_kwargs=kwargs))
            assert status == 400 and limit in json.loads(data)["error"]["message"], data
            assert seconds < most, trap
    assert not neighbour.wrong and neighbour.n_read > 0, neighbour.wrong
