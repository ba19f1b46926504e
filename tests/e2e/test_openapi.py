"""GET /openapi.json describes the server: all of its routes, and every answer that schemathesis can get from it.

CHUNKLLAMA_FUZZ_SECONDS bounds the time of the fuzzing; by default it is 180.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from waiting import LIMIT_S

SECONDS = int(os.environ.get("CHUNKLLAMA_FUZZ_SECONDS", "180"))

# What a schema cannot express, such as the context's length, may refuse a body that it allows. The server ignores what it does not
# describe, in bodies and in queries.
EXCLUDED_CHECKS = ["positive_data_acceptance"]


@pytest.fixture(scope="module")
def url(chunkllama_bin, model_path, tmp_path_factory):
    """A server of few tokens, so that no request takes long."""
    args = ["--port", "0", "-c", "64", "--max-tokens", "4", "--pin-budget", "8M", "--kv-budget", "64M", "--timeout", str(LIMIT_S),
            "--files-dir", str(tmp_path_factory.mktemp("files"))]
    server = subprocess.Popen([chunkllama_bin, "serve", "-m", model_path, *args], stdout=subprocess.PIPE, text=True)
    yield re.search(r"at (http://\S+)", server.stdout.readline())[1]
    server.terminate()
    assert server.wait(timeout=LIMIT_S) == 0


def read(url):
    with urllib.request.urlopen(url, timeout=LIMIT_S) as reply:
        return reply.read().decode()


def test_every_route_is_described(url):
    """GET / lists the routes of the program, in which ID stands for a parameter."""
    listed = {tuple(line.split()) for line in read(url + "/").splitlines()[1:]}
    paths = json.loads(read(url + "/openapi.json"))["paths"]
    same = {path: item["$ref"].removeprefix("#/paths/").replace("~1", "/") for path, item in paths.items() if "$ref" in item}
    described = {(method.upper(), re.sub(r"\{\w+\}", "ID", path)) for path in paths for method in paths[same.get(path, path)]}
    assert described == listed


def test_endpoints_of_batches(url):
    """Those that are described are those that the server lists where a batch names another."""
    create = json.loads(read(url + "/openapi.json"))["paths"]["/v1/batches"]["post"]
    body = create["requestBody"]["content"]["application/json"]["schema"]["properties"]
    wrong = json.dumps({"input_file_id": "file-0", "endpoint": "/v1/messages/count_tokens", "completion_window": "24h"})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(url + "/v1/batches", wrong.encode(), timeout=LIMIT_S)
    message = json.loads(error.value.read())["error"]["message"]
    assert message == "'endpoint' must be one of " + ", ".join(f'"{path}"' for path in body["endpoint"]["enum"])


def test_version(url):
    assert json.loads(read(url + "/openapi.json"))["info"]["version"] == json.loads(read(url + "/version"))["version"]


@pytest.mark.long
def test_schemathesis(url, tmp_path):
    """No status 5xx but those of a server that is loaded too much, and no answer that the description does not have."""
    st = pathlib.Path(sys.executable).parent / "schemathesis"
    command = [st, "run", url + "/openapi.json", "--phases", "examples,coverage,fuzzing", "--max-time", str(SECONDS), "--seed", "1",
               "--exclude-checks", ",".join(EXCLUDED_CHECKS), "--request-timeout", str(LIMIT_S), "--no-color"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + LIMIT_S, cwd=tmp_path)
    print(done.stdout[-6000:], done.stderr[-2000:])
    assert done.returncode == 0
    assert json.loads(read(url + "/readyz")) == {"status": "ok"}
