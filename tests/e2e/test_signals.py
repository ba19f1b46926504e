"""What a program that is stopped, continued, ended or short of memory or files leaves: whole records, the same answers, or an error."""
import json
import resource
import signal
import subprocess
import time

import pytest
from test_server import serving

LINES = [{"id": i, "prompt": f"Item {i} of the list is", "max_tokens": 40} for i in range(12)]


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
        deadline = time.monotonic() + 60
        while process.poll() is None and not (out.exists() and out.stat().st_size):
            assert time.monotonic() < deadline
            time.sleep(0.01)
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


def test_a_job_that_was_stopped_continues(job, expected):
    process, out = job()
    for _ in range(3):
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.05)
    assert process.wait(timeout=120) == 0, process.stderr.read()
    assert out.read_text() == expected


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_job_that_was_ended_leaves_whole_records(job, expected, end):
    process, out = job()
    process.send_signal(end)
    assert process.wait(timeout=60) in (-end if end == signal.SIGKILL else 128 + end, 0)
    text = out.read_text()
    assert text.endswith("\n") and expected.startswith(text)


def test_a_server_that_was_stopped_continues(chunkllama_bin, model_path):
    with serving(chunkllama_bin, model_path) as server:
        ask = {"max_tokens": 60, "temperature": 0}
        whole = server.complete("Once upon a time", **ask).choices[0].text
        pieces = []
        for chunk in server.client.completions.create(model=server.model, prompt="Once upon a time", stream=True, **ask):
            pieces.append(chunk.choices[0].text)
            if len(pieces) in (2, 20):
                server.process.send_signal(signal.SIGSTOP)
                time.sleep(1.5)
                server.process.send_signal(signal.SIGCONT)
        assert "".join(pieces) == whole
        assert server.complete("Once upon a time", **ask).choices[0].text == whole


@pytest.mark.parametrize("megabytes", [60, 150, 250, 400, 600])
def test_little_memory_is_an_error(job, expected, megabytes):
    """The first does not suffice for the model, and the last does on most machines."""
    limit = megabytes << 20
    process, out = job(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    status = process.wait(timeout=120)
    error = process.stderr.read()
    if status == 0:
        assert megabytes > 60 and out.read_text() == expected
    else:
        assert status == 1 and error.startswith("chunkllama batch: ") and error.count("\n") == 1, error


@pytest.mark.parametrize("files", [5, 6, 7])
def test_few_files_are_an_error(job, expected, files):
    """The model, the requests and the output are open at once."""
    process, out = job(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
    status, error = process.wait(timeout=120), process.stderr.read()
    assert status == (1 if files == 5 else 0) and ("Too many open files" in error) == (status == 1), error
    assert status == 1 or out.read_text() == expected
