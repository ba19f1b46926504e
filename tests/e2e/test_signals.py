"""What a program that is stopped, continued, ended or short of memory or files leaves: whole records, the same answers, or an error."""
import json
import os
import pathlib
import re
import resource
import signal
import subprocess

import pytest
from test_server import serving
from waiting import LIMIT_S, wait_until

LINES = [{"id": i, "prompt": f"Item {i} of the list is", "max_tokens": 40, "ignore_eos": True} for i in range(12)]


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    path = tmp_path_factory.mktemp("signals") / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


@pytest.fixture
def job(chunkllama_bin, model_path, requests, tmp_path):
    """Starts a job whose records come one after another, and waits for the first of them."""
    out = tmp_path / "out.jsonl"
    running = []

    def start(**more):
        command = [chunkllama_bin, "batch", "-m", model_path, "-i", requests, "-o", out, "--max-seqs", "1", "--temperature", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
        running.append(process)
        wait_until(lambda: process.poll() is not None or out.exists() and out.stat().st_size, "the first record")
        return process, out

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def expected(chunkllama, requests, tmp_path_factory):
    out = tmp_path_factory.mktemp("signals") / "out.jsonl"
    chunkllama("batch", "-i", requests, "-o", out, "--max-seqs", 1, "--temperature", 0)
    records = out.read_text()
    assert len(records.splitlines()) == len(LINES)
    return records


def stop_and_continue(process):
    """All threads stop before they go on, unless the process has ended."""
    threads = f"/proc/{process.pid}/task"
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: all(state_of(f"{threads}/{thread}") in "TZ" for thread in os.listdir(threads)), "the process to stop")
    process.send_signal(signal.SIGCONT)


def state_of(thread):
    try:
        return pathlib.Path(thread, "stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:  # it has ended
        return "Z"


def test_a_job_that_was_stopped_continues(job, expected):
    process, out = job()
    for n_records in (1, 3, 5):
        wait_until(lambda: len(out.read_bytes().splitlines()) >= n_records, f"{n_records} records")
        stop_and_continue(process)
    assert process.wait(LIMIT_S) == 0, process.stderr.read()
    assert out.read_text() == expected


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_job_that_was_ended_leaves_whole_records(job, expected, end):
    process, out = job()
    process.send_signal(end)
    assert process.wait(LIMIT_S) in (-end if end == signal.SIGKILL else 128 + end, 0)
    text = out.read_text()
    assert text.endswith("\n") and expected.startswith(text)


def test_a_server_that_was_stopped_continues(chunkllama_bin, model_path):
    with serving(chunkllama_bin, model_path) as server:
        ask = {"max_tokens": 200, "temperature": 0, "extra_body": {"ignore_eos": True}}
        whole = server.complete("Once upon a time", **ask).choices[0].text
        pieces = []
        for chunk in server.client.completions.create(model=server.model, prompt="Once upon a time", stream=True, **ask):
            pieces.append(chunk.choices[0].text)
            if len(pieces) in (1, 2, 20):
                stop_and_continue(server.process)
        assert "".join(pieces) == whole
        assert server.complete("Once upon a time", **ask).choices[0].text == whole


@pytest.mark.parametrize("megabytes", [90, 150, 250, 400, 600])
def test_little_memory_is_an_error(job, expected, megabytes):
    """The first suffices for the program, also with the kernels of CUDA devices, but not for the model; the last does on most machines."""
    limit = megabytes << 20
    process, out = job(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    status = process.wait(LIMIT_S)
    error = process.stderr.read()
    if status == 0:
        assert megabytes > 90 and out.read_text() == expected
    else:
        *progress, message = error.splitlines()  # a slow machine prints its progress first
        assert status == 1 and message.startswith("chunkllama batch: "), error
        assert all(re.match(r"\d+/\d+ (layers|requests)", line) for line in progress), error


@pytest.mark.parametrize("files", [5, 6, 7])
def test_few_files_are_an_error(job, expected, files):
    """The model, the requests and the output are open at once. Processes of grammars would need more."""
    env = {name: value for name, value in os.environ.items() if name != "CHUNKLLAMA_GRAMMAR_LIBRARY"}
    process, out = job(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)), env=env)
    status, error = process.wait(LIMIT_S), process.stderr.read()
    assert status == (1 if files == 5 else 0) and ("Too many open files" in error) == (status == 1), error
    assert status == 1 or out.read_text() == expected
