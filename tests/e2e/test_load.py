"""
64 connections of all four APIs at once, with tools, grammars, seeds, slow readers and clients that hang up: each answer is the one
that its request gets alone, and afterwards nothing is left.
"""
import collections
import http.client
import json
import os
import random
import socket
import struct
import threading

import pytest
from waiting import LIMIT_S, wait_until

from test_grammar import grammars_of
from test_server import serving

pytestmark = pytest.mark.long

CONNECTIONS = 64
ROUNDS = 30  # requests of each connection
KV_BUDGET = "48M"  # of some 2000 tokens, so that sequences leave the cache and return
MAX_GROWTH = 32 << 20  # of the memory between a third of the rounds and the end

CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "degrees": {"type": "integer"}},
        "required": ["city", "degrees"], "additionalProperties": False}
TOOL = {"name": "get_weather", "description": "The weather of a city.", "parameters": CITY}
SYSTEM = "You answer questions about the weather of the cities of the world, and always in a polite way. " * 6
CHAT, COMPLETION, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"


def ask(text, system=None):
    return [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": text}]


# Requests whose answers are determined.
REQUESTS = [
    (COMPLETION, {"prompt": "Once upon a time there was a lighthouse keeper who", "max_tokens": 32, "temperature": 0, "logprobs": 3}),
    (COMPLETION, {"prompt": "Once upon a time there was a lighthouse", "max_tokens": 24, "n": 3, "seed": 11, "logprobs": 20}),
    (COMPLETION, {"prompt": ["The sea is", "The sea was", "The sky is"], "max_tokens": 16, "seed": 5, "temperature": 0.7, "top_p": 0.9}),
    (COMPLETION, {"prompt": SYSTEM + "The weather of Oslo:", "max_tokens": 16, "temperature": 0, "frequency_penalty": 1, "logprobs": 1}),
    (COMPLETION, {"prompt": "One, two, three,", "max_tokens": 24, "temperature": 0, "stop": [" seven", "nine"], "logit_bias": {"30": -5}}),
    (COMPLETION, {"prompt": "The number is ", "max_tokens": 24, "seed": 3, "guided_regex": "[0-9]{3}-[a-f]{2,9}!", "logprobs": 2}),
    (COMPLETION, {"prompt": "A sum: ", "max_tokens": 20, "seed": 4, "grammar": "root ::= n (\" + \" n)*\nn ::= [1-9] [0-9]{0,3}"}),
    (COMPLETION, {"prompt": "The best of", "max_tokens": 8, "use_beam_search": True, "n": 3}),
    (CHAT, {"messages": ask("Tell me about the sea.", SYSTEM), "max_tokens": 40, "temperature": 0, "logprobs": True, "top_logprobs": 20}),
    (CHAT, {"messages": ask("Tell me about the sky.", SYSTEM), "max_tokens": 24, "seed": 1, "n": 2, "logprobs": True}),
    (CHAT, {"messages": ask("Name three primary colors."), "max_tokens": 24, "temperature": 0, "cache_salt": "a"}),
    (CHAT, {"messages": ask("It is cold in Oslo.", SYSTEM), "max_tokens": 48, "seed": 9, "logprobs": True, "response_format": {
        "type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}}),
    (CHAT, {"messages": ask("The weather of Rome?", SYSTEM), "max_tokens": 60, "temperature": 0, "tools": [{"type": "function", "function": TOOL}],
            "tool_choice": "required", "parallel_tool_calls": False}),
    (CHAT, {"messages": ask("The weather of Paris?", SYSTEM), "max_tokens": 60, "seed": 8, "logprobs": True, "tool_choice": "auto",
            "tools": [{"type": "function", "function": {**TOOL, "strict": True}}]}),
    (RESPONSES, {"input": "Tell me about the sea.", "instructions": SYSTEM, "max_output_tokens": 24, "temperature": 0}),
    (RESPONSES, {"input": "The weather of Bern?", "instructions": SYSTEM, "max_output_tokens": 60, "seed": 2, "tool_choice": "required",
                 "tools": [{"type": "function", **TOOL}]}),
    (RESPONSES, {"input": "It is hot in Cairo.", "max_output_tokens": 48, "seed": 6, "text": {"format": {
        "type": "json_schema", "name": "city", "schema": CITY}}}),
    (MESSAGES, {"messages": ask("Tell me about the sea."), "system": SYSTEM, "max_tokens": 24, "temperature": 0}),
    (MESSAGES, {"messages": ask("The weather of Lima?"), "system": SYSTEM, "max_tokens": 60, "temperature": 0, "tool_choice": {"type": "any"},
                "tools": [{"name": TOOL["name"], "input_schema": CITY}]}),
]


# ---- What an answer says: the same for whole answers and for streams ----


def add_logprobs(sum_, logprobs):
    for key, values in (logprobs or {}).items():
        sum_.setdefault(key, []).extend(values or [])


def read_openai(parts):
    """parts: the bodies of a stream's events, or one whole answer."""
    choices = collections.defaultdict(lambda: {"text": "", "calls": {}, "logprobs": {}, "finish": None})
    for choice in (choice for part in parts for choice in part["choices"]):
        c = choices[choice["index"]]
        message = choice.get("delta") or choice.get("message") or {}
        c["text"] += choice.get("text") or message.get("content") or ""
        for i, call in enumerate(message.get("tool_calls") or []):
            names = c["calls"].setdefault(call.get("index", i), ["", ""])
            names[0] += call["function"].get("name") or ""
            names[1] += call["function"].get("arguments") or ""
        add_logprobs(c["logprobs"], choice.get("logprobs"))
        c["finish"] = choice["finish_reason"] or c["finish"]
    return dict(sorted(choices.items()))


def read_responses(parts):
    last = parts[-1].get("response", parts[-1])
    items = [(item["type"], item.get("name"), item.get("arguments"), [part.get("text") for part in item.get("content") or []])
             for item in last["output"]]
    deltas = collections.defaultdict(str)
    for part in parts[:-1]:
        if part["type"].endswith(".delta"):
            deltas[part["output_index"]] += part["delta"]
    if len(parts) > 1:  # what was streamed is what the last event says
        assert [deltas[i] for i in range(len(items))] == [item[2] or "".join(item[3]) for item in items]
    return last["status"], items


def read_messages(parts):
    if len(parts) == 1:
        return parts[0]["stop_reason"], [[b["type"], b.get("text", ""), b.get("name"), b.get("input")] for b in parts[0]["content"]]
    blocks, inputs, stop = [], collections.defaultdict(str), None
    for part in parts:
        if part["type"] == "content_block_start":
            b = part["content_block"]
            blocks.append([b["type"], b.get("text", ""), b.get("name"), b.get("input")])
        elif part["type"] == "content_block_delta":
            blocks[part["index"]][1] += part["delta"].get("text", "")
            inputs[part["index"]] += part["delta"].get("partial_json", "")
        elif part["type"] == "message_delta":
            stop = part["delta"]["stop_reason"]
    for i, text in inputs.items():
        if blocks[i][0] == "tool_use":
            try:
                blocks[i][3] = json.loads(text)
            except ValueError:  # cut off
                blocks[i][3] = {}
    return stop, blocks


def read_answer(path, data, stream):
    if stream:
        lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
        parts = [json.loads(line) for line in lines if line != "[DONE]"]
    else:
        parts = [json.loads(data)]
    for part in parts:
        if part.get("error") or part.get("type") in ("error", "response.failed"):
            raise AssertionError(part)
    return {RESPONSES: read_responses, MESSAGES: read_messages}.get(path, read_openai)(parts)


# ---- Clients ----


class Client:
    def __init__(self, server, seed):
        self.address = server.url.removeprefix("http://").split(":")
        self.random = random.Random(seed)
        self.counts = collections.Counter()

    def connect(self, small=False):
        connection = http.client.HTTPConnection(self.address[0], int(self.address[1]), timeout=LIMIT_S)
        connection.sock = socket.socket()
        if small:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.sock.settimeout(LIMIT_S)
        connection.sock.connect((self.address[0], int(self.address[1])))
        return connection

    def look(self):
        """Another answer of the server, as what a client waits for that is slower than it."""
        connection = self.connect()
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        connection.close()

    def post(self, path, body, slow=False):
        """The whole answer's bytes."""
        connection = self.connect(small=slow)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        data = b""
        while slow and (piece := reply.read1(1500)):
            data += piece
            self.look()
        data += reply.read()
        connection.close()
        assert reply.status == 200, data
        return data

    def hang_up(self, path, body):
        """Send a request, or a part of it, read a part of the answer, and close the connection; half of the time by a reset."""
        connection = self.connect(small=True)
        sock = connection.sock
        text = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode()
        whole = head + text
        part = self.random.random() < 0.2
        sock.sendall(whole[:self.random.randrange(len(whole))] if part else whole)
        if self.random.random() < 0.7 and body.get("stream") and not part:
            for _ in range(self.random.randrange(1, 40)):
                if not sock.recv(400):
                    break
        else:  # it leaves after an answer to another request, of a few tokens or none
            for n in range(self.random.randrange(3)):
                self.post(COMPLETION, {"prompt": "Meanwhile", "max_tokens": 4 * n + 1, "temperature": 0})
        if self.random.random() < 0.5:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    def run(self, alone, rounds, problems):
        for _ in range(rounds):
            if problems:
                break
            i = self.random.randrange(len(REQUESTS))
            path, body = REQUESTS[i]
            stream = self.random.random() < 0.6
            if stream:
                body = {**body, "stream": True}
            kind = self.random.choices(["whole", "slow", "hangs up"], [5, 2, 3])[0]
            self.counts[kind] += 1
            try:
                if kind == "hangs up":
                    self.hang_up(path, body)
                elif (got := read_answer(path, self.post(path, body, slow=kind == "slow"), stream)) != alone[i]:
                    problems.append((kind, path, body, got, alone[i]))
            except Exception as problem:  # reported by the test
                problems.append((kind, path, body, repr(problem)))


def leftovers(server):
    """Files, without the sockets to processes of grammars, which stay, and threads of the server."""
    folder = f"/proc/{server.process.pid}"
    return len(os.listdir(f"{folder}/fd")) - len(grammars_of(server)), len(os.listdir(f"{folder}/task"))


def no_more(left, before):
    return all(now <= then for now, then in zip(left, before))


def resident_bytes(process):
    with open(f"/proc/{process.pid}/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def server(chunkllama_bin, model_path, grammar_library):
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library, "--kv-budget", KV_BUDGET) as running:
        yield running


def test_load(server):
    alone = [read_answer(path, Client(server, 0).post(path, body), False) for path, body in REQUESTS]
    server.wait_until_idle()
    before = leftovers(server)  # maybe with the socket of the last answer
    clients = [Client(server, seed) for seed in range(1, CONNECTIONS + 1)]
    problems, sizes = [], []
    for rounds in (ROUNDS // 3, ROUNDS * 2 // 3):
        workers = [threading.Thread(target=client.run, args=(alone, rounds, problems)) for client in clients]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        server.wait_until_idle()
        sizes.append(resident_bytes(server.process))
    assert not problems, problems[0]
    wait_until(lambda: no_more(leftovers(server), before), f"files and threads of clients that are gone to end: {before}")
    assert sizes[1] - sizes[0] < MAX_GROWTH, sizes
    counts = sum((client.counts for client in clients), collections.Counter())
    assert min(counts[kind] for kind in ("whole", "slow", "hangs up")) > CONNECTIONS // 8, counts
    metrics = server.metrics()
    print(dict(counts), "MiB:", [size >> 20 for size in sizes], "preempted:", metrics.get("vllm:num_preemptions_total"))
    again = [read_answer(path, Client(server, 0).post(path, body), False) for path, body in REQUESTS]
    assert again == alone
