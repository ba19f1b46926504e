"""Beam search from a request's JSON to its answer, against a search written here from vLLM's definition over the oracle's logits."""

import json

import numpy as np
import oracle
import pytest
import write_gguf
from write_gguf import Type

MODEL = dict(types=[Type.F32], n_heads=3, n_kv_heads=1, head_dim=64, n_layers=3)
N_VOCAB, EOS = 261, 2


def search(model, prompt, width, max_tokens, length_penalty, ends, early_stopping):
    """(tokens, logprobs) of the `width` best completions, the best first. Nothing is pruned: it runs for max_tokens steps."""

    def score(tokens, logprobs):
        length = len(prompt) + len(tokens) - (tokens[-1] in ends)
        return sum(logprobs) / length**length_penalty

    beams, found = [([], [])], []
    for _ in range(max_tokens):
        rows = [out[-1] for out in oracle.logits(model, [prompt + tokens for tokens, _ in beams])]
        continued = []
        for (tokens, logprobs), row in zip(beams, rows):
            row = row - row.max()
            row -= np.log(np.exp(row).sum())
            for token in np.argsort(-row, kind="stable")[: 2 * width]:
                longer = tokens + [int(token)], logprobs + [row[token]]
                (found if token in ends else continued).append(longer)
        beams = sorted(continued, key=lambda b: -sum(b[1]))[:width]
        if early_stopping and len(found) >= width:
            beams = []
            break
    return sorted(found + beams, key=lambda b: -score(*b))[:width]


CASES = [
    dict(n=1, max_tokens=8),
    dict(n=4, max_tokens=10),
    dict(n=4, max_tokens=10, length_penalty=0),
    dict(n=2, best_of=6, max_tokens=8, length_penalty=2.5),
    dict(n=3, max_tokens=8, length_penalty=-1),
    dict(n=4, max_tokens=12, early_stopping=True),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("beam") / "model.gguf"
    write_gguf.random_model(path, **MODEL)
    return path


def test_equals_a_search_over_the_oracle(chunkllama, model, tmp_path):
    rng = np.random.default_rng(5)
    prompts = [[int(t) for t in rng.integers(3, N_VOCAB, 2 + 2 * i)] for i in range(len(CASES))]
    stops = [int(t) for t in rng.choice(np.arange(3, N_VOCAB), 10, replace=False)]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    bodies = [dict(prompt=prompt, use_beam_search=True, stop_token_ids=stops, logprobs=1, return_token_ids=True, **case)
              for prompt, case in zip(prompts, CASES)]  # fmt: skip
    lines = [dict(custom_id=str(i), method="POST", url="/v1/completions", body=body) for i, body in enumerate(bodies)]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    chunkllama("batch", "-i", source, "-o", out, env={"CHUNKLLAMA_MODEL": str(model), "CHUNKLLAMA_KV_TYPE": "f32"})
    answers = [json.loads(line)["response"]["body"] for line in out.read_text().splitlines()]
    weights, n_stopped = oracle.load(model), 0
    for prompt, case, answer in zip(prompts, CASES, answers):
        expected = search(weights, prompt, case.get("best_of", case["n"]), case["max_tokens"], case.get("length_penalty", 1),
                          {EOS, *stops}, case.get("early_stopping", False))  # fmt: skip
        assert len(answer["choices"]) == case["n"]
        for choice, (tokens, logprobs) in zip(answer["choices"], expected):
            assert choice["token_ids"] == tokens
            assert np.abs(np.array(choice["logprobs"]["token_logprobs"]) - logprobs).max() < 1e-4
            assert choice["finish_reason"] == ("stop" if tokens[-1] in {EOS, *stops} else "length")
            n_stopped += choice["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == sum(len(tokens) for tokens, _ in expected)
    assert 2 <= n_stopped < sum(case["n"] for case in CASES)
