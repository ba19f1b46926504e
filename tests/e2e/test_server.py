"""The server with a real model and OpenAI's Python client: both endpoints, errors, shared prefixes, clients that hang up."""
import concurrent.futures
import contextlib
import json
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import openai
import pytest

from conftest import plain_environment
from waiting import LIMIT_S, wait_until

QUESTION = [{"role": "user", "content": "Name three primary colors."}]
LONG = "Once upon a time there was a lighthouse keeper who"


class Server:
    def __init__(self, process, url, key):
        self.process, self.url = process, url
        self.client = self.client_of(key)
        self.model = self.client.models.list().data[0].id

    def client_of(self, key):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=LIMIT_S)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop_at_once(self):
        """A second signal cuts the requests that the first one would let end."""
        self.process.send_signal(signal.SIGINT)
        self.process.terminate()

    def chat(self, messages=QUESTION, **more):
        return self.client.chat.completions.create(model=self.model, messages=messages, **more)

    def complete(self, prompt=LONG, **more):
        return self.client.completions.create(model=self.model, prompt=prompt, **more)

    def metrics(self):
        """The samples by name, with their labels but the model's."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=LIMIT_S) as reply:
            lines = [line for line in reply.read().decode().splitlines() if not line.startswith("#")]
        pairs = (line.rsplit(" ", 1) for line in lines)
        return {re.sub(r'model_name="[^"]*",?', "", name).replace("{}", ""): float(value) for name, value in pairs}

    def wait_for(self, **wanted):
        """Wait until the gauges have these values, which the engine updates at each step."""
        names = {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting",
                 "sequences": "chunkattn_kv_sequences", "live": "chunkattn_kv_bytes_live",
                 "reserved": "chunkattn_kv_bytes_reserved"}

        def holds():
            metrics = self.metrics()
            return all(metrics[names[key]] == value for key, value in wanted.items())

        wait_until(holds, wanted)

    def wait_until_idle(self):
        self.wait_for(running=0, waiting=0, sequences=0, live=0, reserved=0)


def without_lacks(errors):
    """Standard error without what llguidance says where a grammar's process has no memory; sanitized builds have it there, too."""
    lack = r"memory allocation of \d+ bytes failed|stack backtrace:|note: (Some details are omitted, )?run with `RUST_BACKTRACE=.*"
    return "".join(line for line in errors.splitlines(True) if not re.fullmatch(lack, line.rstrip()))


@contextlib.contextmanager
def serving(binary, model_path, *args, key="none", hold=None):
    """A server, which ends in order afterwards, unless the test has ended it and waited for that. Requests may name any model. A
    Hold can hold the program chunkllama_held."""
    command = [binary, "serve", "-m", model_path, "--port", "0", "--kv-budget", "2G", "--model-name", "*", "--log-level", "error", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=plain_environment() | ({"CHUNKLLAMA_HOLD": str(hold.folder)} if hold else {}))
    try:
        for line in process.stdout:
            if found := re.search(r"http://[0-9.]+:\d+", line):
                break
        else:
            pytest.fail(process.stderr.read())
        yield Server(process, found[0], key)
        if process.returncode is None:
            process.terminate()
            assert process.wait(LIMIT_S) == 0
            assert without_lacks(process.stderr.read()) == ""
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def server(chunkllama_bin, model_path):
    """It has no grammars, whatever the environment names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CHUNKLLAMA_GRAMMAR_LIBRARY", raising=False)
        with serving(chunkllama_bin, model_path) as running:
            yield running


# ---- Answers ----


def test_models(server):
    model = server.client.models.retrieve(server.model)
    assert model.object == "model" and model.max_model_len > 0


def test_chat(server):
    """The reply is what completes the chat's prompt."""
    answer = server.chat(max_tokens=40, temperature=0, extra_body={"return_token_ids": True})
    choice = answer.choices[0]
    completion = server.complete(choice.prompt_token_ids, max_tokens=40, temperature=0).choices[0]
    assert answer.object == "chat.completion" and choice.message.role == "assistant"
    assert (choice.message.content, choice.finish_reason) == (completion.text, completion.finish_reason)
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens and usage.prompt_tokens > 10


def test_chat_stream_is_the_same(server):
    whole = server.chat(max_tokens=40, temperature=0)
    chunks = list(server.chat(max_tokens=40, temperature=0, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + [whole.choices[0].finish_reason]
    assert len({c.id for c in chunks}) == 1 and chunks[0].object == "chat.completion.chunk"
    assert all(c.usage is None for c in chunks[:-1]) and chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_completion_and_its_stream(server):
    more = {"max_tokens": 20, "temperature": 0, "extra_body": {"ignore_eos": True}}
    whole = server.complete(**more)
    assert whole.object == "text_completion" and whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 20
    chunks = list(server.complete(stream=True, **more))
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "length"


def test_token_ids_are_the_same_prompt(server):
    more = {"max_tokens": 8, "temperature": 0, "extra_body": {"return_token_ids": True, "ignore_eos": True}}
    text = server.complete(**more).choices[0]
    assert len(text.token_ids) == 8
    ids = server.complete(text.prompt_token_ids, **more)
    assert ids.choices[0].text == text.text
    both = server.complete([text.prompt_token_ids, text.prompt_token_ids[:4]], **more)
    assert [c.index for c in both.choices] == [0, 1] and both.choices[0].text == text.text


def test_content_in_parts(server):
    """Each part is a line of its own."""
    texts = ["Name three", "primary colors."]
    whole, parts = ([{"role": "user", "content": content}] for content in
                    ("\n".join(texts), [{"type": "text", "text": text} for text in texts]))
    assert (server.chat(parts, max_tokens=20, temperature=0).choices[0].message.content ==
            server.chat(whole, max_tokens=20, temperature=0).choices[0].message.content)


def test_n_and_seed(server):
    def draw(seed, n=3):
        return [c.text for c in server.complete(max_tokens=12, n=n, seed=seed).choices]

    first = draw(1)
    assert len(set(first)) == 3
    assert draw(1) == first and draw(1, n=1) == first[:1]
    assert draw(2) != first
    greedy = server.complete(max_tokens=12, n=3, temperature=0)
    assert len({c.text for c in greedy.choices}) == 1 and [c.index for c in greedy.choices] == [0, 1, 2]


def test_best_of(server):
    def mean(choice):
        return sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)

    every = server.complete(max_tokens=12, n=4, seed=5, logprobs=0)
    best = server.complete(max_tokens=12, n=2, best_of=4, seed=5)
    assert [c.text for c in best.choices] == [c.text for c in sorted(every.choices, key=mean, reverse=True)[:2]]
    assert [c.index for c in best.choices] == [0, 1] and best.choices[0].logprobs is None
    assert best.usage.completion_tokens == every.usage.completion_tokens


def test_beam_search(server):
    """The score divides equal lengths by the same number, so sums fall, and greedy decoding finds nothing better."""
    more = {"max_tokens": 12, "logprobs": 0, "extra_body": {"use_beam_search": True, "ignore_eos": True}}
    beams = server.complete(n=4, **more)
    sums = [sum(c.logprobs.token_logprobs) for c in beams.choices]
    assert sums == sorted(sums, reverse=True) and len({c.text for c in beams.choices}) == 4
    greedy = server.complete(max_tokens=12, logprobs=0, temperature=0, extra_body={"ignore_eos": True}).choices[0]
    assert sums[0] >= sum(greedy.logprobs.token_logprobs)
    assert [c.text for c in server.complete(n=2, best_of=4, **more).choices] == [c.text for c in beams.choices[:2]]
    texts = [""] * 4
    for chunk in server.complete(n=4, stream=True, **more):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [c.text for c in beams.choices]
    chat = server.chat(n=3, max_tokens=8, extra_body={"use_beam_search": True, "length_penalty": 0, "early_stopping": True})
    assert len({c.message.content for c in chat.choices}) == 3
    with pytest.raises(openai.BadRequestError, match="max_seqs"):
        server.complete(n=128, extra_body={"use_beam_search": True})


def test_n_in_a_stream(server):
    whole = server.complete(max_tokens=12, n=3, seed=5)
    texts = {0: "", 1: "", 2: ""}
    for chunk in server.complete(max_tokens=12, n=3, seed=5, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert list(texts.values()) == [c.text for c in whole.choices]


def test_stop(server):
    more = {"max_tokens": 40, "temperature": 0, "extra_body": {"return_token_ids": True, "ignore_eos": True}}
    free = server.complete(**more).choices[0].text
    stop = free[20:26]
    for kind in stop, [stop, "never said"]:
        choice = server.complete(stop=kind, **more).choices[0]
        assert choice.text == free[:free.index(stop)] and choice.finish_reason == "stop"
    streamed = "".join(c.choices[0].text for c in server.complete(stop=stop, stream=True, **more))
    assert streamed == free[:free.index(stop)]
    ids = server.complete(**more).choices[0].token_ids
    more["extra_body"]["stop_token_ids"] = [ids[4]]
    ended = server.complete(**more).choices[0]
    assert ended.token_ids == ids[:ids.index(ids[4]) + 1] and ended.finish_reason == "stop"


def test_chat_logprobs(server):
    answer = server.chat(max_tokens=10, temperature=0, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob == token.logprob and token.top_logprobs[0].token == token.token
        assert [t.logprob for t in token.top_logprobs] == sorted((t.logprob for t in token.top_logprobs), reverse=True)
        assert token.logprob <= 0
    said = b"".join(bytes(t.bytes) for t in content).decode()
    assert said.startswith(answer.choices[0].message.content)
    streamed = [t for c in server.chat(max_tokens=10, temperature=0, logprobs=True, top_logprobs=3, stream=True)
                if c.choices[0].logprobs for t in c.choices[0].logprobs.content]
    assert streamed == content


def test_echo_scores_what_was_generated(server):
    """The logprobs of a prompt are bit-identical to those of the same tokens when they were generated."""
    made = server.complete(max_tokens=12, temperature=0, logprobs=2, extra_body={"return_token_ids": True}).choices[0]
    prompt = made.prompt_token_ids
    echo = server.complete(prompt + made.token_ids, max_tokens=0, logprobs=2, echo=True).choices[0]
    assert echo.text == LONG + made.text
    assert echo.logprobs.token_logprobs[0] is None
    assert echo.logprobs.token_logprobs[len(prompt):] == made.logprobs.token_logprobs
    assert echo.logprobs.top_logprobs[len(prompt):] == made.logprobs.top_logprobs
    assert "".join(echo.logprobs.tokens) == echo.text
    assert echo.logprobs.text_offset[len(prompt)] == len(LONG)


def test_equals_batch(server, chunkllama, tmp_path):
    """Greedy answers of concurrent requests are those of the offline batch, byte for byte."""
    prompts = [f"{LONG} {tail}" for tail in ("loved", "feared", "counted", "painted", "sold", "taught", "read", "lost")]
    lines = [{"id": i, "prompt": p, "max_tokens": 24, "temperature": 0, "logprobs": 1} for i, p in enumerate(prompts)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    chunkllama("batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl")
    batch = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]

    def ask(prompt):
        return server.complete(prompt, max_tokens=24, temperature=0, logprobs=1, extra_body={"return_token_ids": True})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        served = [answer.choices[0] for answer in pool.map(ask, prompts)]
    for b, s in zip(batch, served, strict=True):
        assert b["text"] == s.text and b["token_ids"] == s.token_ids and b["finish_reason"] == s.finish_reason
        assert b["logprobs"]["token_logprobs"] == s.logprobs.token_logprobs


# ---- Errors ----


# One for each part that refuses: the body's reader, the engine's rules of fields, the engine itself (without a library of grammars),
# and the context. tests/serve/protocol and tests/chunkllama/engine have the rules.
@pytest.mark.parametrize("param, fields", [
    ("temperature", {"temperature": "much"}),
    ("top_p", {"top_p": 9}),
    ("response_format", {"response_format": {"type": "json_object"}}),
    (None, {"messages": [{"role": "user", "content": "word " * 20000}]}),
])
def test_bad_chat_requests(server, param, fields):
    with pytest.raises(openai.BadRequestError) as caught:
        server.chat(**{"messages": QUESTION, **fields})
    error = caught.value
    assert error.param == param and error.type == "invalid_request_error" and len(error.body["message"]) > 20
    if param is None:
        assert error.code == "context_length_exceeded" and "This model's maximum context length is" in error.body["message"]
    assert server.chat(max_tokens=1).usage.completion_tokens == 1


def test_more_tokens_than_the_context_holds(chunkllama_bin, model_path):
    """Clients send their own limits, which know no context: an answer ends with it."""
    with serving(chunkllama_bin, model_path, "-c", "64") as server:
        for ask in server.chat, server.complete:
            answer = ask(max_tokens=10**9, extra_body={"ignore_eos": True})
            assert answer.choices[0].finish_reason == "length"
            assert answer.usage.prompt_tokens < answer.usage.prompt_tokens + answer.usage.completion_tokens <= 64


def test_an_empty_prompt(server):
    assert server.complete("", max_tokens=1).usage.completion_tokens == 1


@pytest.mark.parametrize("method, path, body, status", [
    ("POST", "/v1/chat/completions", b"{", 400),
    ("POST", "/v1/chat/completions", b'{"messages": "\xff"}', 400),
    ("POST", "/v1/completions", b" " * (17 << 20), 413),
    ("GET", "/v1/completions", None, 405),
    ("POST", "/v1/images/generations", b"{}", 404),
])
def test_bad_http_requests(server, method, path, body, status):
    request = urllib.request.Request(server.url + path, body, method=method)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=LIMIT_S)
    assert caught.value.code == status
    assert json.load(caught.value)["error"].keys() == {"message", "type", "param", "code"}


def test_text_that_cannot_fit_is_not_tokenized(server):
    text = "word " * (12 * 10**6 // 5)
    for ask in (lambda: server.complete(text), lambda: server.chat([{"role": "user", "content": text}])):
        with pytest.raises(openai.BadRequestError) as caught:
            ask()
        assert caught.value.code == "context_length_exceeded"
        assert re.search(r"has 12000\d{3} bytes", str(caught.value))  # a chat also has the template's text


# ---- Sharing ----


def test_a_common_prefix_is_computed_once(server):
    """Of 32 requests at once all but the first find the prefix; the prefix is computed once, and each request's own tokens."""
    prefix = "You are a patient librarian. " + " ".join(f"Shelf {i} holds the books on subject {i * 7}." for i in range(40))
    prompts = [f"{prefix} Reader {i} asks:" for i in range(100, 132)]
    before = server.metrics()
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        usages = [a.usage for a in pool.map(lambda p: server.complete(p, max_tokens=8, temperature=0), prompts)]
    after = server.metrics()
    computed = (after["chunkattn_prefill_tokens_computed_total"] - before["chunkattn_prefill_tokens_computed_total"])
    cached = [u.prompt_tokens_details.cached_tokens for u in usages]
    total = sum(u.prompt_tokens for u in usages)
    own = 8  # at most this many tokens of a prompt are its own, including those that the even length of a match adds
    assert all(u.prompt_tokens > 400 for u in usages)
    assert sum(c >= u.prompt_tokens - own for c, u in zip(cached, usages)) >= 31
    assert computed == total - sum(cached) <= usages[0].prompt_tokens + 31 * own
    assert after["vllm:prefix_cache_hits_total"] - before["vllm:prefix_cache_hits_total"] == sum(cached)
    assert after["vllm:prompt_tokens_total"] - before["vllm:prompt_tokens_total"] == total
    server.wait_until_idle()


# ---- Clients that hang up ----


def test_hanging_up_in_a_stream_frees_everything(server):
    server.wait_until_idle()
    before = server.metrics()
    streams = [server.complete(max_tokens=4000, stream=True, extra_body={"ignore_eos": True}) for _ in range(3)]
    for stream in streams:
        next(iter(stream))
    server.wait_for(running=3)
    for stream in streams:
        stream.close()
    server.wait_until_idle()
    after = server.metrics()
    aborted = 'vllm:request_success_total{finished_reason="abort"}'
    assert after[aborted] - before[aborted] == 3
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] < 3 * 4000


def test_hanging_up_while_queued_frees_everything(chunkllama_bin, model_path):
    with serving(chunkllama_bin, model_path, "--max-seqs", "1") as server:
        endless = {"max_tokens": 4000, "extra_body": {"ignore_eos": True}}
        running = server.complete(stream=True, **endless)
        next(iter(running))
        queued = server.complete("Another " + LONG, stream=True, **endless)
        address = urllib.parse.urlsplit(server.url)
        body = json.dumps({"prompt": LONG, "max_tokens": 4000, "ignore_eos": True})
        with socket.create_connection((address.hostname, address.port)) as whole:
            whole.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            server.wait_for(running=1, waiting=2)
        server.wait_for(running=1, waiting=1)
        queued.close()
        server.wait_for(running=1, waiting=0)
        running.close()
        server.wait_until_idle()
        assert server.chat(max_tokens=2).usage.completion_tokens == 2


def test_stopping_ends_streams(chunkllama_bin, model_path):
    with serving(chunkllama_bin, model_path) as server:
        stream = server.complete(max_tokens=4000, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        server.stop_at_once()
        with pytest.raises(openai.APIError, match="shutting down"):
            for _ in stream:
                pass
        assert server.process.wait(LIMIT_S) == 128 + signal.SIGTERM
