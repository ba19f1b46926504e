"""`chunkllama serve` as a service: what it reports to the service manager, from its start to its end."""
import os
import re
import signal
import socket
import time

import pytest

from test_drain import can_sandbox, get, read_line
from test_serve import endless, read_hello, start  # noqa: F401 (start is a fixture)
from waiting import LIMIT_S


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """A socket as a service manager has it, and its name for NOTIFY_SOCKET."""
    name = f"@chunkllama-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as messages:
        messages.bind(name.replace("@", "\0"))
        messages.settimeout(LIMIT_S)
        yield messages, name


def next_message(messages):
    return dict(line.split("=", 1) for line in messages.recv(4096).decode().split("\n"))


def environment(name):
    return {**os.environ, "NOTIFY_SOCKET": name}


def test_a_service_reports_its_state(start, manager, tmp_path):
    """Also in the sandbox, in which no further socket can be made."""
    messages, name = manager
    sandbox = ["--sandbox"] * (name[0] == "/" and can_sandbox())
    server = start("--port", "0", "--shutdown-timeout", "100", *sandbox, log_level="info", env=environment(name))
    assert next_message(messages) == {"STATUS": "Loading the model"}
    assert next_message(messages) == {"READY": "1", "STATUS": "Serving requests"}
    url, _ = read_hello(server)
    assert get(url, "/readyz")[0] == 200

    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    server.send_signal(signal.SIGHUP)
    reloading = next_message(messages)
    assert begin <= int(reloading.pop("MONOTONIC_USEC")) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert reloading == {"RELOADING": "1", "STATUS": "Reading files again"}
    assert next_message(messages) == {"READY": "1", "STATUS": "Serving requests"}

    with endless(url):
        server.send_signal(signal.SIGTERM)
        stopping = next_message(messages)
        assert get(url, "/readyz")[0] == 503 and server.poll() is None
        assert 105e6 <= int(stopping.pop("EXTEND_TIMEOUT_USEC")) <= 200e6
        assert stopping == {"STOPPING": "1", "STATUS": "Waiting for requests to end: 1"}
        server.send_signal(signal.SIGHUP)  # does not make it ready again
        read_line(server, "SIGHUP")  # from before
        read_line(server, "SIGHUP")
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT_S) == 128 + signal.SIGTERM
    messages.setblocking(False)
    with pytest.raises(BlockingIOError):
        messages.recv(1)


def test_a_service_that_loads_is_not_ready(start, manager, tmp_path):
    """Loading never ends here: the model is a pipe without a writer."""
    messages, name = manager
    os.mkfifo(tmp_path / "model")
    server = start("--port", "0", "-m", str(tmp_path / "model"), env=environment(name))
    assert next_message(messages) == {"STATUS": "Loading the model"}
    server.terminate()
    assert server.wait(LIMIT_S) == 128 + signal.SIGTERM
    messages.setblocking(False)
    with pytest.raises(BlockingIOError):
        messages.recv(1)


def test_a_manager_that_is_gone_is_only_a_warning(start, tmp_path):
    server = start("--port", "0", log_level="warn", env=environment(str(tmp_path / "gone")))
    url, _ = read_hello(server)
    assert re.search(r'reason="No such file or directory" fix="unset NOTIFY_SOCKET', read_line(server, "service manager"))
    assert get(url, "/readyz")[0] == 200
    server.terminate()
    assert server.wait(LIMIT_S) == 0
