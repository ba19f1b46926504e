"""The server's resident memory. After loading it is that of the packed weights; at its peak it is that of the file, the packed
weights and the K/V budget. 100 MB more are allowed in both."""

import concurrent.futures
import os
import pathlib
import re
import urllib.error
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


def test_a_body_of_too_many_values_is_not_built(chunkllama_bin, model_path):
    """Its JSON would take 600 MB; the body itself has 15 MB."""
    with serving(chunkllama_bin, model_path, "--kv-budget", str(KV_BUDGET)) as server:
        server.complete(max_tokens=1)
        before = resident(server.process, "VmRSS")
        assert post_values(server, "[]", 5_000_000) == 400
        assert resident(server.process, "VmHWM") <= before + 60_000_000
        wait_until(lambda: resident(server.process, "VmRSS") <= before + 20_000_000, "the memory to return")
