"""The endpoints below /cache: what the cache holds, and prompts that stay in it."""
import contextlib
import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

OPERATOR = "key-d"
BUDGET = ("--kv-budget", "32M", "--pin-budget", "8M")  # a token takes 23 KB
PROMPT = list(range(1000, 1200))


@pytest.fixture
def serve(chunkllama_bin, model_path, tmp_path):
    """Starts a server of the tenants a and default, and returns its URL; all end with the test, without an error."""
    with contextlib.ExitStack() as servers:

        def start(*args, keys=f"a key-a\ndefault {OPERATOR}\n"):
            (tmp_path / "keys").write_text(keys)
            command = [chunkllama_bin, "serve", "-m", model_path, "--port", "0", "--api-keys", tmp_path / "keys", *args]
            server = servers.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            servers.callback(end, server)
            line = server.stdout.readline()
            assert line, server.stderr.read()
            return re.search(r"at (http://\S+)", line)[1]

        yield start


def end(server):
    server.terminate()
    assert (server.wait(timeout=60), server.stderr.read()) == (0, "")


def call(url, method, path, body=None, key=OPERATOR):
    """The status and the JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Authorization": f"Bearer {key}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=300) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def pin(url, **body):
    status, answer = call(url, "POST", "/cache/pin", body)
    assert status == 200, answer
    return answer


def cache(url):
    status, answer = call(url, "GET", "/cache")
    assert status == 200 and answer["object"] == "cache"
    return answer


def cached(url, prompt, key=OPERATOR):
    """How many tokens of a prompt, before its last one, are in the cache."""
    status, answer = call(url, "POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1}, key)
    assert status == 200, answer
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def wait_for_sequences(url, n):
    deadline = time.monotonic() + 60
    while cache(url)["sequences"] != n:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def flood(url):
    """Prompts that take several times the cache."""
    for i in range(15):
        cached(url, [5000 + i] * 400)


def test_a_pin_stays_until_it_is_deleted(serve):
    url = serve(*BUDGET)
    answer = pin(url, prompt=PROMPT)
    assert {k: answer[k] for k in ("object", "tenant", "tokens")} == {"object": "cache.pin", "tenant": "default", "tokens": 200}
    assert abs(answer["created"] - time.time()) < 60
    assert cache(url)["pins"] == [answer]
    flood(url)
    assert cached(url, PROMPT + [7]) == 200
    gone = {"id": answer["id"], "object": "cache.pin", "deleted": True}
    assert call(url, "DELETE", "/cache/pin/" + answer["id"]) == (200, gone)
    flood(url)
    assert cache(url)["pins"] == [] and cache(url)["pinned_bytes"] == 0
    assert cached(url, PROMPT + [7]) == 0
    for name in (answer["id"], "pin-0", "pin-", "pin-99999999999999999999", "x"):
        status, error = call(url, "DELETE", "/cache/pin/" + name)
        assert status == 404 and error["error"]["code"] == "pin_not_found"


def test_what_the_cache_holds(serve):
    url = serve(*BUDGET)
    pin(url, prompt=PROMPT[:128])
    assert cached(url, PROMPT) == 128
    wait_for_sequences(url, 1)  # that of the completion leaves after its answer
    state = cache(url)
    assert state["tokens_stored"] == 200 and state["tokens_retained"] == 72
    assert state["slots_padding"] == 4 * 64 - 200  # four chunks of 64 slots
    assert state["live_bytes"] == state["retained_bytes"] == state["pinned_bytes"] == 2 * 64 * 23040
    assert state["live_bytes"] + state["retained_bytes"] < state["bytes_in_use"] <= state["budget_bytes"] == 32 << 20


def test_a_chat_is_pinned_for_a_tenant(serve):
    """Only the tenant that the body names finds it. What a pin does not need of a request does not count."""
    url = serve(*BUDGET)
    system = {"role": "system", "content": "You are the ship's doctor. " + " ".join(f"Rule {i}: be kind." for i in range(32))}
    answer = pin(url, tenant="a", messages=[system], n=3, stream=True, max_tokens=99)
    assert answer["tenant"] == "a"
    flood(url)
    body = {"messages": [system, {"role": "user", "content": "My arm hurts."}], "max_tokens": 1}
    for key, least, most in (("key-a", 200, answer["tokens"]), (OPERATOR, 0, 0)):
        details = call(url, "POST", "/v1/chat/completions", body, key)[1]["usage"]["prompt_tokens_details"]
        assert least <= details["cached_tokens"] <= most
    for method, path in (("GET", "/cache"), ("POST", "/cache/pin"), ("DELETE", "/cache/pin/" + answer["id"])):
        assert call(url, method, path, key="key-a")[0] == 403
    assert cache(url)["pins"] == [answer]


def test_the_cache_needs_a_key(serve):
    url = serve(*BUDGET, keys=OPERATOR + "\n")
    answer = pin(url, prompt=PROMPT)
    for method, path in (("GET", "/cache"), ("POST", "/cache/pin"), ("DELETE", "/cache/pin/" + answer["id"])):
        assert call(url, method, path, key="wrong")[0] == 401
    assert cache(url)["pins"] == [answer]


def test_requests_that_cannot_be_pinned(serve):
    url = serve(*BUDGET)
    for body, message in (
        ({"prompt": PROMPT, "tenant": "b"}, "there is no tenant 'b'"),
        ({"prompt": PROMPT, "tenant": 3}, "'tenant' must be a string"),
        ({"prompt": ["one prompt", "another"]}, "prompt has 2 prompts; pin them one by one"),
        ({"prompt": [5]}, "it needs at least 2"),
        ({"prompt": PROMPT * 2}, "K/V cache: the pins would cover 7 chunks"),  # of 1.5 MB; 5 fit
        ({}, "'prompt'"),
    ):
        status, answer = call(url, "POST", "/cache/pin", body)
        assert status == 400 and message in answer["error"]["message"], (body, answer)
    assert cache(url)["pins"] == [] and cache(url)["pinned_bytes"] == 0
    status, answer = call(serve(), "POST", "/cache/pin", {"prompt": PROMPT})
    assert status == 400 and "start it with --pin-budget" in answer["error"]["message"]


def test_clients_that_hang_up(serve):
    """What the engine has pinned is listed, so that it can be deleted; a pin that no client learns of ends."""
    url = serve(*BUDGET)
    host, port = re.fullmatch(r"http://(.*):(\d+)", url).groups()
    body = json.dumps({"prompt": PROMPT})
    for _ in range(5):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(f"POST /cache/pin HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {OPERATOR}\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n{body}".encode())  # fmt: skip
            time.sleep(0.02)
    deadline = time.monotonic() + 60
    while (state := cache(url))["sequences"] != len(state["pins"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
