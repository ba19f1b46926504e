"""The program on a CUDA device: chunkllama_emulated has an emulated one, cuda:0, on which the model of two layers takes seconds."""
import concurrent.futures
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import ROOT
from test_server import serving
from waiting import LIMIT_S

SHARED = "The tree keeps every prefix once. When two questions begin alike, the second finds what the first has computed. " * 4


@pytest.fixture(scope="module")
def program(bin_dir):
    path = bin_dir / "chunkllama_emulated"
    if not path.exists():
        pytest.skip("there is no emulation on this machine")
    if os.environ.get("CATTN_LEVEL"):
        pytest.skip("a device has no levels")
    return path


@pytest.fixture(scope="module")
def small_model(model_path, tmp_path_factory):
    path = tmp_path_factory.mktemp("device") / "two-layers.gguf"
    subprocess.run([sys.executable, ROOT / "tests/chunkllama/model/first_layers.py", model_path, "2", path], check=True)
    return path


@pytest.fixture(scope="module")
def server(program, small_model):
    with serving(program, small_model, "--device", "cuda", "--kv-budget", "64M", "--temperature", "0", "-c", "512") as running:
        yield running


def ids(answer):
    return answer.choices[0].token_ids


def complete(server, prompt, **fields):
    return server.complete(prompt, max_tokens=4, extra_body={"return_token_ids": True, **fields})


def test_answers_alone_and_together(server):
    """Of requests that share a prompt, all but the first find it in the cache, and each has the answer that it has alone."""
    prompts = [SHARED + end for end in ("Who asks?", "What is kept?", "Why?")]
    alone = [complete(server, prompt) for prompt in prompts]
    assert all(a.usage.prompt_tokens_details.cached_tokens >= 64 for a in alone[1:])
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        together = list(pool.map(lambda prompt: complete(server, prompt), prompts))
    assert [ids(a) for a in together] == [ids(a) for a in alone]


def test_logprobs_and_branches(server):
    answer = server.complete("The", max_tokens=3, n=2, logprobs=3, temperature=1, seed=5)
    assert len(answer.choices) == 2 and all(len(c.logprobs.tokens) == 3 for c in answer.choices)


def test_stream(server):
    parts = server.complete("The", max_tokens=3, stream=True)
    assert sum(len(p.choices[0].text) > 0 for p in parts if p.choices) >= 1


def test_batch_has_the_servers_answers(program, small_model, server, tmp_path):
    body = {"prompt": "One, two", "max_tokens": 4, "temperature": 0}
    lines = [{"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body} for i in range(2)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    subprocess.run([program, "batch", "-m", small_model, "--device", "cuda", "--kv-budget", "64M", "-i", tmp_path / "in.jsonl",
                    "-o", tmp_path / "out.jsonl"], check=True, timeout=LIMIT_S, capture_output=True)  # fmt: skip
    texts = [json.loads(line)["response"]["body"]["choices"][0]["text"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert texts == [server.complete("One, two", max_tokens=4, temperature=0).choices[0].text] * 2


def test_memory_is_said_at_start(program, small_model):
    command = [program, "serve", "-m", small_model, "--port", "0", "--device", "cuda", "--kv-budget", "64M", "-c", "512"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "http" in process.stdout.readline()
        process.terminate()
        log = process.stderr.read()
    found = re.search(r"device .*number=0 weights_bytes=(\d+) kv_bytes=67108864 workspace_bytes=(\d+)", log)
    assert found and int(found[1]) > 30e6 and int(found[2]) > 1e6, log


@pytest.mark.parametrize(
    "options, message",
    [
        (["--device", "gpu"], "device is 'gpu'; it must be cpu, cuda or cuda:N, where N counts from 0"),
        (["--device", "cuda:1"], "CUDA device 1; this machine has 1, numbered from 0"),
        (["--device", "cuda", "--kv-type", "int8"], "--kv-type is CATTN_I8; on a CUDA device it must be"),
        (["--device", "cuda", "--chunk-size", "32"], "--chunk-size is 32; on a CUDA device it must be 64"),
    ],
)  # fmt: skip
def test_refused(program, small_model, options, message):
    done = subprocess.run([program, "run", "-m", small_model, *options, "Hi"], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1 and message in done.stderr


def test_shipped_program_has_no_device(chunkllama_bin, small_model):
    done = subprocess.run([chunkllama_bin, "run", "-m", small_model, "--device", "cuda", "Hi"], capture_output=True, text=True,
                          timeout=LIMIT_S)  # fmt: skip
    assert done.returncode == 1
    assert "this build has no CUDA backend" in done.stderr or "CUDA does not work here" in done.stderr
