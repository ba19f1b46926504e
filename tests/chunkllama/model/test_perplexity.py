"""Perplexity against the float64 oracle's on the same weights, tokens and passages: the cheap version of perplexity.py's table."""

import math

import numpy as np
import oracle
import perplexity
import pytest
import write_gguf
from write_gguf import Type


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text(perplexity.bundled_text())
    return path


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_float_weights(chunkllama_bin, tmp_path, f32_activations, text, kind):
    """Nothing is quantised; passages begin with BOS. Logits are within 1e-4 of the oracle's (test_logits.py), so each loss within
    2e-4, and their mean far below that."""
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, types=[Type[kind]], n_heads=4, n_kv_heads=2, head_dim=64)
    passages = perplexity.cut(chunkllama_bin, path, text, 100, 3)
    assert [len(c) for c in passages] == [100] * 3 and all(c[0] == 1 for c in passages)
    expected = perplexity.losses(oracle.load(path), passages)
    got = perplexity.of_program(chunkllama_bin, path, text, 100, 3)
    print(f"off by {math.log(got['perplexity']) - expected.mean():.2g}")
    assert got["tokens_scored"] == len(expected) == 3 * 49
    assert abs(math.log(got["perplexity"]) - expected.mean()) <= 1e-6


@pytest.mark.long
def test_smollm2(chunkllama_bin, model_path, text):
    """Activations are rounded to int8, so correct implementations differ (test_logits.py), each loss by about as much as rounding
    costs the oracle: a mean of n by that over sqrt(n), times four for being chance."""
    passages = perplexity.cut(chunkllama_bin, model_path, text, 128, 3)
    model = oracle.load(model_path)
    exact, rounded = (perplexity.losses(model, passages, rounds) for rounds in (False, True))
    bound = 4 * np.sqrt(np.mean((rounded - exact) ** 2) / len(exact))
    got = math.log(perplexity.of_program(chunkllama_bin, model_path, text, 128, 3)["perplexity"])
    print(f"exact {exact.mean():.4f}; off by {got - exact.mean():.4f}; bound {bound:.4f}")
    assert bound < 0.05, "quantised activations cost more than they should"
    assert abs(got - exact.mean()) <= bound
