"""`chunkllama serve` under signals and with many connections: SIGTERM lets requests end, and the server's health can always be asked."""
import concurrent.futures
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import pty
import re
import resource
import signal
import socket
import subprocess

import openai
import pytest
from waiting import LIMIT_S, wait_until

from test_files import completions, wait_for
from test_files import begin as begin_batch
from test_serve import endless, hold, is_healthy, metric, post, read_hello, start  # noqa: F401 (two are fixtures)

ENDLESS = {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "stream": True}


def connect(url):
    return http.client.HTTPConnection(*re.search(r"//(.*):(\d+)", url).groups(), timeout=LIMIT_S)


def get(url, path):
    """The status, the headers and the body of an answer on a connection of its own."""
    connection = connect(url)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read().decode()
    finally:
        connection.close()


def read_stream(url, **body):
    """The events of a stream, up to its end."""
    connection = connect(url)
    connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}))
    events = connection.getresponse().read().decode().split("\n\n")
    connection.close()
    return events


def wait_until_not_ready(url):
    """Wait until the server has seen the signal."""
    wait_until(lambda: get(url, "/readyz")[0] != 200, "the server to shut down")


def wait_for_requests(url, n):
    """Wait until the server has accepted n requests, which wait or run."""
    states = [f"vllm:num_requests_{state}" for state in ("running", "waiting")]
    wait_until(lambda: sum(metric(url, state) for state in states) == n, f"{n} requests")


def read_line(server, text):
    """The next line of the log with this text."""
    for line in server.stderr:
        if text in line:
            return line
    pytest.fail(f"the log has no line with {text!r}")


def landlock_version():
    return ctypes.CDLL(None).syscall(444, None, 0, 1)  # landlock_create_ruleset


def can_sandbox():
    return landlock_version() >= 1


# ---- The end ----


@pytest.mark.parametrize("sandbox", [False, True])
def test_requests_end_before_the_server(start, hold, sandbox):
    """The clock stands still until all has been asked, as new connections that have no request yet soon end then. So does the
    engine, as the requests would end."""
    if sandbox and not can_sandbox():
        pytest.skip("this system has no Landlock")
    server = start("--port", "0", "--shutdown-timeout", str(LIMIT_S), *["--sandbox"] * sandbox, log_level="info", hold=hold)
    url, _ = read_hello(server)
    ask = {"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": True, "temperature": 0}
    idle = socket.create_connection(re.search(r"//(.*):(\d+)", url).groups(), timeout=LIMIT_S)
    idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert idle.recv(12) == b"HTTP/1.1 200"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with hold("step", reached=False):
            streams = [pool.submit(read_stream, url, stream_options={"include_usage": True}, **ask) for _ in range(4)]
            whole = pool.submit(post, url, **ask)
            wait_for_requests(url, 5)
            with hold("clock", reached=False):
                server.send_signal(signal.SIGTERM)
                wait_until_not_ready(url)
                for path, status in {"/readyz": 503, "/health": 503, "/v1/models": 503, "/livez": 200, "/metrics": 200}.items():
                    got, headers, text = get(url, path)
                    assert got == status and headers["Connection"] == "close", (path, got, text)
                    if status == 503:
                        error = json.loads(text)["error"]
                        assert int(headers["Retry-After"]) >= 1 and "shutting down" in error["message"]
                status, headers, _ = post(url, prompt="a", max_tokens=1)
                assert status == 503 and int(headers["Retry-After"]) >= 1
            while idle.recv(4096):  # up to the end
                pass
            log = ""
            while "waiting for requests to end" not in log:
                log += server.stderr.readline()
                assert server.poll() is None
        for stream in streams:
            *_, last, usage, done, rest = stream.result()
            assert done == "data: [DONE]" and rest == ""
            assert json.loads(last.removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
            assert json.loads(usage.removeprefix("data: "))["usage"]["completion_tokens"] == 60
        assert whole.result()[0] == 200 and json.loads(whole.result()[2])["usage"]["completion_tokens"] == 60
    assert server.wait(LIMIT_S) == 0
    assert server.stdout.read() == "\nThe server has stopped.\n"
    log += server.stderr.read()
    # The last request to /metrics has been answered, but may still count.
    assert re.findall(r" info  sandbox landlock_version=(\d+)$", log, re.M) == [str(landlock_version())] * sandbox
    waiting = rf" info  waiting for requests to end; a second signal stops at once requests=[56] seconds_at_most={LIMIT_S - 8}$"
    assert len(re.findall(waiting, log, re.M)) == 1 and "unfinished" not in log
    for method, path in [("GET", "/readyz"), ("GET", "/health"), ("GET", "/v1/models"), ("POST", "/v1/completions")]:
        assert re.search(rf" warn  request .*method={method} endpoint={path} status=503 ", log), path
    assert len(re.findall(r" info  request .* status=200 .* completion_tokens=60 .* finish=length ", log)) == 5


@pytest.mark.parametrize("first, second", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)])
def test_a_second_signal_stops_at_once(start, first, second):
    server = start("--port", "0", "--shutdown-timeout", str(LIMIT_S), log_level="info")
    url, _ = read_hello(server)
    with endless(url) as stream:
        server.send_signal(first)
        assert " requests=1 " in read_line(server, "waiting for requests to end")
        assert stream.readline() and server.poll() is None
        server.send_signal(second)
        *_, error, done, rest = stream.read().decode().split("\n\n")
        assert "the server is shutting down" in json.loads(error.removeprefix("data: "))["error"]["message"]
        assert done == "data: [DONE]" and rest == ""
        assert server.wait(LIMIT_S) == 128 + second
    assert read_line(server, "stopping with unfinished requests").endswith(" requests=1\n")
    assert " finish=stopped " in read_line(server, " request ")  # written before the log ends


HOUR_S = 3600  # by which the clock can be put on


@pytest.mark.parametrize("seconds, lead", [(HOUR_S + 7, "hour"), (0, "second")])
def test_a_request_that_takes_too_long_is_cut(start, hold, seconds, lead):
    """Not before its time, which does not pass while the clock stands still: 8 seconds before the server must end, or at once if
    there is no such time; the server has two seconds then."""
    server = start("--port", "0", "--shutdown-timeout", str(seconds), log_level="info", hold=hold)
    url, _ = read_hello(server)
    with endless(url) as stream:
        with hold("clock", reached=False):
            server.send_signal(signal.SIGTERM)
            wait_until_not_ready(url)
            with hold("step"):
                pass
            assert b"shutting down" not in stream.read1()
            with hold(lead, reached=False):
                assert b"the server is shutting down" in stream.read()
                assert server.wait(LIMIT_S) == 124
    log = server.stderr.read()
    assert log.count(" warn  stopping with unfinished requests requests=1\n") == 1 and "without an orderly end" not in log
    n_waiting = log.count("waiting for requests")
    assert log.count(f" requests=1 seconds_at_most={HOUR_S - 1}\n") == n_waiting <= (seconds > 0)  # it waits 0.1 s without a word


def test_a_batch_continues_after_the_end(start, hold, tmp_path):
    """It keeps nobody waiting: its requests that run when those of clients have ended are computed by the next server."""

    def begin():
        server = start("--port", "0", "--files-dir", str(tmp_path / "f"), "--max-seqs", "4", "--model-name", "*",
                       "--shutdown-timeout", str(LIMIT_S), hold=hold)
        url, _ = read_hello(server)
        return server, url, openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=LIMIT_S)

    server, url, client = begin()
    with hold("step", reached=False):
        batch = begin_batch(client, completions(40, 24))
        hold.wait("step")
        while client.batches.retrieve(batch.id).request_counts.completed < 3:
            hold.next("step")
        stream = client.completions.create(model="m", prompt="Once", max_tokens=60, stream=True, extra_body={"ignore_eos": True})
        server.terminate()
        wait_until_not_ready(url)
    assert list(stream)[-1].choices[0].finish_reason == "length"
    assert server.wait(LIMIT_S) == 0 and server.stderr.read() == ""
    server, _, client = begin()
    found = client.batches.retrieve(batch.id)
    assert found.status == "in_progress" and 3 <= found.request_counts.completed < 40
    batch = wait_for(client, batch)
    assert batch.status == "completed" and batch.request_counts.completed == 40 and batch.error_file_id is None
    records = client.files.content(batch.output_file_id).text.splitlines()
    assert [json.loads(line)["custom_id"] for line in records] == [f"request-{i}" for i in range(40)]
    server.terminate()
    assert server.wait(LIMIT_S) == 0 and server.stderr.read() == ""


LONG = "One sheep, two sheep, three sheep. " * 20  # more than a chunk of K/V
UPLOAD = ('--xyz\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
          '--xyz\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n{}\r\n--xyz--\r\n')
STUCK = {
    "parse": ([], "/v1/completions", "application/json", json.dumps({"prompt": "a", "max_tokens": 1}), "requests|the server's threads"),
    "pwrite": (["--kv-tier", "tier"], "/v1/completions", "application/json", json.dumps({"prompt": LONG, "max_tokens": 1}),
               "the engine and the file of --kv-tier"),
    "fsync": (["--files-dir", "files"], "/v1/files", "multipart/form-data; boundary=xyz", UPLOAD, "requests|the server's threads"),
}


def thread_names(process):
    names = set()
    for comm in pathlib.Path(f"/proc/{process.pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has ended
            names.add(comm.read_text().strip())
    return names


@pytest.mark.parametrize("point", STUCK)
def test_it_ends_whatever_a_thread_waits_for(start, hold, tmp_path, point):
    """A request that is being prepared for ever, or a disk that is stuck. It ends when --shutdown-timeout has passed, not later."""
    more, path, content, body, reason = STUCK[point]
    server = start("--port", "0", "--shutdown-timeout", str(HOUR_S - 1), *more, hold=hold, cwd=tmp_path)
    url, _ = read_hello(server)
    with hold(point, reached=False):
        client = connect(url)
        client.request("POST", path, body, {"Content-Type": content})
        hold.wait(point)
        if point == "pwrite":
            assert client.getresponse().status == 200
        with hold("clock", reached=False):
            server.send_signal(signal.SIGTERM)
            wait_until(lambda: not is_healthy(url), "the server to shut down")
            if point == "pwrite":
                wait_until(lambda: "cl-engine" not in thread_names(server), "the engine's thread to end")
            assert server.poll() is None
            with hold("hour", reached=False):
                assert server.wait(LIMIT_S) == 124
    assert re.search(rf" error stopping without an orderly end, .* waiting_for=\"?({reason})\"?$", server.stderr.read(), re.M)


def test_nobody_reads_what_it_prints(chunkllama_bin, model_path, tmp_path):
    """A pipe that is full keeps the server neither from serving nor from its end; one without a reader does not end it."""
    for full in (True, False):
        reader, writer = os.pipe()
        if full:
            os.set_blocking(writer, False)
            with contextlib.suppress(BlockingIOError):
                while os.write(writer, bytes(4096)):
                    pass
            os.set_blocking(writer, True)
        else:
            os.close(reader)
        command = [chunkllama_bin, "serve", "-m", model_path, "--unix-socket", tmp_path / "socket"]
        server = subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True)
        os.close(writer)
        try:
            read_line(server, " engine ")
            server.send_signal(signal.SIGTERM)
            assert server.wait(LIMIT_S) == 0
        finally:
            server.kill()
            server.communicate()
            if full:
                os.close(reader)


# ---- SIGHUP ----


def test_a_closed_terminal_ends_the_server(chunkllama_bin, model_path, terminals):
    process, terminal = pty.fork()
    if process == 0:
        os.execv(chunkllama_bin, [chunkllama_bin, "serve", "-m", model_path, "--port", "0"])
    text = b""
    while b"Why is the sky" not in text:
        text += os.read(terminal, 4096)
    os.close(terminal)
    assert os.WIFEXITED(os.waitpid(process, 0)[1])  # it ended itself; what it prints at the end goes nowhere


# ---- Connections ----


def resident_bytes(process):
    return int(re.search(r"VmRSS:\s*(\d+)", open(f"/proc/{process.pid}/status").read())[1]) * 1024


@contextlib.contextmanager
def many_files():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_many_connections(start, hold):
    """1,000 that are idle after a request take below 20 MB. When all 1024 are taken, the server says so, and how it is: the clock
    stands still, so that no connection ends. SIGHUP changes nothing. At the end, the idle ones keep nobody waiting."""
    with many_files(), contextlib.ExitStack() as stack:
        # An idle engine makes an eighth of the K/V memory resident, here 2 MB.
        server = start("--port", "0", "--kv-budget", "16M", log_level="warn", hold=hold)
        url, _ = read_hello(server)
        post(url, prompt="a", max_tokens=1)
        address = re.search(r"//(.*):(\d+)", url).groups()

        def connect_idle(n):
            clients = [stack.enter_context(socket.create_connection(address, timeout=LIMIT_S)) for _ in range(n)]
            for client in clients:
                client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Filler: " + b"a" * 500 + b"\r\n\r\n")
            for client in clients:
                assert client.recv(4096).startswith(b"HTTP/1.1 200")
            return clients

        before = resident_bytes(server)
        with hold("clock", reached=False):
            idle = connect_idle(1000)
            grown = resident_bytes(server) - before
            print(f"{grown / 1e6:.1f} MB for 1,000 connections")
            assert grown < 20e6
            idle += connect_idle(24)
            for _ in range(3):
                for path in ("/health", "/readyz", "/livez", "/metrics"):
                    assert get(url, path)[0] == 200
                status, headers, text = post(url, prompt="a", max_tokens=1)
                assert status == 503 and int(headers["Retry-After"]) >= 1
                assert "holds 1024 connections" in json.loads(text)["error"]["message"]
                assert "status=503" in read_line(server, "endpoint=/v1/completions")
            server.send_signal(signal.SIGHUP)
            read_line(server, "SIGHUP: there is no file to read again")
            idle.pop().close()
            wait_until(lambda: post(url, prompt="a", max_tokens=1)[0] == 200, "the place of the client that left")
        server.terminate()
        assert server.wait(LIMIT_S) == 0 and all("status=503" in line for line in server.stderr)
