"""`chunkllama serve`: the command that it prints works, and signals end it."""
import concurrent.futures
import contextlib
import ctypes
import http.client
import itertools
import json
import os
import random
import re
import resource
import select
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
from holding import Hold
from waiting import LIMIT_S, wait_until


@pytest.fixture
def hold(tmp_path):
    return Hold(tmp_path)


@pytest.fixture
def start(bin_dir, model_path):
    running = []

    def run(*args, log_level="error", hold=None, **more):
        """Start a server; with a Hold, one that it can hold."""
        program = bin_dir / ("chunkllama_held" if hold else "chunkllama")
        command = [program, "serve", "-m", model_path, "--kv-budget", "2G", "--log-level", log_level, *args]
        more = {"env": hold.env if hold else None} | more
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def read_hello(process):
    """The URL and the curl command that the server prints."""
    text = ""
    while not text.endswith("\n\n") or "curl" not in text:
        line = process.stdout.readline()
        assert line, (text, process.stderr.read())
        text += line
    return re.search(r"at (http://\S+)", text)[1], text[text.index("curl"):]


def assert_curl_is_answered(url, curl):
    """Run the command that the server prints: the answer is that to the body in it."""
    done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=LIMIT_S)
    body = re.search("-d '(.*)'", curl)[1].encode()
    with urllib.request.urlopen(url + "/v1/chat/completions", body, timeout=LIMIT_S) as reply:
        expected = json.load(reply)["choices"]
    assert expected[0]["message"]["role"] == "assistant" and json.loads(done.stdout)["choices"] == expected


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_serve(start, end):
    server = start("--port", "0", "--temperature", "0")
    url, curl = read_hello(server)
    assert_curl_is_answered(url, curl)
    assert subprocess.run(["curl", "-sf", url + "/health"], timeout=LIMIT_S).returncode == 0
    server.send_signal(end)
    assert server.wait(LIMIT_S) == 0
    assert server.stdout.read() == "\nThe server has stopped.\n" and server.stderr.read() == ""


def is_healthy(url):
    try:
        with urllib.request.urlopen(url + "/health", timeout=LIMIT_S) as reply:
            return reply.status == 200
    except OSError:  # also another status
        return False


def test_name_that_is_not_utf8(start, model_path, tmp_path):
    """A path may have any bytes; the name in JSON is made UTF-8."""
    path = os.fsencode(tmp_path) + b"/mod\xe9le.gguf"
    os.symlink(model_path, path)
    url, _ = read_hello(start("--port", "0", "-m", path))
    with urllib.request.urlopen(url + "/v1/models", timeout=LIMIT_S) as reply:
        assert json.load(reply)["data"][0]["id"] == "mod\ufffdle"
    with urllib.request.urlopen(url + "/v1/completions", b'{"prompt": "a", "max_tokens": 1}', timeout=LIMIT_S) as reply:
        assert json.load(reply)["model"] == "mod\ufffdle"


def test_chats_without_max_tokens(start):
    url, _ = read_hello(start("--port", "0", "--max-tokens", "3", "--temperature", "0"))
    for fields, tokens in (({}, 3), ({"max_tokens": 5}, 5)):
        body = {"messages": [{"role": "user", "content": "Count to a hundred."}], **fields}
        request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == tokens


def test_a_signal_ends_it_while_it_loads(start, hold):
    """Loading never ends here, as its thread is held."""
    with hold("pread", reached=False):
        server = start("--port", "0", hold=hold)
        hold.wait("pread")
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert server.stdout.read() == server.stderr.read() == ""


def test_standard_files_may_be_closed(chunkllama_bin, model_path, tmp_path):
    """What the program prints is not written to a file that was opened in place of a closed one."""
    (tmp_path / "in").write_text('{"prompt": "a", "max_tokens": 1}\n')
    command = [chunkllama_bin, "batch", "-m", model_path, "-i", tmp_path / "in", "-o", tmp_path / "out"]
    subprocess.run(["bash", "-c", '"$@" <&- >&- 2>&-', "-", *command], check=True, timeout=LIMIT_S)
    assert [json.loads(line)["id"] for line in open(tmp_path / "out")] == [1]
    port = str(random.randrange(20000, 30000))  # outside the range from which the system chooses ports
    serve = ["bash", "-c", 'exec "$@" >&-', "-", chunkllama_bin, "serve", "-m", model_path, "--port", port, "--log-level", "error"]
    server = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: server.poll() is not None or is_healthy(f"http://127.0.0.1:{port}"), "the server to answer")
    finally:
        server.terminate()
    assert server.wait(LIMIT_S) == 0 and server.stderr.read() == ""


def test_port_in_use(start):
    first = start("--port", "0")
    port = read_hello(first)[0].rsplit(":", 1)[1]
    second = start("--port", port)
    assert second.wait(LIMIT_S) == 1
    message = second.stderr.read()
    assert message.startswith("chunkllama serve: ") and port in message


def test_memory_that_is_lacking_for_a_body(start):
    """Status 503 whatever allocation fails, and the server goes on."""
    server = start("--port", "0")
    url, _ = read_hello(server)
    small = b'{"prompt": "a", "max_tokens": 1}'
    urllib.request.urlopen(url + "/v1/completions", small, timeout=LIMIT_S).close()
    kib = int(re.search(r"VmSize:\s*(\d+)", open(f"/proc/{server.pid}/status").read())[1])
    n_refused = 0
    for mib in (16, 32, 64):
        limit = (kib + mib * 1024) * 1024
        resource.prlimit(server.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        for values in b"1," * 1_900_000, b'{"a": [1]},' * 60_000, b'"' + b"a" * 12_000_000 + b'",':
            body = b'{"prompt": "a", "max_tokens": 1, "unknown": [' + values + b"0]}"
            try:
                urllib.request.urlopen(url + "/v1/completions", body, timeout=LIMIT_S).close()
            except urllib.error.HTTPError as caught:
                assert caught.code == 503, caught.read()
                assert "memory" in json.load(caught)["error"]["message"]
                n_refused += 1
    assert n_refused > 0  # the first body's JSON takes more than 64 MiB
    resource.prlimit(server.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    urllib.request.urlopen(url + "/v1/completions", small, timeout=LIMIT_S).close()


@pytest.mark.parametrize("limited", [resource.RLIMIT_AS, resource.RLIMIT_DATA], ids=["space", "data"])
def test_a_limit_on_its_memory(start, limited):
    """The default of --kv-budget leaves room in it for all else."""
    limit = 3_000_000 << 10
    server = start("--port", "0", "--kv-budget", "0", log_level="info",
                   preexec_fn=lambda: resource.setrlimit(limited, (limit, limit)))  # fmt: skip
    url, _ = read_hello(server)
    budget = next(found for line in server.stderr if (found := re.search(r"kv_budget_bytes=(\d+)", line)))
    assert 64 << 20 <= int(budget[1]) < limit * 3 / 4
    assert post(url, prompt="a " * 500, max_tokens=8, n=8)[0] == 200


def test_names_by_which_it_may_be_called(start):
    """A page of another site whose name leads to this address reads nothing."""
    url, _ = read_hello(start("--port", "0", "--allowed-hosts", "chat.example"))
    for host, status in ("chat.example", 200), ("other.example", 403):
        request = urllib.request.Request(url + "/v1/models", headers={"Host": host})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
                assert reply.status == status
        except urllib.error.HTTPError as caught:
            assert caught.code == status and "--allowed-hosts" in json.load(caught)["error"]["message"]


# ---- Limits of the queue and of time ----


def post(url, **body):
    """The status, the headers and the body of a completion's answer."""
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            return reply.status, reply.headers, reply.read()
    except urllib.error.HTTPError as caught:
        with caught:
            return caught.code, caught.headers, caught.read()


def metric(url, name):
    with urllib.request.urlopen(url + "/metrics", timeout=LIMIT_S) as reply:
        return float(re.search(rf"^{name}{{.*}} (\S+)$", reply.read().decode(), re.M)[1])


def wait_for_metric(url, name, value):
    wait_until(lambda: metric(url, name) == value, f"{name} to be {value}")


@contextlib.contextmanager
def endless(url):
    """A stream that occupies a place of the server meanwhile."""
    body = json.dumps({"prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "stream": True}).encode()
    with urllib.request.urlopen(url + "/v1/completions", body, timeout=LIMIT_S) as reply:
        reply.peek()  # the first token; no other request, such as one to /metrics, may count as one that runs
        yield reply


def test_a_full_queue(start):
    """The client learns when to try again; the requests that wait are answered."""
    url, _ = read_hello(start("--port", "0", "--max-seqs", "1", "--max-queued-requests", "1"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with endless(url):
            waits = pool.submit(post, url, prompt="One", max_tokens=1)
            wait_for_metric(url, "vllm:num_requests_waiting", 1)
            status, headers, text = post(url, prompt="Two", max_tokens=1)
            assert status == 429 and int(headers["Retry-After"]) >= 1
            error = json.loads(text)["error"]
            assert error["code"] == "rate_limit_exceeded" and "max_queued_requests is 1" in error["message"]
        assert waits.result()[0] == 200


def test_a_queue_of_tokens(start):
    url, _ = read_hello(start("--port", "0", "--max-seqs", "1", "--max-queued-tokens", "100"))
    with concurrent.futures.ThreadPoolExecutor() as pool, endless(url):
        waits = pool.submit(post, url, prompt=[5] * 90, max_tokens=1)
        wait_for_metric(url, "chunkattn_waiting_tokens", 90)
        status, headers, text = post(url, prompt=[6] * 11, max_tokens=1)
        assert status == 429 and int(headers["Retry-After"]) >= 1 and "max_queued_tokens is 100" in json.loads(text)["error"]["message"]
        fits = pool.submit(post, url, prompt=[6] * 10, max_tokens=1)
        wait_for_metric(url, "chunkattn_waiting_tokens", 100)
    assert waits.result()[0] == fits.result()[0] == 200


def test_a_time_limit_of_the_queue(start, hold):
    """A request that waits too long gets status 429, a stream too; one that runs may take any time."""
    url, _ = read_hello(start("--port", "0", "--max-seqs", "1", "--queue-timeout", "1000", hold=hold))
    with concurrent.futures.ThreadPoolExecutor() as pool, endless(url) as stream:
        for more in {}, {"stream": True}:
            waits = pool.submit(post, url, prompt="Two", max_tokens=1, **more)
            wait_for_metric(url, "vllm:num_requests_waiting", 1)
            with hold("hour", reached=False):
                status, headers, text = waits.result()
            error = json.loads(text)["error"]
            assert status == 429 and int(headers["Retry-After"]) >= 1 and error["code"] == "rate_limit_exceeded"
            assert "1000 seconds" in error["message"] and "--queue-timeout" in error["message"]
            wait_for_metric(url, "vllm:num_requests_waiting", 0)  # which is updated at the end of the step
        assert stream.readline().startswith(b"data: ")
    wait_for_metric(url, "vllm:num_requests_running", 0)
    assert post(url, prompt="Two", max_tokens=1)[0] == 200


def test_a_time_limit(start, hold):
    """A request that does not end in time gets status 504, and a stream an error, also while it waits."""
    url, _ = read_hello(start("--port", "0", "--max-seqs", "1", "--timeout", "1000", hold=hold))
    assert post(url, prompt="One", max_tokens=1)[0] == 200
    with concurrent.futures.ThreadPoolExecutor() as pool, endless(url) as stream:
        waits = pool.submit(post, url, prompt="Two", max_tokens=8000, ignore_eos=True)
        wait_for_metric(url, "vllm:num_requests_waiting", 1)
        with hold("hour", reached=False):
            status, _, text = waits.result()
            events = stream.read()
    error = json.loads(text)["error"]
    assert status == 504 and error["code"] == "timeout" and error["type"] == "server_error" and "1000 s" in error["message"]
    *_, last, done = events.decode().split("\n\n")[:-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout" and done == "data: [DONE]"
    wait_for_metric(url, "vllm:num_requests_running", 0)


def test_a_smaller_priority_comes_first(start):
    """As for vLLM. The request that comes first computes the prompt that both have."""
    url, _ = read_hello(start("--port", "0", "--max-seqs", "1"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with endless(url):
            answers = {}
            for n, priority in enumerate((7, 0, -7)):
                answers[priority] = pool.submit(post, url, prompt=[9] * 200, max_tokens=1, priority=priority)
                wait_for_metric(url, "vllm:num_requests_waiting", n + 1)
        usage = {p: json.loads(a.result()[2])["usage"]["prompt_tokens_details"]["cached_tokens"] for p, a in answers.items()}
    assert usage[-7] == 0 < usage[0] <= usage[7]


# ---- Prompts that are in the cache from the start ----

SYSTEM = {"role": "system", "content": "You are the ship's doctor. " + " ".join(f"Rule {i}: be kind." for i in range(32))}


def chat_file(path, *systems):
    path.write_text("".join(json.dumps({"messages": [system]}) + "\n\n" for system in systems))
    return str(path)


def cached_tokens(url):
    """Those of the first answer to a chat with SYSTEM, and how many there may be."""
    body = {"messages": [SYSTEM, {"role": "user", "content": "My arm hurts."}], "max_tokens": 1}
    with urllib.request.urlopen(url + "/v1/chat/completions", json.dumps(body).encode(), timeout=LIMIT_S) as reply:
        usage = json.load(reply)["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def flood(url):
    """Prompts that take several times a cache of 32 MB, in which a token takes 23 KB. Each comes twice, since a prompt that comes
    once stays behind those that others have shared."""
    for i in range(15):
        for _ in range(2):
            assert post(url, prompt=[1000 + i] * 400, max_tokens=1)[0] == 200


@pytest.mark.whole_model
@pytest.mark.parametrize("option", ["--pin", "--warm"])
def test_prompts_before_the_start(start, tmp_path, option):
    """The first request finds the prompt; under pressure only a pin keeps all of it."""
    path = chat_file(tmp_path / "prompts.jsonl", SYSTEM)
    server = start("--port", "0", "--kv-budget", "32M", option, path)
    line = server.stdout.readline() + server.stdout.readline()
    assert "Computing the prompts of " + path in line
    assert re.search(rf"1 prompts of {path} are {'pinned' if option == '--pin' else 'in the cache'}: \d+ tokens", line)
    url, _ = read_hello(server)
    cached, n = cached_tokens(url)
    assert 200 < n - 30 < cached < n
    flood(url)
    left = cached_tokens(url)[0]
    assert left == (cached if option == "--pin" else 0)
    assert (metric(url, "chunkattn_kv_chunks_pinned") > 0) == (option == "--pin")
    server.terminate()
    assert server.wait(LIMIT_S) == 0 and server.stderr.read() == ""


def test_prompts_of_tenants(start, tmp_path):
    """A pinned prompt is found by the tenant that its line names."""
    (tmp_path / "keys").write_text("a key-a\nb key-b\n")
    (tmp_path / "pinned").write_text(json.dumps({"prompt": [9] * 100, "tenant": "b"}) + "\n")
    url, _ = read_hello(start("--port", "0", "--api-keys", str(tmp_path / "keys"), "--pin", str(tmp_path / "pinned")))
    for key, cached in ("key-a", 0), ("key-b", 100):
        request = urllib.request.Request(url + "/v1/completions", json.dumps({"prompt": [9] * 120, "max_tokens": 1}).encode(),
                                         {"Authorization": "Bearer " + key})
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            assert json.load(reply)["usage"]["prompt_tokens_details"]["cached_tokens"] == cached


@pytest.mark.parametrize("keys, line, message", [
    ("alice key-a\nbob key-b\n", {"tenant": "alise"}, "no API key belongs to tenant 'alise'; use one of alice, bob, or add a key with --api-keys"),
    ("alice key-a\n", {}, "no API key belongs to tenant 'default' (assumed for a line without \"tenant\"); use one of alice, or"),
    (None, {"tenant": "bob"}, "no API key belongs to tenant 'bob'; use one of default, or"),
])
def test_prompts_of_nobody(start, tmp_path, keys, line, message):
    """A prompt of a tenant that has no key is refused: no request would find it."""
    (tmp_path / "keys").write_text(keys or "")
    (tmp_path / "warm").write_text("\n" + json.dumps({"prompt": [9] * 100, **line}) + "\n")
    server = start("--port", "0", *(["--api-keys", str(tmp_path / "keys")] if keys else []), "--warm", str(tmp_path / "warm"))
    assert server.wait(LIMIT_S) == 1
    assert f"--warm: {tmp_path}/warm, line 2: {message}" in server.stderr.read()


@pytest.mark.whole_model
def test_prompts_that_cannot_be_pinned(start, tmp_path):
    other = {"role": "system", "content": SYSTEM["content"].replace("Rule", "Law")}
    pinned = chat_file(tmp_path / "pinned.jsonl", SYSTEM, other)
    (tmp_path / "wrong.jsonl").write_text('{"prompt": "a b"}\n{"prompt": 3}\n')
    (tmp_path / "empty.jsonl").write_text("\n \n")
    (tmp_path / "long.jsonl").write_text(json.dumps({"prompt": [5] * 3000}) + "\n")
    url, _ = read_hello(start("--port", "0", "--kv-budget", "32M", "--ctx", "2048"))
    with urllib.request.urlopen(url + "/v1/models", timeout=LIMIT_S) as reply:
        served = json.load(reply)["data"][0]["max_model_len"]  # less than --ctx, as the budget holds no more
    assert 1000 < served < 2048
    for args, message in (
        (["--pin", pinned], f"--pin: {pinned}, line 3: --pin-budget is 8388608, and the pins would cover 10 chunks"),
        (["--pin", pinned, "--pin-budget", "1"], "--pin-budget is 1, and the pins would cover "),
        (["--pin", pinned, "--pin-budget", "40M"], "--pin-budget is 41943040; it must be at most half of the K/V budget, 33554432"),
        (["--warm", str(tmp_path / "wrong.jsonl")], f"--warm: {tmp_path}/wrong.jsonl, line 2: 'prompt' must be"),
        (["--warm", str(tmp_path / "empty.jsonl")], "empty.jsonl has no requests"),
        (["--warm", str(tmp_path / "long.jsonl")], f"long.jsonl, line 1: This model's maximum context length is {served} tokens"),
        (["--warm", str(tmp_path / "none")], f"--warm: cannot open {tmp_path}/none: No such file or directory; name a file with a request"),
        (["--pin", str(tmp_path)], f"--pin: cannot read {tmp_path}: Is a directory; name a file with a request on each line"),
        (["--pin", pinned, "--sharing", "private"], "--pin with --sharing private, where no request finds a pinned prompt; leave one"),
    ):
        server = start("--port", "0", "--kv-budget", "32M", "--ctx", "2048", *args)
        assert server.wait(LIMIT_S) == 1
        assert message in server.stderr.read(), message


@pytest.mark.parametrize("args, message", [
    (["--kv-tier", ""], "--kv-tier is empty; name a DIR"),
    (["--pin", ""], "--pin is empty; name a FILE"),
    (["--kv-tier-size", "1K"], "--kv-tier-size is 1K; it must be from 1048576 to"),
    (["--pin-budget", "-1"], "--pin-budget is -1; it must be from 0 to"),
    (["--timeout", "nan"], "--timeout is 'nan', which is not a number"),
    (["--target-itl", "-2"], "--target-itl is -2; it must be from -1 to 1000000"),
    (["--max-queued-requests", "1e9"], "--max-queued-requests is '1e9', which is not a whole number"),
    (["--max-queued-tokens", "-1"], "--max-queued-tokens is -1; it must be from 0 to 2147483647"),
    (["--api-keys", "/"], "--api-keys: cannot read /: Is a directory; name a file with a key on each line"),
    (["--api-keys", "/none"], "--api-keys: cannot open /none: No such file or directory; name a file"),
    (["--memory-pressure", "/"], "--memory-pressure: cannot read stalls of memory from /: Is a directory; name memory.pressure"),
    (["--memory-pressure", "/dev/null"], "from /dev/null: it has no line with total=; name memory.pressure"),
])
def test_errors_name_the_option(start, args, message):
    server = start("--port", "0", *args)
    assert server.wait(LIMIT_S) in (1, 2)
    assert message in server.stderr.read()


# ---- Memory that the system needs ----


@pytest.mark.parametrize("args", [(), ("--sandbox",)])
def test_memory_pressure(start, hold, tmp_path, args):
    """Retained memory returns while tasks wait for memory, and may be used again afterwards. The sandbox lets the file be read."""
    if args and ctypes.CDLL(None).syscall(444, None, 0, 1) < 1:  # landlock_create_ruleset: the version of Landlock
        pytest.skip("this system has no Landlock")
    path = tmp_path / "memory.pressure"
    path.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={0:012}\n")
    server = start("--port", "0", "--kv-budget", "32M", "--memory-pressure", str(path), *args, hold=hold)
    url, _ = read_hello(server)
    flood(url)
    assert metric(url, "chunkattn_kv_bytes_budget") == 32 << 20 and metric(url, "chunkattn_kv_bytes_in_use") > 24 << 20
    totals = itertools.count(10**8, 10**8)  # steps of more microseconds than are between two looks of the server

    def is_low():
        if metric(url, "chunkattn_kv_bytes_budget") <= 8 << 20:
            return True  # a stall now would be in the hour that the clock moves below, which then is not calm
        file.seek(0)
        file.write(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={next(totals):012}\n")
        file.flush()
        return False

    with open(path, "r+") as file:
        wait_until(is_low, "the budget to fall")
    lowest = metric(url, "chunkattn_kv_bytes_budget")
    assert metric(url, "chunkattn_kv_bytes_in_use") <= 8 << 20
    status, _, text = post(url, prompt=[5] * 1000, max_tokens=4, ignore_eos=True)  # needs more memory than that
    assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 4
    if not args:  # ten seconds, for what a sandbox has no part in
        with hold("hour", reached=False):
            wait_until(lambda: metric(url, "chunkattn_kv_bytes_budget") > lowest, "the budget to rise")
    server.terminate()
    assert server.wait(LIMIT_S) == 0 and server.stderr.read() == ""


def test_no_file_of_memory_pressure(start, tmp_path):
    server = start("--port", "0", "--memory-pressure", str(tmp_path / "none"))
    assert server.wait(LIMIT_S) == 1
    assert f"--memory-pressure: cannot read stalls of memory from {tmp_path}/none: No such file or directory" in server.stderr.read()


# ---- Many connections ----

UNFINISHED = [  # what clients send before they stop: nothing, parts of a head, a part of a body
    b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
    b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"prompt": "a',
    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{\"prompt",
]


def limited_files(soft, hard):
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))}


def connect_many(url, n, leave=False):
    """n clients that send a part of a request. With `leave`, each closes its connection at once."""
    address = re.search(r"//(.*):(\d+)", url).groups()
    held = []
    for i in range(n):
        client = socket.create_connection(address, timeout=LIMIT_S)
        client.sendall(UNFINISHED[i % len(UNFINISHED)])
        if leave:
            client.close()
        else:
            held.append(client)
    return held


def first_answer(clients):
    """The answer to one of the clients whose connections are refused. Those that the server closes without an answer were spare."""
    for client in select.select(clients, [], [], LIMIT_S)[0]:
        answer = http.client.HTTPResponse(client)
        with contextlib.suppress(ConnectionResetError):
            answer.begin()
            return answer
    pytest.fail("no connection was refused")


def all_threads_wait(process):
    """Whether no thread runs in any of many looks at them. One that spins is hardly ever found waiting."""
    threads = f"/proc/{process.pid}/task"
    looks = (open(f"{threads}/{thread}/stat").read() for _ in range(50) for thread in os.listdir(threads))
    return all(look.rsplit(")", 1)[1].split()[0] == "S" for look in looks)


def test_it_lives_on_after_more_clients_than_files(start, hold):
    """No thread spins meanwhile, and clients that leave make room before a limit of time does, which is never reached here."""
    server = start("--port", "0", hold=hold, **limited_files(64, 64))
    url, _ = read_hello(server)
    with urllib.request.urlopen(url + "/metrics", timeout=LIMIT_S) as reply:
        assert 0 < int(re.search(r"^chunkattn_http_max_connections\S* (\d+)$", reply.read().decode(), re.M)[1]) < 64
    clients = connect_many(url, 300)
    answer = first_answer(clients)
    assert answer.status == 503 and int(answer.headers["Retry-After"]) > 0
    error = json.load(answer)["error"]
    assert error.keys() == {"message", "type", "param", "code"} and "connections" in error["message"]
    wait_until(lambda: all_threads_wait(server), "all threads to wait")
    with hold("clock", reached=False):
        for client in clients:
            client.close()
        wait_until(lambda: is_healthy(url), "room for a client")


def test_it_lives_on_after_clients_that_leave_at_once(start, hold):
    url, _ = read_hello(start("--port", "0", hold=hold, **limited_files(64, 64)))
    with hold("clock", reached=False):
        connect_many(url, 300, leave=True)
        wait_until(lambda: is_healthy(url), "room for a client")


def test_the_limit_of_files_is_raised(start):
    url, _ = read_hello(start("--port", "0", **limited_files(64, 2048)))
    clients = connect_many(url, 300)
    assert is_healthy(url)
    for client in clients:
        client.close()


def test_too_few_files(start):
    server = start("--port", "0", **limited_files(32, 32))
    assert server.wait(LIMIT_S) == 1
    assert re.search(r"the limit of open files is 32; the server needs at least \d+", server.stderr.read())


def test_sandbox(start, tmp_path):
    """The server works in its sandbox, which all of its threads are in."""
    if ctypes.CDLL(None).syscall(444, None, 0, 1) < 1:  # landlock_create_ruleset: the version of Landlock
        pytest.skip("this system has no Landlock")
    pinned = chat_file(tmp_path / "pinned.jsonl", SYSTEM)
    server = start("--port", "0", "--temperature", "0", "--sandbox", "--host", "localhost", "--pin", pinned)
    url, curl = read_hello(server)
    assert cached_tokens(url)[0] > 200
    for _ in range(2):
        assert_curl_is_answered(url, curl)
    body = json.dumps({"prompt": ["One", "Two"], "max_tokens": 5, "n": 2, "stream": True, "logprobs": 2}).encode()
    with urllib.request.urlopen(url + "/v1/completions", data=body, timeout=LIMIT_S) as reply:
        assert reply.read().endswith(b"data: [DONE]\n\n")
    for path in ("/health", "/metrics", "/v1/models"):
        assert urllib.request.urlopen(url + path, timeout=LIMIT_S).status == 200
    threads = os.listdir(f"/proc/{server.pid}/task")
    assert len(threads) > 4
    for thread in threads:
        with open(f"/proc/{server.pid}/task/{thread}/status") as f:
            status = f.read()
        assert "Seccomp:\t2\n" in status and "NoNewPrivs:\t1\n" in status
    server.send_signal(signal.SIGTERM)
    assert server.wait(LIMIT_S) == 0
    assert server.stderr.read() == ""
