"""`chunkllama serve`: the command that it prints works, and signals end it."""
import json
import os
import random
import re
import signal
import subprocess
import time
import urllib.request

import pytest


@pytest.fixture
def start(chunkllama_bin, model_path):
    running = []

    def run(*args):
        process = subprocess.Popen([chunkllama_bin, "serve", "-m", model_path, *args], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
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


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_serve(start, end):
    server = start("--port", "0", "--temperature", "0")
    url, curl = read_hello(server)
    answer = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=120)
    assert len(json.loads(answer.stdout)["choices"][0]["message"]["content"]) > 40
    assert subprocess.run(["curl", "-sf", url + "/health"], timeout=60).returncode == 0
    server.send_signal(end)
    assert server.wait(timeout=20) == 0
    assert server.stdout.read() == "\nThe server has stopped.\n" and server.stderr.read() == ""


def test_name_that_is_not_utf8(start, model_path, tmp_path):
    """A path may have any bytes; the name in JSON is made UTF-8."""
    path = os.fsencode(tmp_path) + b"/mod\xe9le.gguf"
    os.symlink(model_path, path)
    url, _ = read_hello(start("--port", "0", "-m", path))
    with urllib.request.urlopen(url + "/v1/models", timeout=60) as reply:
        assert json.load(reply)["data"][0]["id"] == "mod\ufffdle"
    with urllib.request.urlopen(url + "/v1/completions", b'{"prompt": "a", "max_tokens": 1}', timeout=60) as reply:
        assert json.load(reply)["model"] == "mod\ufffdle"


def test_chats_without_max_tokens(start):
    url, _ = read_hello(start("--port", "0", "--max-tokens", "3", "--temperature", "0"))
    for fields, tokens in (({}, 3), ({"max_tokens": 5}, 5)):
        body = {"messages": [{"role": "user", "content": "Count to a hundred."}], **fields}
        request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == tokens


def test_a_signal_ends_it_while_it_loads(start, tmp_path):
    """Loading never ends here: the model is a pipe without a writer."""
    os.mkfifo(tmp_path / "model")
    server = start("--port", "0", "-m", str(tmp_path / "model"))
    deadline = time.monotonic() + 60
    while not re.search(r"SigBlk:\s*0*4002$", open(f"/proc/{server.pid}/status").read(), re.M):  # SIGINT and SIGTERM are blocked
        assert time.monotonic() < deadline and server.poll() is None
        time.sleep(0.01)
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=20) == 128 + signal.SIGTERM
    assert server.stdout.read() == server.stderr.read() == ""


def test_standard_files_may_be_closed(chunkllama_bin, model_path, tmp_path):
    """What the program prints is not written to a file that was opened in place of a closed one."""
    (tmp_path / "in").write_text('{"prompt": "a", "max_tokens": 1}\n')
    command = [chunkllama_bin, "batch", "-m", model_path, "-i", tmp_path / "in", "-o", tmp_path / "out"]
    subprocess.run(["bash", "-c", '"$@" <&- >&- 2>&-', "-", *command], check=True, timeout=60)
    assert [json.loads(line)["id"] for line in open(tmp_path / "out")] == [1]
    port = str(random.randrange(20000, 30000))  # outside the range from which the system chooses ports
    serve = ["bash", "-c", 'exec "$@" >&-', "-", chunkllama_bin, "serve", "-m", model_path, "--port", port]
    server = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True)
    try:
        while True:
            assert server.poll() is None, server.stderr.read()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60).close()
                break
            except OSError:
                time.sleep(0.05)
    finally:
        server.terminate()
    assert server.wait(timeout=20) == 0 and server.stderr.read() == ""


def test_port_in_use(start):
    first = start("--port", "0")
    port = read_hello(first)[0].rsplit(":", 1)[1]
    second = start("--port", port)
    assert second.wait(timeout=60) == 1
    message = second.stderr.read()
    assert message.startswith("chunkllama serve: ") and port in message
