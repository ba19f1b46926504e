"""The server's resident memory. After loading it is that of the packed weights; at its peak it is that of the file, the packed
weights and the K/V budget. 100 MB more are allowed in both."""

import concurrent.futures
import os
import pathlib
import re
import socket
import urllib.error
import urllib.parse
import urllib.request

from waiting import LIMIT_S, wait_until

from test_server import serving

KV_BUDGET = 32 << 20  # of which an idle engine makes an eighth resident
ALLOWANCE = 100_000_000


def resident(process, name):
    """VmRSS or VmHWM in bytes."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+) kB", status, re.M)[1]) * 1024


def test_memory(chunkllama_bin, model_path):
    """Packed weights have the size that they have in the file, and the file is read a piece at a time."""
    file_bytes = os.path.getsize(model_path)
    with serving(chunkllama_bin, model_path, "--kv-budget", str(KV_BUDGET)) as server:
        server.wait_until_idle()
        assert resident(server.process, "VmRSS") <= file_bytes + ALLOWANCE
        assert resident(server.process, "VmHWM") <= file_bytes + ALLOWANCE + 8_000_000  # the largest matrix, while it is packed

        prompts = [f"{i} " + "The tree keeps every prefix once, and each of these is another one. " * 20 for i in range(24)]
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            list(pool.map(lambda prompt: server.complete(prompt, max_tokens=16), prompts))
        most = resident(server.process, "VmHWM")
        print(f"{most / 1e6:.0f} MB at most; the file has {file_bytes / 1e6:.0f} MB")
        assert file_bytes < most <= 2 * file_bytes + KV_BUDGET + ALLOWANCE


def post_values(server, value, n):
    """The status of a request with an unknown field of n values."""
    values = ",".join([value] * n)
    body = f'{{"prompt":"a","max_tokens":1,"x":[{values}]}}'.encode()
    try:
        with urllib.request.urlopen(server.url + "/v1/completions", body, timeout=LIMIT_S) as reply:
            return reply.status
    except urllib.error.HTTPError as refused:
        return refused.code


def test_a_large_body_leaves_nothing_behind(chunkllama_bin, model_path):
    """The JSON of this body takes 80 MB, twenty times its bytes; the memory is returned to the system once it has been read."""
    with serving(chunkllama_bin, model_path, "--kv-budget", str(KV_BUDGET)) as server:
        server.complete(max_tokens=1)
        before = resident(server.process, "VmRSS")
        assert post_values(server, "1", 2_000_000) == 200
        assert resident(server.process, "VmHWM") >= before + 60_000_000
        wait_until(lambda: resident(server.process, "VmRSS") <= before + 20_000_000, "the memory to return")


def send_unfinished(server, size):
    """A connection with a body of which all but one byte were sent."""
    address = urllib.parse.urlsplit(server.url)
    connection = socket.create_connection((address.hostname, address.port), LIMIT_S)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
    connection.sendall(b" " * (size - 1))
    return connection


def held(server):
    """The bytes of requests that the server counts."""
    with urllib.request.urlopen(server.url + "/metrics", timeout=LIMIT_S) as reply:
        return float(re.search(r"^chunkattn_request_memory_bytes\{.*\} (\S+)$", reply.read().decode(), re.M)[1])


def test_unfinished_bodies_are_bounded(chunkllama_bin, model_path):
    """Twenty bodies of 16 MB arrive but for a byte, of which only those are kept that --request-memory allows."""
    limit, n = 64 << 20, 20
    with serving(chunkllama_bin, model_path, "--kv-budget", str(KV_BUDGET), "--request-memory", str(limit)) as server:
        server.complete(max_tokens=1)
        before = resident(server.process, "VmHWM")
        connections = [send_unfinished(server, 16_000_000) for _ in range(n)]
        wait_until(lambda: held(server) >= 15_000_000, "the first body to be read")
        assert held(server) <= limit / 2
        assert resident(server.process, "VmHWM") <= before + limit / 2 + n * (64 << 10) + 30_000_000
        server.complete(max_tokens=1)
        for connection in connections:
            connection.close()
        wait_until(lambda: held(server) == 0, "the bodies to be freed")


def test_a_body_of_too_many_values_is_not_built(chunkllama_bin, model_path):
    """Its JSON would take 600 MB; the body itself has 15 MB."""
    with serving(chunkllama_bin, model_path, "--kv-budget", str(KV_BUDGET)) as server:
        server.complete(max_tokens=1)
        before = resident(server.process, "VmRSS")
        assert post_values(server, "[]", 5_000_000) == 400
        assert resident(server.process, "VmHWM") <= before + 60_000_000
        wait_until(lambda: resident(server.process, "VmRSS") <= before + 20_000_000, "the memory to return")
