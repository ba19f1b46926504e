"""The offline job has the same answers in all settings, byte for byte, and computes each prefix once."""
import json

import pytest
from conftest import ROOT
from test_batch import computed_by_a_trie, prompts_of

pytestmark = pytest.mark.exact

N = 16
SETTINGS = [("--prefill-segment", 7), ("--prefill-segment", 64, "--threads", 1), ("--max-step-rows", 40),
            ("--sharing", "shared_storage", "--max-seqs", 5), ("--retention", "none", "--chunk-size", 32),
            ("--speculate", "off"), ("--max-seqs", 1), ("--max-seqs", 2, "--prefill-segment", 100)]


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """The first requests of the tool-planning workload, in a file."""
    lines = (ROOT / "bench/workloads/tool_planning.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:N]
    path = tmp_path_factory.mktemp("job") / "in.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def job(chunkllama, requests):
    """Runs the job with some flags; returns the answers without usage, and the number of prompt tokens computed."""
    def run(*flags):
        out, summary = requests.with_name("out.jsonl"), requests.with_name("summary.json")
        chunkllama("batch", "-i", requests, "-o", out, "--summary", summary, "--max-tokens", 24, "--temperature", 0,
                   "--ignore-eos", "--logprobs", 3, *flags)
        answers = [json.loads(line) for line in out.open(encoding="utf-8")]
        assert [len(a["token_ids"]) for a in answers] == [24] * N
        return ([json.dumps({k: v for k, v in a.items() if k != "usage"}) for a in answers],
                json.loads(summary.read_text())["prefill_tokens_computed"])

    return run


@pytest.fixture(scope="module")
def usual(job):
    return job()


@pytest.fixture(scope="module")
def predicted(chunkllama, requests):
    return computed_by_a_trie(prompts_of(chunkllama, map(json.loads, requests.open(encoding="utf-8"))))


@pytest.mark.long
@pytest.mark.parametrize("flags", SETTINGS, ids=lambda flags: " ".join(map(str, flags)))
def test_setting_changes_nothing(job, usual, predicted, flags):
    answers, computed = job(*flags)
    assert answers == usual[0]
    assert computed == usual[1] == predicted
