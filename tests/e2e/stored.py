"""The results in docs/results."""
import json

from conftest import ROOT

RESULTS = ROOT / "docs/results"
CPUS = sorted(path.stem for path in RESULTS.glob("*.jsonl"))


def results_of(cpu, root=RESULTS):
    """The results of a CPU by their names: [head, row, ...]."""
    found, name = {}, None
    for line in map(json.loads, (root / f"{cpu}.jsonl").read_text().splitlines()):
        name = line.get("results", name)
        found.setdefault(name, []).append(line)
    return found


STORED = [(cpu, name, head) for cpu in CPUS for name, (head, *_) in results_of(cpu).items()]
