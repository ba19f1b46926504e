"""How clients reach `chunkllama serve`, and with which rights: API keys that change while it runs, quotas, Unix sockets, and TLS."""
import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import socket
import ssl
import stat
import subprocess
import threading
import urllib.error
import urllib.request

import httpx
import openai
import pytest
from waiting import LIMIT_S, wait_until

from test_drain import can_sandbox, read_line
from test_serve import hold  # noqa: F401 (a fixture)

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
            with urllib.request.urlopen(self.request(key, path, **body), timeout=LIMIT_S) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    def assert_command_works(self):
        """Run the command that was printed, for a shorter answer."""
        text = self.hello + self.process.stdout.readline() + self.process.stdout.readline()
        command = text[text.index("curl"):].replace('"max_tokens": 64', '"max_tokens": 9')
        answer = json.loads(subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=LIMIT_S).stdout)
        assert answer["choices"][0]["message"]["role"] == "assistant" and 1 <= answer["usage"]["completion_tokens"] <= 9

    def hang_up(self, text):
        """Send SIGHUP, and return the line of the log that has this text."""
        self.process.send_signal(signal.SIGHUP)
        return read_line(self, text)

    def end(self):
        self.process.terminate()
        assert self.process.wait(timeout=LIMIT_S) == 0


@pytest.fixture
def serve(bin_dir, model_path):
    with contextlib.ExitStack() as servers:

        def start(*args, hold=None, **more):
            """Start a server; with a Hold, one that it can hold."""
            program = bin_dir / ("chunkllama_held" if hold else "chunkllama")
            command = [program, "serve", "-m", model_path, "--kv-budget", "2G", "--temperature", "0", "--shutdown-timeout", str(LIMIT_S), *args]
            more |= {"env": hold.env} if hold else {}
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
            servers.enter_context(process)
            servers.callback(process.kill)
            return Server(process)

        yield start


# ---- API keys ----


def test_keys_are_read_again(serve, hold, tmp_path):
    """New keys count at once, removed ones no more; what runs goes on; a wrong file changes nothing; tenants keep what they share."""
    path = tmp_path / "keys"
    path.write_text(KEYS)
    server = serve("--port", "0", "--api-keys", path, "--api-key", "key-0", hold=hold)
    prompt = list(range(1000, 1100))

    def cached(key):
        with urllib.request.urlopen(server.request(key, prompt=prompt, max_tokens=1), timeout=LIMIT_S) as reply:
            return json.load(reply)["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert [cached("key-a"), cached("key-a"), cached("key-b")] == [0, 98, 0]
    ask = {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True, "stream": True}
    with hold("step", reached=False):
        stream = urllib.request.urlopen(server.request("key-b", **ask), timeout=LIMIT_S)  # which has been accepted then
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
    with stream:
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
    """Without the right to open files, what is written into the file is read, and the log says that another file of the name is not."""
    if not can_sandbox():
        pytest.skip("this system has no Landlock")
    path = tmp_path / "keys"
    path.write_text(KEYS)
    server = serve("--port", "0", "--api-keys", path, "--sandbox")
    path.write_text("key-e\n")
    assert "keys=1" in server.hang_up("API keys were read again")
    assert [server.status(key) for key in ("key-a", "key-e")] == [401, 200]
    os.rename(path, tmp_path / "old")
    path.write_text(KEYS)
    assert "nothing was written into it since it was read" in server.hang_up("a file was not read again")
    (tmp_path / "old").unlink()
    assert "was replaced by another file" in server.hang_up("API keys stay as they were")
    assert [server.status(key) for key in ("key-a", "key-e")] == [401, 200]
    server.end()


# ---- Quotas ----


def test_quotas(serve, hold, tmp_path):
    """A tenant beyond its quota gets status 429, and OpenAI's headers say how much is left; clients that follow Retry-After succeed;
    nobody else is disturbed; SIGHUP applies other limits, under which what was used still counts. Nothing is given back while the
    clock stands still."""
    path = tmp_path / "keys"
    path.write_text("alice key-a requests_per_minute=4\nbob key-b 2 tokens_per_minute=120\ndefault key-d\n")
    server = serve("--port", "0", "--api-keys", path, hold=hold)

    def client_of(key, **more):
        return openai.OpenAI(base_url=server.url + "/v1", api_key=key, **{"max_retries": 0, **more})

    alice, bob, other = client_of("key-a"), client_of("key-b"), client_of("key-d")
    model = other.models.list().data[0].id
    ask = {"model": model, "prompt": "Once", "max_tokens": 1}

    def headers(reply):
        return {name: value for name, value in reply.headers.items() if name.startswith("x-ratelimit-")}

    with hold("clock", reached=False):
        for left in (3, 2, 1):
            got = headers(alice.completions.with_raw_response.create(**ask, stream=left == 2))
            assert got.keys() == {f"x-ratelimit-{part}-requests" for part in ("limit", "remaining", "reset")}
            assert got["x-ratelimit-limit-requests"] == "4" and got["x-ratelimit-remaining-requests"] == str(left)
            assert float(got["x-ratelimit-reset-requests"].removesuffix("s")) == 15 * (4 - left)
        assert headers(alice.embeddings.with_raw_response.create(model=model, input="a"))["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(openai.RateLimitError) as caught:
            alice.chat.completions.create(model=model, messages=[{"role": "user", "content": "a"}])
        error, reply = caught.value, caught.value.response
        assert (error.status_code, error.code, error.type) == (429, "rate_limit_exceeded", "requests")
        assert "the tenant's 4 requests per minute" in error.message and reply.headers["Retry-After"] == "15"
        assert headers(reply)["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(urllib.error.HTTPError) as caught:
            message = {"max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}
            urllib.request.urlopen(server.request("key-a", "/v1/messages", **message), timeout=LIMIT_S)
        assert caught.value.code == 429 and json.load(caught.value)["error"]["type"] == "rate_limit_error"
        assert "tenant=alice" in (line := read_line(server, "endpoint=/v1/messages")) and "error=rate_limit_exceeded" in line
        for free in ("/tokenize", "/v1/completions/render"):
            assert server.status("key-a", free, prompt="a") == 200
        assert server.status("key-a") == 200
        assert headers(other.completions.with_raw_response.create(**ask)) == {}

        long = {**ask, "prompt": list(range(1000, 1110)), "max_tokens": 20}
        got = headers(bob.completions.with_raw_response.create(**long, extra_body={"ignore_eos": True}))
        assert got["x-ratelimit-limit-tokens"] == "120" and got["x-ratelimit-remaining-tokens"] == "10"
        with pytest.raises(openai.RateLimitError) as caught:
            bob.completions.create(**ask)
        assert caught.value.type == "tokens" and caught.value.response.headers["Retry-After"] == "6"  # until 11 have flowed off
        assert headers(caught.value.response)["x-ratelimit-remaining-tokens"] == "0"

        path.write_text("alice key-a requests_per_minute=6\nbob key-b 2 tokens_per_minute=120\ndefault key-d\n")
        server.hang_up("API keys were read again")
        assert headers(alice.completions.with_raw_response.create(**ask))["x-ratelimit-remaining-requests"] == "1"
    assert client_of("key-b", max_retries=3).completions.create(**ask).usage.completion_tokens == 1
    path.write_text("alice key-a\nbob key-b 2\ndefault key-d\n")
    server.hang_up("API keys were read again")
    assert headers(bob.completions.with_raw_response.create(**ask)) == {}
    server.end()


# ---- Unix sockets ----


def unix_client(path):
    """OpenAI's client over a Unix socket."""
    http = httpx.Client(transport=httpx.HTTPTransport(uds=str(path)))
    return openai.OpenAI(base_url="http://localhost/v1", api_key="none", max_retries=0, http_client=http)


def has_tcp_socket(pid):
    inodes = {line.split()[9] for line in open("/proc/net/tcp").readlines()[1:]}
    for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a connection that has just ended
            link = os.readlink(file)
            if link.startswith("socket:[") and link[8:-1] in inodes:
                return True
    return False


def test_unix_socket(serve, hold, chunkllama_bin, model_path, tmp_path):
    """The socket alone: the command that is printed works, the mode is kept, a second server is refused, what a killed one left is
    replaced, and the file goes with its server."""
    path = tmp_path / "a socket"
    server = serve("--unix-socket", path)
    assert server.url is None and f" at {path} (Ctrl-C" in server.hello
    server.assert_command_works()
    assert not has_tcp_socket(server.process.pid)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with unix_client(path) as client:
        model = client.models.list().data[0].id
        ask = {"model": model, "prompt": "a", "max_tokens": 5, "stream": True, "extra_body": {"ignore_eos": True}}
        chunks = list(client.completions.create(**ask))
        assert chunks[-1].choices[0].finish_reason == "length"
    command = [chunkllama_bin, "serve", "-m", model_path, "--uds", path]
    second = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert second.returncode == 1
    assert second.stderr == (f"chunkllama serve: --unix-socket: another server listens on {path}; end that server, or choose "
                             "another path\n")
    server.process.kill()
    server.process.wait()
    assert path.exists()
    both = serve("--unix-socket", path, "--unix-socket-mode", "660", "--port", "0", hold=hold)
    assert f" and {path} (Ctrl-C" in both.hello and both.status("none") == 200 and has_tcp_socket(both.process.pid)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with unix_client(path) as client:
        with hold("step", reached=False), hold("clock", reached=False):
            stream = client.completions.create(**ask)
            both.process.terminate()  # streams end before the server, as on a port
            wait_until(lambda: both.status("none", "/readyz") == 503, "the server to shut down")
        assert list(stream)[-1].choices[0].finish_reason == "length"
    assert both.process.wait(timeout=LIMIT_S) == 0 and not path.exists()


def test_files_in_the_place_of_a_unix_socket(serve, chunkllama_bin, model_path, tmp_path):
    """A server replaces and removes no file but a socket that nobody listens on, and its own."""
    (tmp_path / "file").touch()
    for path, message in ((tmp_path / "file", f"{tmp_path}/file is there and is no socket; choose another path"),
                          (tmp_path / "none" / "socket", "No such file or directory; name a file in a folder"),
                          (tmp_path / ("a" * 108), f"the path has {len(str(tmp_path)) + 109} bytes; it must have 1 to 107")):
        run = subprocess.run([chunkllama_bin, "serve", "-m", model_path, "--unix-socket", path], capture_output=True, text=True,
                             timeout=LIMIT_S)
        assert run.returncode == 1 and message in run.stderr
    assert (tmp_path / "file").exists()
    path = tmp_path / "socket"
    server = serve("--unix-socket", path)
    path.rename(tmp_path / "moved")
    with socket.socket(socket.AF_UNIX) as another:
        another.bind(str(path))
        server.end()
        assert path.exists()


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


# ---- The page ----


def test_browsers_get_the_page(serve):
    """At /, without the key that the API needs; other clients get the list of endpoints. A file that has not changed is not sent."""
    url = serve("--port", "0", "--api-key", "secret").url

    def get(path, **headers):
        return httpx.get(url + path, headers=headers, timeout=LIMIT_S)

    page = get("/", accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert page.text.startswith("<!DOCTYPE html>") and "web/app.js" in page.text
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
    expected = {"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff", "Vary": "Accept",
                "Cache-Control": "no-cache"}
    assert expected.items() <= {name.title(): value for name, value in page.headers.items()}.items()
    listed = get("/", accept="*/*")
    assert listed.headers["Content-Type"].startswith("text/plain") and "GET /web/ID\n" in listed.text
    for path, kind, text in (("/web/app.js", "text/javascript; charset=utf-8", "start_chat"),
                             ("/web/style.css", "text/css; charset=utf-8", "--accent"), ("/web/icon.svg", "image/svg+xml", "<svg")):
        file = get(path)
        assert (file.status_code, file.headers["Content-Type"]) == (200, kind) and text in file.text
        again = get(path, **{"If-None-Match": file.headers["ETag"]})
        assert again.status_code == 304 and again.text == ""
        assert get(path, **{"If-None-Match": '"another"'}).status_code == 200
    for path in ("/web/index.html", "/web/%2e%2e/server/openapi.json"):
        assert get(path).status_code == 404


# ---- TLS ----


def make_certificate(folder, name="server"):
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "9",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    return [make_certificate(folder, name) for name in ("first", "second")]


def address_of(url):
    host, port = re.search(r"//(.*):(\d+)", url).groups()
    return host, int(port)


def connect_tls(address, cafile):
    context = ssl.create_default_context(cafile=cafile)
    return context.wrap_socket(socket.create_connection(address, timeout=LIMIT_S), server_hostname=address[0])


def ask(connection, path):
    """The status of an answer on an open connection, and its whole text."""
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    text = ""
    while "\r\n\r\n" not in text or len(text.partition("\r\n\r\n")[2]) < int(re.search(r"Content-Length: (\d+)", text)[1]):
        piece = connection.recv(65536).decode()
        assert piece, text
        text += piece
    return int(text.split()[1]), text


def common_name(address, cafile):
    with connect_tls(address, cafile) as connection:
        return dict(pair for (pair,) in connection.getpeercert()["subject"])["commonName"]


def s_client(url, cafile, *args):
    command = ["openssl", "s_client", "-connect", ":".join(map(str, address_of(url))), "-CAfile", cafile, "-verify_return_error", *args]
    request = "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    return subprocess.run([*command, "-ign_eof"], input=request, capture_output=True, text=True, timeout=LIMIT_S)


def test_tls(serve, certificates, tmp_path):
    """OpenAI's client, curl and openssl over TLS, in the sandbox where there is one; what is no TLS disturbs nothing; a renewed
    certificate is used from SIGHUP on; the Unix socket is not encrypted."""
    (cert, key), (new_cert, new_key) = certificates
    used_cert, used_key, unix = tmp_path / "cert", tmp_path / "key", tmp_path / "socket"
    used_cert.write_text(cert.read_text())
    used_key.write_text(key.read_text())
    server = serve("--port", "0", "--ssl-certfile", used_cert, "--ssl-key-file", used_key, "--unix-socket", unix, *["--sandbox"] * can_sandbox())
    assert server.url.startswith("https://") and " TLS certificate=" in read_line(server, " TLS ")
    address = address_of(server.url)
    server.assert_command_works()
    for version, works in {"-tls1_3": True, "-tls1_2": True, "-tls1_1": False}.items():
        seen = s_client(server.url, cert, version, "-cipher", "DEFAULT@SECLEVEL=0")
        assert ("HTTP/1.1 200 OK" in seen.stdout and "Verify return code: 0 (ok)" in seen.stdout) == works, (version, seen)
    http = httpx.Client(verify=ssl.create_default_context(cafile=cert))
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, http_client=http) as client, unix_client(unix) as local:
        model = client.models.list().data[0].id
        fields = {"model": model, "prompt": "Once", "max_tokens": 60, "extra_body": {"ignore_eos": True}}
        stream = client.completions.create(stream=True, **fields)
        first = next(iter(stream)).choices[0].text
        with socket.create_connection(address, timeout=LIMIT_S) as plain:
            plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                assert b"HTTP" not in plain.recv(4096)
            except ConnectionResetError:
                pass
        with pytest.raises(ssl.SSLError):
            connect_tls(address, new_cert)  # another authority: the client ends the handshake
        assert first + "".join(chunk.choices[0].text for chunk in stream) == local.completions.create(**fields).choices[0].text
        long = client.completions.create(model=model, prompt="a", max_tokens=1, user="x" * 1_000_000)  # a body of many records
        assert long.usage.completion_tokens == 1
        with connect_tls(address, cert) as odd:  # a chunk's size that ends with LF alone
            odd.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
                        b'1d\n{"prompt":"a","max_tokens":1}\r\n0\r\n\r\n')  # fmt: skip
            assert odd.recv(4096).startswith(b"HTTP/1.1 400")
        with connect_tls(address, cert) as old:
            assert ask(old, "/livez")[0] == 200
            used_key.write_text(new_key.read_text())
            assert f"--tls-key: {used_key}: the key does not belong to the certificate" in server.hang_up("certificate stays")
            assert common_name(address, cert) == "first"
            used_cert.write_text(new_cert.read_text())
            assert "days_left=8" in server.hang_up("certificate was read again")
            assert common_name(address, new_cert) == "second" and ask(old, "/livez")[0] == 200
    server.end()


def test_a_signal_for_the_keys_alone(serve, certificates, tmp_path):
    """In the sandbox, where a file that was not written may have been replaced, nothing is said of the certificate then."""
    if not can_sandbox():
        pytest.skip("this system has no Landlock")
    cert, key = certificates[0]
    (tmp_path / "keys").write_text("key-a\n")
    server = serve("--port", "0", "--tls-cert", cert, "--tls-key", key, "--api-keys", tmp_path / "keys", "--sandbox")
    (tmp_path / "keys").write_text("key-b\n")
    server.hang_up("API keys were read again")
    assert cert.name not in server.hang_up("a file was not read again")  # of the second signal: the keys
    assert cert.name in server.stderr.readline()
    server.end()


def test_tls_beyond_the_limit(serve, hold, certificates):
    """Where all connections are taken, /health is answered over TLS, other requests get status 503, and beyond the spare connections
    a client learns that there is none for it: all while the clock stands still, so that no connection ends by a limit of time."""
    cert, key = certificates[0]
    server = serve("--port", "0", "--tls-cert", cert, "--tls-key", key, "--log-level", "warn", hold=hold,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90)))
    address = address_of(server.url)
    with hold("clock", reached=False), contextlib.ExitStack() as stack:
        held, status = [], 200
        while status == 200:
            held.append(stack.enter_context(connect_tls(address, cert)))
            status, text = ask(held[-1], "/v1/models")
        assert 10 < len(held) < 80 and status == 503 and "Retry-After: 1" in text and f"holds {len(held) - 1} connections" in text
        for path, expected in {"/health": 200, "/metrics": 200, "/v1/models": 503}.items():
            with connect_tls(address, cert) as spare:
                assert ask(spare, path)[0] == expected
        with pytest.raises((ssl.SSLError, ConnectionError)):
            for _ in range(20):
                stack.enter_context(connect_tls(address, cert))
        assert "too_many_connections" in read_line(server, "connection status=503")
        held.pop(0).close()

        def has_room():
            with contextlib.suppress(ssl.SSLError, ConnectionError), connect_tls(address, cert) as again:
                return ask(again, "/v1/models")[0] == 200

        wait_until(has_room, "the place of the client that left")
    server.end()


def test_wrong_certificates(chunkllama_bin, certificates, tmp_path):
    """Each is refused when the server starts, in one line that names the option and the fix."""
    (cert, key), (_, other_key) = certificates
    locked = tmp_path / "locked.key"
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked], check=True)
    missing = tmp_path / "missing"
    cases = {
        (cert, None): "--tls-cert and --tls-key belong together; set --tls-key, too",
        (None, key): "--tls-cert and --tls-key belong together; set --tls-cert, too",
        (cert, other_key): f"--tls-key: {other_key}: the key does not belong to the certificate in {cert}; name the key with which",
        (key, key): f"--tls-cert: {key}: ",
        (cert, cert): f"--tls-key: {cert}: ",
        (cert, locked): f"--tls-key: {locked}: the key is encrypted; write one without a password by 'openssl pkey -in FILE",
        (missing, key): f"--tls-cert: cannot open {missing}: No such file or directory",
        (cert, tmp_path): f"--tls-key: cannot read {tmp_path}: Is a directory",
    }
    for (cert_file, key_file), expected in cases.items():
        options = [word for name, file in (("--tls-cert", cert_file), ("--tls-key", key_file)) if file for word in (name, file)]
        run = subprocess.run([chunkllama_bin, "serve", "-m", "none", *options], capture_output=True, text=True, timeout=LIMIT_S)
        assert run.returncode == 1 and run.stderr.startswith("chunkllama serve: " + expected), (expected, run.stderr)
        assert run.stderr.count("\n") == 1
    for more, expected in {
        ("--unix-socket", tmp_path / "socket"): "--tls-cert encrypts connections to a port, and with --unix-socket there is none; set",
        ("--unix-socket-mode", "rw"): "--unix-socket-mode is 'rw'; it must be an octal number up to 777, such as 660",
        ("--ssl-keyfile-password", "x"): "--ssl-keyfile-password: write a key without a password by 'openssl pkey",
    }.items():
        command = [chunkllama_bin, "serve", "-m", "none", "--tls-cert", cert, "--tls-key", key, *more]
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        assert run.returncode > 0 and run.stderr.startswith("chunkllama serve: " + expected), (expected, run.stderr)
