"""The bundled workloads: the tool writes the same bytes, requests are distinct, shared lengths are those of the paper's Table 2."""
import collections
import json
import subprocess
import sys

import pytest
from conftest import ROOT

# The number of tokens of each kind's shared prompts with SmolLM2's tokenizer, ascending.
SHARED = {"chatbot": [1697], "tool_planning": [1313, 1316, 1439, 1471], "few_shot": [895], "document_qa": [4313]}
N = 256


def make(*args):
    return subprocess.run([sys.executable, ROOT / "bench/tools/make_workload", *args], check=True, capture_output=True).stdout


def bundled(kind):
    return [json.loads(line) for line in (ROOT / "bench/workloads" / f"{kind}.jsonl").open(encoding="utf-8")]


def shared_and_own(requests):
    """Each request as a pair: its shared part and its own part."""
    if "messages" in requests[0]:
        return [tuple(m["content"] for m in r["messages"]) for r in requests]
    own = [r["prompt"][r["prompt"].rindex("Question: "):] for r in requests]
    return [(r["prompt"][:-len(o)], o) for r, o in zip(requests, own)]


@pytest.mark.parametrize("kind", SHARED)
def test_bundled_is_what_the_tool_writes(kind):
    assert make(kind) == (ROOT / "bench/workloads" / f"{kind}.jsonl").read_bytes()


@pytest.mark.parametrize("kind", SHARED)
def test_requests_are_distinct(kind):
    requests = bundled(kind)
    assert len(requests) == N
    assert len({r["id"] for r in requests}) == N
    assert len(set(shared_and_own(requests))) == N


@pytest.mark.parametrize("kind", SHARED)
def test_shared_lengths(kind, chunkllama):
    shared = collections.Counter(s for s, _ in shared_and_own(bundled(kind)))
    assert set(shared.values()) == {N // len(SHARED[kind])}
    done = chunkllama("tokenize", "--jsonl", stdin="".join(json.dumps(s) + "\n" for s in shared))
    assert sorted(len(json.loads(line)) for line in done.stdout.splitlines()) == SHARED[kind]


def test_seed_and_count():
    first, again, other = make("chatbot", "--n", "5"), make("chatbot", "--n", "5", "--seed", "1"), make("chatbot", "--n", "5", "--seed", "2")
    assert first == again != other
    assert len(first.splitlines()) == 5
