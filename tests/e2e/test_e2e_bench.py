"""bench/e2e/run.py --quick: every study gives its rows and files, and tools/fill_benchmarks takes them."""

import json
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

N_ROWS = {"table4": 4, "fig5": 6, "workloads": 2, "budget": 6, "bars": 11, "big": 2}


@pytest.fixture(scope="module")
def results(bin_dir, model_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("e2e")
    done = subprocess.run(
        [sys.executable, "bench/e2e/run.py", "--quick", "-o", folder, "--bin", bin_dir, "--model", model_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.mark.parametrize("study", N_ROWS)
def test_study(study, results):
    found = json.loads((results / f"{study}.json").read_text())
    assert len(found["rows"]) == N_ROWS[study] and "2 threads" in found["machine"]
    lines = (results / f"{study}.md").read_text().splitlines()
    assert lines[0] == f"## {study}" and sum(line.startswith("| ") for line in lines) == N_ROWS[study] + 1


def rows(results, study):
    return json.loads((results / f"{study}.json").read_text())["rows"]


def test_what_is_answered(results):
    for row in rows(results, "table4") + rows(results, "budget"):
        assert row["failed"] == 0 and row["normalized_ms"] > 0, row


def test_sharing_fits_more(results):
    batch = {(r["system"].split()[1], r["ratio"]): r["batch"] for r in rows(results, "budget")}
    assert batch["private", 0.5] == batch["private", 0] == batch["shared", 0] < batch["shared", 0.5]


def test_plots(results):
    assert "$d0_0 << EOD" in (results / "fig5.gp").read_text()
    if shutil.which("gnuplot"):
        assert "<svg" in (results / "fig5.svg").read_text() and "(budget.svg)" in (results / "budget.md").read_text()


def test_results_are_put_in(results, tmp_path):
    doc = tmp_path / "doc.md"
    doc.write_text((ROOT / "docs/benchmarks.md").read_text())
    done = subprocess.run(
        [sys.executable, "tools/fill_benchmarks", results, "--doc", doc], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "filled: table4 fig5 workloads budget bars big\n", done.stderr


def test_wrong_usage():
    done = subprocess.run(
        [sys.executable, "bench/e2e/run.py", "-o", "x", "--only", "table5"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and "--only has 'table5'; there are table4, fig5" in done.stderr


def test_rate_of_bursts(monkeypatch):
    """Tokens that come several at once say nothing of how long each took."""
    monkeypatch.syspath_prepend(str(ROOT / "bench/e2e"))
    import bars

    result = {"requests": {"ok": 32}, "completion_tokens": 32 * 64, "tpot_s": {"mean": 0.16}, "itl_s": {"n": 32 * 63}}
    assert bars.tokens_per_s(32)(result) == pytest.approx(200)
    assert bars.tokens_per_s(32)({**result, "itl_s": {"n": 310}}) is None
