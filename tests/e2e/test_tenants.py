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
import threading
import time
import urllib.error
import urllib.request

import hostile
import pytest
from holding import Hold
from nastiest import ATTACKS, CONTEXT
from nastiest import KEY as MALLORY
from test_memory import resident
from test_server import serving
from today import DAY
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
            client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key-a\r\n"
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


# ---- What keeps the server busy ----

KV_BUDGET, REQUEST_MEMORY = 64 << 20, 64 << 20
ONE_REQUEST = 400 << 20  # while it is prepared: its JSON (json.h), and what a template may take (docs/templates.md)
PART = 12  # of so many attacks the gate makes one, others each day
N_TOKENS_EACH = 32  # of the stream alone, and at least so many beside an attack
MOST_TIMES = 3  # as long as alone may the time between two tokens be
N_TRIES = 4  # of an attack; what the machine does beside it does not happen each time


class Stream(threading.Thread):
    """Reads streams of alice one after another; `gaps` are the seconds between two tokens of a stream."""

    def __init__(self, url):
        super().__init__()
        self.url, self.over, self.gaps = url, threading.Event(), []

    def run(self):
        fields = {"prompt": "Once", "max_tokens": CONTEXT - 100, "ignore_eos": True, "allowed_token_ids": [260], "stream": True}
        while not self.over.is_set():
            with urllib.request.urlopen(request_of(self.url, "key-a", **fields), timeout=LIMIT_S) as reply:
                self.read(line for line in reply if line.startswith(b"data: {"))

    def read(self, tokens):
        last = None
        for _ in tokens:
            now = time.perf_counter()
            if last:
                self.gaps.append(now - last)
            last = now
            if self.over.is_set():
                return

    def wait(self, n):
        """Until n more tokens have come. Returns how many there are."""
        wanted = len(self.gaps) + n
        wait_until(lambda: len(self.gaps) >= wanted or not self.is_alive(), "tokens of the stream")
        assert self.is_alive()
        return len(self.gaps)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def wait_for_calm(url):
    """Until the stream alone runs."""
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
    wait_until(lambda: sum(metric(url, name) for name in names) <= 1, "the stream alone")


def transfer(connection, attack):
    """What the server answers; nothing if it has hung up while the request was on its way, or if it waits for more."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(attack.wire)
    with contextlib.suppress(ConnectionResetError):
        return b"".join(iter(lambda: connection.recv(1 << 20), b"")) if attack.ends else b""
    return b""


def make(attack, url, stream):
    """Send what an attack sends, and wait for what it must wait for. Returns the answers."""
    address = re.search(r"//(.*):(\d+)", url).groups()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection(address, timeout=LIMIT_S)) for _ in range(attack.n)]
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(attack.n))
        answers = list(pool.map(lambda connection: transfer(connection, attack), connections))
        stream.wait(N_TOKENS_EACH)
    if attack.then:
        answers += make(attack.then(answers[0]), url, stream)
    return answers


def slowdown(attack, url, stream):
    """How many times as long as alone a token takes beside the attack, and the answers."""
    wait_for_calm(url)
    start = len(stream.gaps)
    begin = stream.wait(N_TOKENS_EACH)
    answers = make(attack, url, stream)
    wait_for_calm(url)
    end = stream.wait(1)  # with the token that was due
    alone, beside = stream.gaps[start:begin], stream.gaps[begin:end]
    return sum(beside) / len(beside) / (sum(alone) / len(alone)), answers


def is_answered(attack, answer):
    status = re.match(rb"HTTP/1.1 (\d+) ", answer)
    return not attack.ends or not answer or (status and (int(status[1]) < 500 or int(status[1]) in (503, 504)))


@pytest.mark.parametrize("names", [pytest.param(list(ATTACKS)[DAY % PART::PART], id="some"),
                                   pytest.param(list(ATTACKS), id="all", marks=pytest.mark.long)])
def test_what_keeps_the_server_busy_delays_no_other(chunkllama_bin, model_path, grammar_library, tmp_path, names):
    """Requests of mallory that need much work or memory: alice's stream goes on beside each, and the memory is bounded."""
    (tmp_path / "keys").write_text(f"{KEYS}mallory {MALLORY}\n")
    (tmp_path / "traps.jinja").write_text(hostile.TEMPLATE)
    options = {"--api-keys": tmp_path / "keys", "--chat-template": tmp_path / "traps.jinja", "--grammar-library": grammar_library,
               "-c": CONTEXT, "--kv-budget": KV_BUDGET, "--request-memory": REQUEST_MEMORY, "--files-dir": tmp_path / "files",
               "--speculate": "off"}  # fmt: skip
    words = [str(word) for option in options.items() for word in option]
    with serving(chunkllama_bin, model_path, *words, key="key-d") as server:
        with Stream(server.url) as stream:
            stream.wait(N_TOKENS_EACH)
            before = resident(server.process, "VmHWM")
            slow = {}
            for name in names:
                attack = ATTACKS[name]()
                for _ in range(N_TRIES):
                    times, answers = slowdown(attack, server.url, stream)
                    assert all(is_answered(attack, answer) for answer in answers), (name, answers)
                    slow[name] = min(times, slow.get(name, times))
                    if times <= MOST_TIMES:
                        break
            most = resident(server.process, "VmHWM")
        assert not {name: times for name, times in slow.items() if times > MOST_TIMES}
        assert most <= before + KV_BUDGET + REQUEST_MEMORY + ONE_REQUEST
