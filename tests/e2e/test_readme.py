"""README.md and docs/library.md are true: their commands run, and their programs are docs/*.c, which ctest compiles and runs."""
import json
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text()
LIBRARY = (ROOT / "docs/library.md").read_text()
SH = re.findall(r"```sh\n(.*?)```", TEXT, re.S)


def block(start):
    """The one block of commands that starts so."""
    found = [b for b in SH if b.startswith(start)]
    assert len(found) == 1, (start, found)
    return found[0]


def run(commands):
    done = subprocess.run(["bash", "-ec", commands], cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def server():
    """What `./run.sh` starts, on the port that README names, where nobody else may listen."""
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", 8080)) != 0, "another program has port 8080"
    process = subprocess.Popen(["bash", "-ec", "exec " + block("./run.sh\n")], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    for _ in range(1200):
        assert process.poll() is None, process.stdout.read()
        try:
            urllib.request.urlopen("http://127.0.0.1:8080/health", timeout=5)
            break
        except OSError:
            time.sleep(0.1)
    yield process
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0, process.stdout.read()


def test_every_block_of_commands_is_run_here():
    assert [b.split("\n")[0] for b in SH] == ["./run.sh", SH[1].split("\n")[0], "./run.sh batch", SH[3].split("\n")[0],
                                                "cmake --preset release"]
    assert SH[1].startswith("curl ")


def test_curl_line_is_answered(server):
    answer = json.loads(run(block("curl ")).stdout)
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["usage"]["completion_tokens"] > 0


def test_batch_writes_an_answer_to_every_request():
    run(block("./run.sh batch"))
    lines = [json.loads(line) for line in (ROOT / "build/batch.jsonl").read_text().splitlines()]
    asked = [json.loads(line)["id"] for line in (ROOT / "workloads/tool_planning.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == asked
    assert all(line["finish_reason"] == "length" and line["text"] or line["finish_reason"] == "stop" for line in lines)


def test_table_of_methods_can_be_measured():
    commands = block("build/release/bin/cattn-bench kernel").rstrip()
    assert "chunk" in run(commands + " --steps 1 --cold-mib 1").stdout


def test_library_installs():
    run(block("cmake --preset release"))
    assert (ROOT / "build/prefix/include/chunkattn.h").exists()
    (commands,) = re.findall(r"```sh\n(.*?)```", LIBRARY, re.S)
    assert run(commands).stdout == "prefill: 1020 and 20 rows\n"


def test_programs_are_those_that_are_compiled():
    for text, name in ((TEXT, "example"), (LIBRARY, "decode")):
        assert re.search(r"```c\n(.*?)```", text, re.S).group(1) == (ROOT / f"docs/{name}.c").read_text()


def test_files_that_are_named_exist():
    for name in re.findall(r"`((?:docs|\./)[\w./-]*\.(?:md|sh))`|\]\(((?!http)[^)]+)\)", TEXT):
        assert (ROOT / (name[0] or name[1])).exists(), name


def test_glossary_names_what_exists():
    """Each path of the glossary is in the tree, and each C name is in a header."""
    named = re.findall(r"`([\w./]+)`", (ROOT / "docs/glossary.md").read_text())
    headers = "\n".join(path.read_text() for folder in ("include", "base", "lib", "llama", "engine", "loadgen", "bench")
                        for path in (ROOT / folder).rglob("*.h"))
    for name in named:
        if "/" in name:
            assert (ROOT / name).exists(), name
        elif re.match(r"c[al]_|cattn_", name):
            assert re.search(rf"\b{name}\b", headers), name
