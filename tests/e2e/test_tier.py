"""The file tier: a server that is started again reads the K/V of earlier prompts, in its sandbox too, and answers the same."""
import concurrent.futures
import contextlib
import ctypes
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import threading

import openai
import pytest

from holding import Hold
from test_drain import read_line
from test_serve import post, read_hello, start  # noqa: F401 (start is a fixture)
from test_server import Server, serving
from waiting import LIMIT_S, wait_until

# About 2,000 tokens, as ids: the same for every tokenizer.
PROMPT = [1] + [300 + i * 7 % 1000 for i in range(2048)]
CHUNK = 64


def complete(server: Server, prompt=PROMPT):
    reply = server.complete(prompt, max_tokens=16, temperature=0, logprobs=1)
    cached = reply.usage.prompt_tokens_details.cached_tokens if reply.usage.prompt_tokens_details else 0
    return reply.choices[0].text, reply.choices[0].logprobs.token_logprobs, cached


def wait_until_written(server: Server):
    def written():
        metrics = server.metrics()
        return metrics["chunkattn_tier_queued"] == 0 and metrics["chunkattn_tier_writes_total"] > 0

    wait_until(written, "the chunks to be written")


@pytest.mark.parametrize("sandbox", [(), ("--sandbox",)])
def test_restart(chunkllama_bin, model_path, tmp_path, sandbox):
    args = ("--kv-tier", str(tmp_path / "tier"), "--kv-tier-size", "512M", *sandbox)
    with serving(chunkllama_bin, model_path) as server:
        cold = complete(server)
        assert server.metrics()["chunkattn_tier_writes_total"] == 0
    with serving(chunkllama_bin, model_path, *args) as server:
        assert complete(server) == cold
        wait_until_written(server)
    files = list((tmp_path / "tier").iterdir())
    assert len(files) == 1 and files[0].stat().st_mode & 0o777 == 0o600
    with serving(chunkllama_bin, model_path, *args) as server:
        text, logprobs, cached = complete(server)
        assert (text, logprobs) == cold[:2]
        assert cached == len(PROMPT) // CHUNK * CHUNK
        metrics = server.metrics()
        assert metrics["chunkattn_tier_restored_tokens_total"] == cached
        assert metrics["chunkattn_prefill_tokens_computed_total"] == len(PROMPT) - cached
        assert metrics["chunkattn_tier_errors_total"] == metrics["chunkattn_tier_refused_total"] == 0


@pytest.mark.parametrize("answering", [True, False])
def test_a_server_that_is_stopped_at_work(bin_dir, model_path, tmp_path, answering):
    """Requests that are cut at a second signal are cancelled, and their chunks are then written as far as they have been computed."""
    args = ("--kv-tier", str(tmp_path / "tier"), "--kv-tier-size", "512M", "--max-step-rows", "128")
    n_most = len(PROMPT) // CHUNK * CHUNK
    hold = Hold(tmp_path)
    program = bin_dir / "chunkllama_held"
    with serving(program, model_path, *args, hold=hold) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        started = threading.Event()

        def stream():
            with contextlib.suppress(openai.APIError):
                for _ in server.complete(PROMPT, max_tokens=4000, stream=True, extra_body={"ignore_eos": True}):
                    started.set()

        with hold("step", reached=False):
            answer = pool.submit(stream)
            hold.wait("step")
            if not answering:
                hold.next("step")  # so that the first has computed chunks
                server.stop_at_once()
                wait_until(answer.done, "the request to be cut")
        if answering:
            assert started.wait(LIMIT_S)
            server.stop_at_once()
        assert server.process.wait(LIMIT_S) == 128 + signal.SIGTERM
    with serving(program, model_path, *args) as server:
        cached = complete(server)[2]
        assert cached == n_most if answering else CHUNK <= cached < n_most
        metrics = server.metrics()
        assert metrics["chunkattn_tier_restored_tokens_total"] == cached
        assert metrics["chunkattn_prefill_tokens_computed_total"] == len(PROMPT) - cached


def test_a_killed_server_leaves_its_file_usable(chunkllama_bin, model_path, tmp_path):
    """What was written is read, and a record that is damaged is computed again."""
    args = ("--kv-tier", str(tmp_path), "--kv-tier-size", "512M")
    with serving(chunkllama_bin, model_path, *args) as server:
        cold = complete(server)
        wait_until_written(server)
        server.kill()
    [file] = pathlib.Path(tmp_path).iterdir()
    with open(file, "r+b") as f:
        f.seek(os.path.getsize(file) // 2 + 10000)  # in a payload, behind the header of 4096 bytes
        f.write(b"\xa5" * 100)
    with serving(chunkllama_bin, model_path, *args, "--log-level", "warn", "--log-load", "0.1") as server:
        text, logprobs, cached = complete(server)
        assert (text, logprobs) == cold[:2]
        line = read_line(server.process, "the file of --kv-tier fails; what it lacks is computed")
        assert " failed_calls=0 damaged_chunks=1 fix=" in line
        metrics = server.metrics()
        assert metrics["chunkattn_tier_refused_total"] == 1
        assert cached == metrics["chunkattn_tier_restored_tokens_total"]  # what was computed again was not cached
        assert 0 < metrics["chunkattn_tier_restored_tokens_total"] < len(PROMPT) // CHUNK * CHUNK


def test_files_that_nobody_uses(start, chunkllama, chunkllama_bin, model_path, tmp_path):
    """The log and a command name the files of other options, and the command removes them, but none that a server uses."""
    folder = tmp_path / "tier"
    args = ("--kv-tier", str(folder), "--kv-tier-size", "64M")
    with serving(chunkllama_bin, model_path, *args, "--kv-type", "f16"):
        [old] = folder.iterdir()
    (folder / "notes.kv").touch()
    line = read_line(start("--port", "0", *args, log_level="info"), "--kv-tier has files that no process uses")
    assert re.search(rf" files=1 bytes=\d+ one_of_them={old.name} fix=", line)
    lines = chunkllama("tier", folder).stdout.splitlines()
    assert len(lines) == 2 and sorted(line.split()[-2:] for line in lines) == [["in", "use"], ["in", "use"]]
    assert [line.split()[-3] for line in lines].count("not") == 1
    found = [json.loads(line) for line in chunkllama("tier", "--kv-tier", folder, "--remove", "--json").stdout.splitlines()]
    assert {f["file"]: f["state"] for f in found}[old.name] == "removed" and not old.exists()
    assert sorted(f["state"] for f in found) == ["in use", "removed"] and (folder / "notes.kv").exists()
    (tmp_path / "empty").mkdir()
    assert chunkllama("tier", tmp_path / "empty").stdout == f"{tmp_path}/empty has no files of --kv-tier\n"
    assert chunkllama("tier", tmp_path / "empty", "--json").stdout == ""
    assert "cannot read the folder" in chunkllama("tier", tmp_path / "none", status=1).stderr
    assert "no folder" in chunkllama("tier", status=1).stderr


def without_override():
    """Let the program that follows have no more rights than its user's, also as root: PR_CAPBSET_DROP of two capabilities."""
    for capability in 1, 2:  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)


def test_files_that_cannot_be_removed(chunkllama_bin, tmp_path):
    """The command says why, and fails."""
    (tmp_path / f"{'0' * 32}.kv").touch()
    tmp_path.chmod(0o555)
    done = subprocess.run([chunkllama_bin, "tier", "--remove", tmp_path], capture_output=True, text=True, preexec_fn=without_override)
    tmp_path.chmod(0o755)
    assert done.returncode == 1 and done.stdout.endswith("  cannot be removed: Permission denied\n"), done


def test_failures_are_logged(start, tmp_path):
    """A disk without space: requests go on, and a line of the log counts what failed."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    server = start("--port", "0", "--kv-tier", str(tmp_path), "--log-load", "0.1", log_level="warn",
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, limits[1])))  # fmt: skip
    url, _ = read_hello(server)
    assert post(url, prompt=PROMPT, max_tokens=1)[0] == 200
    line = read_line(server, "the file of --kv-tier fails")
    assert re.search(r" warn +the file of --kv-tier fails; what it lacks is computed failed_calls=[1-9]", line)


@pytest.mark.whole_model
def test_errors(chunkllama, tmp_path):
    (tmp_path / "file").touch()
    for args, named, message in (
        (["--kv-tier", tmp_path / "no" / "folder"], "--kv-tier is unusable", "/no/folder: No such file or directory; name a directory that may be written, and whose"),
        (["--kv-tier", tmp_path / "no" / "sharing"], "--kv-tier is unusable", "/no/sharing: No such file or directory; name"),
        (["--kv-tier", tmp_path / "file"], "--kv-tier is unusable", "/file: Not a directory; name a directory that may be written"),
        (["--kv-tier", tmp_path, "--kv-tier-size", "1M"], "--kv-tier-size is 1048576", "in the file; raise it"),
        (["--kv-tier", tmp_path, "--sharing", "private"], "--kv-tier is set", "but with this sharing nothing is retained; choose another"),
        (["--kv-tier", tmp_path, "--retention", "none"], "--kv-tier is set", "but with this retention nothing is retained; choose another"),
    ):
        error = chunkllama("serve", "--port", 0, *args, status=1).stderr
        assert named in error and message in error and "tier_" not in error, error
