"""Tenants of `chunkllama serve --api-keys`: who may use what, and that they share neither K/V nor time."""
import contextlib
import json
import re
import subprocess
import urllib.error
import urllib.request

import pytest

KEYS = "# tenants\nalice key-a 2\nbob key-b\nalice key-a2\ndefault key-d\n"


@pytest.fixture
def serve(chunkllama_bin, model_path, tmp_path):
    """Starts a server with these lines of keys and returns its URL; all end with the test."""
    path = tmp_path / "keys"
    with contextlib.ExitStack() as servers:

        def start(*args, keys=KEYS):
            path.write_text(keys)
            command = [chunkllama_bin, "serve", "-m", model_path, "--port", "0", "--temperature", "0", "--api-keys", path, *args]
            server = servers.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            servers.callback(server.kill)
            line = server.stdout.readline()
            assert line, server.stderr.read()
            return re.search(r"at (http://\S+)", line)[1]

        yield start


def request_of(url, key, path="/v1/completions", **body):
    return urllib.request.Request(url + path, json.dumps(body).encode() if body else None, {"Authorization": f"Bearer {key}"})


def complete(url, key, prompt, **fields):
    with urllib.request.urlopen(request_of(url, key, prompt=prompt, max_tokens=4, **fields), timeout=300) as reply:
        return json.load(reply)


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
    assert b"vllm:" in urllib.request.urlopen(url + "/metrics", timeout=60).read()


def test_metrics_show_no_tenant(serve):
    url = serve("--api-key", "operator")
    complete(url, "key-a", [1000, 1001])
    for key, status in (("key-a", 403), ("nobody", 401)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request_of(url, key, "/metrics"), timeout=60)
        assert caught.value.code == status
    with urllib.request.urlopen(request_of(url, "operator", "/metrics"), timeout=60) as reply:
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
    assert done.stderr == f"chunkllama serve: {path}{message}\n"
