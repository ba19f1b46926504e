"""Tenants of `chunkllama serve --api-keys`: who may use what, and that they share neither K/V nor time."""
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import random
import re
import resource
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from holding import Hold
from waiting import LIMIT_S, wait_until

KEYS = "# tenants\nalice key-a 2\nbob key-b\nalice key-a2\ndefault key-d\n"


@pytest.fixture
def serve(bin_dir, model_path, tmp_path):
    """Starts a server with these lines of keys, one that can be held if there is a Hold, and returns its URL; all end with the
    test."""
    path = tmp_path / "keys"
    with contextlib.ExitStack() as servers:

        def start(*args, keys=KEYS, hold=None):
            path.write_text(keys)
            program = bin_dir / ("chunkllama_held" if hold else "chunkllama")
            command = [program, "serve", "-m", model_path, "--port", "0", "--temperature", "0", "--api-keys", path, *args]
            server = servers.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                                            env=hold and hold.env))
            servers.callback(server.kill)
            line = server.stdout.readline()
            assert line, server.stderr.read()
            return re.search(r"at (http://\S+)", line)[1]

        yield start


def request_of(url, key, path="/v1/completions", **body):
    return urllib.request.Request(url + path, json.dumps(body).encode() if body else None, {"Authorization": f"Bearer {key}"})


def complete(url, key, prompt, **fields):
    with urllib.request.urlopen(request_of(url, key, prompt=prompt, max_tokens=4, **fields), timeout=LIMIT_S) as reply:
        return json.load(reply)


def metric(url, name):
    """The sum of a metric's samples."""
    with urllib.request.urlopen(request_of(url, "key-d", "/metrics"), timeout=LIMIT_S) as reply:
        return sum(float(line.rsplit(" ", 1)[1]) for line in reply.read().decode().splitlines() if line.startswith(name + "{"))


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_tenants_share_no_kv(serve):
    url = serve("--sandbox")
    prompt = list(range(1000, 1200))
    first = complete(url, "key-a", prompt)
    assert cached(first) == 0
    answers = [first]
    for key, is_known in (("key-a", 1), ("key-b", 0), ("key-b", 1), ("key-a2", 1), ("key-d", 0), ("key-d", 1)):
        answers.append(complete(url, key, prompt))
        assert cached(answers[-1]) == 198 * is_known, key  # prefixes are found up to an even position before the last token
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    longer = prompt[:100] + prompt
    assert cached(complete(url, "key-b", [prompt, longer], n=2)) == 198 + 100
    assert cached(complete(url, "key-a", longer)) == 100  # not the 200 tokens of bob's


def test_a_plain_list_of_keys(serve):
    """llama-server's format: several keys of one tenant."""
    url = serve(keys="key-1\nkey-2\n")
    prompt = list(range(1000, 1100))
    assert [cached(complete(url, key, prompt)) for key in ("key-1", "key-2")] == [0, 98]
    with pytest.raises(urllib.error.HTTPError) as caught:
        complete(url, "key-3", prompt)
    assert caught.value.code == 401
    assert b"vllm:" in urllib.request.urlopen(url + "/metrics", timeout=LIMIT_S).read()


def test_metrics_show_no_tenant(serve):
    url = serve("--api-key", "operator")
    complete(url, "key-a", [1000, 1001])
    for key, status in (("key-a", 403), ("nobody", 401)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request_of(url, key, "/metrics"), timeout=LIMIT_S)
        assert caught.value.code == status
    with urllib.request.urlopen(request_of(url, "operator", "/metrics"), timeout=LIMIT_S) as reply:
        page = reply.read().decode()
    assert "vllm:prompt_tokens_total" in page
    assert not re.search("alice|bob|key-|1306897498|325888088", page)


@pytest.mark.parametrize("keys, message", [
    ("alice key-a\nbob key-a\n", ", line 2: the key is there twice; leave one out"),
    ("", " has no key; write NAME KEY, or KEY, in a line for each"),
])
def test_wrong_files_are_refused(chunkllama, tmp_path, keys, message):
    path = tmp_path / "keys"
    path.write_text(keys)
    done = chunkllama("serve", "--port", 0, "--api-keys", path, status=1)
    assert done.stderr == f"chunkllama serve: --api-keys: {path}{message}\n"


# ---- Time ----

N_PAIRS, N_TOKENS = 30, 192  # of prompts


def signed_rank_p(differences):
    """Wilcoxon's signed-rank test, exact and two-sided: how likely ranks this uneven are if each sign is a coin's."""
    ranked = sorted(differences, key=abs)
    n = len(ranked)
    counts = [1] + [0] * (n * (n + 1) // 2)  # of the sets of ranks 1 to n, by their sum
    for rank in range(1, n + 1):
        for total in range(len(counts) - 1, rank - 1, -1):
            counts[total] += counts[total - rank]
    positive = sum(rank for rank, d in enumerate(ranked, 1) if d > 0)
    return min(1, 2 * sum(counts[:min(positive, len(counts) - 1 - positive) + 1]) / 2**n)


def test_signed_rank_p():
    assert signed_rank_p(range(1, 21)) == signed_rank_p(range(-20, 0)) == 2 / 2**20
    assert signed_rank_p([1, -2, 3, -4, 5, -6, 7]) > 0.5
    assert signed_rank_p([-1, 2, 3]) == 2 * 2 / 8  # sums of at most 1: {} and {1}


def seconds_to_first_token(connection, key, prompt):
    body = json.dumps({"prompt": prompt, "max_tokens": 1, "stream": True})
    begin = time.perf_counter()
    connection.request("POST", "/v1/completions", body, {"Authorization": f"Bearer {key}"})
    reply = connection.getresponse()
    reply.read(1)
    seconds = time.perf_counter() - begin
    assert reply.status == 200 and reply.read().endswith(b"[DONE]\n\n")
    return seconds


def test_time_reveals_no_prompt_of_another_tenant(serve):
    """Bob's time to first token is the same for prompts that alice has in the cache and for prompts that nobody has. The order
    within each pair is a coin's, so if alice's cache has no effect, the machine's load makes p < 1e-4 once in 10,000 runs. The
    control is that a hit in bob's own cache is detected; more pairs are measured until it is, since load may hide it."""
    url = serve()
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=LIMIT_S)
    rng = random.Random(1)
    other, own = [], []
    for i in itertools.count():
        known, new = ([rng.randrange(1000, 40000) for _ in range(N_TOKENS)] for _ in range(2))
        seconds_to_first_token(connection, "key-a", known)
        seconds = {}
        for name, prompt in rng.sample([("known", known), ("new", new)], 2):
            seconds[name] = seconds_to_first_token(connection, "key-b", prompt)
        own.append(seconds_to_first_token(connection, "key-b", known) - seconds["new"])
        if i < N_PAIRS:
            other.append(seconds["known"] - seconds["new"])
        elif i == 4 * N_PAIRS or signed_rank_p(own) < 1e-4:
            break
    assert signed_rank_p(own) < 1e-4 and sum(own) < 0, "the control: a hit in the own cache was not detected"
    assert signed_rank_p(other) >= 1e-4, other


def test_a_flood_delays_no_other_tenant(serve, tmp_path):
    """1,000 requests of alice; bob's requests end within the steps in which a place of hers becomes free and the few that they
    need themselves. If they waited for their turn, they would need some 2,000."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    hold = Hold(tmp_path)
    url = serve("--max-seqs", "32", hold=hold)
    address = re.search(r"//(.*):(\d+)", url).groups()
    n = 1000
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
        for i in range(n):
            body = json.dumps({"prompt": [1000 + i] + list(range(2000, 2016)), "max_tokens": 64, "ignore_eos": True})
            client = stack.enter_context(socket.create_connection(address, timeout=LIMIT_S))
            client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-a\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        states = ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:request_success_total")
        wait_until(lambda: sum(metric(url, name) for name in states) == n, "all requests of alice")
        bob = stack.enter_context(concurrent.futures.ThreadPoolExecutor())
        for i in range(3):
            with hold("step"):
                n_waiting = metric(url, "vllm:num_requests_waiting")
                answer = bob.submit(complete, url, "key-b", [3000 + i] + list(range(2000, 2016)), ignore_eos=True)
                wait_until(lambda: metric(url, "vllm:num_requests_waiting") == n_waiting + 1, "bob's request")
                for _ in range(64 + 16):
                    hold.next("step")
                assert answer.result(LIMIT_S)["usage"]["completion_tokens"] == 4
                assert metric(url, "vllm:num_requests_waiting") > 100, "the flood was over"
