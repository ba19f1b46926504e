"""How clients reach `chunkllama serve`, and with which rights: API keys that change while it runs, and Unix sockets."""
import contextlib
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import threading
import urllib.error
import urllib.request

import httpx
import openai
import pytest

from test_drain import can_sandbox, read_line

KEYS = "alice key-a 2\nbob key-b\ndefault key-d\n"


class Server:
    """A server that was started with these arguments, and what it has printed."""

    def __init__(self, process):
        self.process, self.hello = process, ""
        self.stderr = process.stderr
        while "curl" not in self.hello:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            self.hello += line
        found = re.search(r"at (https?://[^ ]+)", self.hello)
        self.url = found and found[1]

    def request(self, key, path="/v1/completions", **body):
        data = json.dumps(body).encode() if body else None
        return urllib.request.Request(self.url + path, data, {"Authorization": f"Bearer {key}"})

    def status(self, key, path="/v1/models", **body):
        try:
            with urllib.request.urlopen(self.request(key, path, **body), timeout=60) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    def hang_up(self, text):
        """Send SIGHUP, and return the line of the log that has this text."""
        self.process.send_signal(signal.SIGHUP)
        return read_line(self, text)

    def end(self):
        self.process.terminate()
        assert self.process.wait(timeout=60) == 0


@pytest.fixture
def serve(chunkllama_bin, model_path):
    with contextlib.ExitStack() as servers:

        def start(*args):
            command = [chunkllama_bin, "serve", "-m", model_path, "--temperature", "0", *args]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            servers.enter_context(process)
            servers.callback(process.kill)
            return Server(process)

        yield start


# ---- API keys ----


def test_keys_are_read_again(serve, tmp_path):
    """New keys count at once, removed ones no more; what runs goes on; a wrong file changes nothing; tenants keep what they share."""
    path = tmp_path / "keys"
    path.write_text(KEYS)
    server = serve("--port", "0", "--api-keys", path, "--api-key", "key-0")
    prompt = list(range(1000, 1100))

    def cached(key):
        with urllib.request.urlopen(server.request(key, prompt=prompt, max_tokens=1), timeout=60) as reply:
            return json.load(reply)["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert [cached("key-a"), cached("key-a"), cached("key-b")] == [0, 98, 0]
    ask = {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True, "stream": True}
    with urllib.request.urlopen(server.request("key-b", **ask), timeout=60) as stream:
        assert stream.readline().startswith(b"data: ")
        (tmp_path / "new").write_text("carol key-c\nalice key-a2 2\n")
        os.rename(tmp_path / "new", path)  # as an editor does
        assert server.hang_up("API keys").endswith(" info  SIGHUP: the API keys were read again keys=3\n")
        keys = ("key-0", "key-a", "key-a2", "key-b", "key-c", "key-d")
        assert [server.status(key) for key in keys] == [200, 401, 200, 401, 200, 401]
        assert [server.status(key, "/metrics") for key in ("key-0", "key-c", "key-d")] == [200, 403, 401]
        path.write_text("carol key-e\nbob key-secret 1 2 3\n")
        line = server.hang_up("API keys")
        assert f"error SIGHUP: the API keys stay as they were reason=\"--api-keys: {path}, line 2: there are more than" in line
        assert "key-" not in line.replace("--api-keys", "")
        assert [server.status(key) for key in (*keys, "key-e")] == [200, 401, 200, 401, 200, 401, 401]
        events = stream.read().decode().split("\n\n")
        assert events[-2] == "data: [DONE]" and '"finish_reason":"length"' in events[-3].replace(" ", "")
    assert [cached("key-a2"), cached("key-c")] == [98, 0]
    path.unlink()
    assert "No such file" in server.hang_up("API keys stay")
    path.write_text("alice key-a 3\n")
    assert "restart the server" in server.hang_up("weights stay as they were")
    assert [server.status(key) for key in keys] == [200, 200, 401, 401, 401, 401]
    server.end()


def test_keys_change_while_clients_call(serve, tmp_path):
    """No request with a key that stays is refused, and nothing is lost, however often keys are read again."""
    path = tmp_path / "keys"
    path.write_text(KEYS)
    server = serve("--port", "0", "--api-keys", path)
    seen, done = [], threading.Event()

    def call():
        while not done.is_set():
            seen.append(server.status("key-a"))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(20):
        path.write_text(f"alice key-a 2\nother-{i} key-{i}\n")
        server.hang_up("API keys were read again")
        assert server.status(f"key-{i}") == 200 and server.status(f"key-{i - 1}") == 401
    done.set()
    for thread in threads:
        thread.join()
    assert set(seen) == {200}
    server.end()


def test_keys_in_the_sandbox(serve, tmp_path):
    """Without the right to open files, what is written into the file is read; another file of the name is an error that says so."""
    if not can_sandbox():
        pytest.skip("this system has no Landlock")
    path = tmp_path / "keys"
    path.write_text(KEYS)
    server = serve("--port", "0", "--api-keys", path, "--sandbox")
    path.write_text("key-e\n")
    assert "keys=1" in server.hang_up("API keys were read again")
    assert [server.status(key) for key in ("key-a", "key-e")] == [401, 200]
    (tmp_path / "new").write_text(KEYS)
    os.rename(tmp_path / "new", path)
    assert "was replaced by another file" in server.hang_up("API keys stay as they were")
    assert [server.status(key) for key in ("key-a", "key-e")] == [401, 200]
    server.end()


# ---- Unix sockets ----


def unix_client(path):
    """OpenAI's client over a Unix socket."""
    http = httpx.Client(transport=httpx.HTTPTransport(uds=str(path)))
    return openai.OpenAI(base_url="http://localhost/v1", api_key="none", max_retries=0, http_client=http)


def has_tcp_socket(pid):
    inodes = {line.split()[9] for line in open("/proc/net/tcp").readlines()[1:]}
    links = [os.readlink(file) for file in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
    return any(link.startswith("socket:[") and link[8:-1] in inodes for link in links)


def test_unix_socket(serve, chunkllama_bin, model_path, tmp_path):
    """The socket alone: the command that is printed works, the mode is kept, a second server is refused, what a killed one left is
    replaced, and the file goes with its server."""
    path = tmp_path / "a socket"
    server = serve("--unix-socket", path)
    assert server.url is None and f" at {path} (Ctrl-C" in server.hello
    rest = "".join(server.process.stdout.readline() for _ in range(2))
    command = (server.hello + rest)[(server.hello + rest).index("curl"):]
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert len(json.loads(answer.stdout)["choices"][0]["message"]["content"]) > 40
    assert not has_tcp_socket(server.process.pid)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with unix_client(path) as client:
        chunks = list(client.completions.create(model=client.models.list().data[0].id, prompt="a", max_tokens=5, stream=True))
        assert chunks[-1].choices[0].finish_reason == "length"
    second = subprocess.run([chunkllama_bin, "serve", "-m", model_path, "--uds", path], capture_output=True, text=True, timeout=60)
    assert second.returncode == 1
    assert second.stderr == (f"chunkllama serve: --unix-socket: another server listens on {path}; end that server, or choose "
                             "another path\n")
    server.process.kill()
    server.process.wait()
    assert path.exists()
    both = serve("--unix-socket", path, "--unix-socket-mode", "660", "--port", "0")
    assert f" and {path} (Ctrl-C" in both.hello and both.status("none") == 200 and has_tcp_socket(both.process.pid)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with unix_client(path) as client:
        model = client.models.list().data[0].id
        stream = client.completions.create(model=model, prompt="Once", max_tokens=100, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        both.process.terminate()  # streams end before the server, as on a port
        assert list(stream)[-1].choices[0].finish_reason == "length"
    assert both.process.wait(timeout=60) == 0 and not path.exists()


def test_unix_socket_in_the_sandbox(serve, tmp_path):
    """It is made before the sandbox, which does not let the server remove it; the next server replaces it."""
    if not can_sandbox():
        pytest.skip("this system has no Landlock")
    path = tmp_path / "socket"
    for _ in range(2):
        server = serve("--unix-socket", path, "--sandbox")
        with unix_client(path) as client:
            assert len(client.models.list().data) == 1
        server.end()
        assert path.exists()
