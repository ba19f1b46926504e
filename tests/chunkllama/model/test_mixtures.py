"""Random mixtures of experts of several architectures: numbers of experts and groups, shared ones, dense layers, forms of
tensors. Logits against the float64 model in oracle.py; the cut of the prompt and the threads change no bit."""

import numpy as np
import oracle
import pytest
import write_gguf
from test_logits import MIXTURES, dump
from today import DAY
from write_gguf import Type

ARCHS = ["llama", "qwen2moe", "qwen3moe", "granitemoe", "olmoe", "glm4moe", "ernie4_5-moe"]
N_SEEDS, N_TOKENS = 40, 150
NOISE = 1e-5  # of a router's scores; f32 rounding is less


def random_mixture(rng):
    """The options of write_gguf.random_model."""
    arch = str(rng.choice(ARCHS))
    known = MIXTURES.get(arch, {}).get("experts", {})
    n_groups = int(rng.choice([1, 2, 4])) if "groups" in known else 1
    n = n_groups * int(rng.integers(2, 33))
    n_groups_used = int(rng.integers(1, n_groups + 1))
    n_ff = int(rng.choice([32, 64, 96]))
    experts = dict(n=n, used=int(rng.integers(1, min(9, n // n_groups * n_groups_used + 1))), n_ff=n_ff, groups=(n_groups, n_groups_used),
                   form=str(rng.choice(["all", "fused", "single"])))  # fmt: skip
    if "shared" in known:
        experts["shared"] = n_ff * int(rng.integers(1, 4))
    if "dense" in known:
        experts["dense"] = int(rng.integers(0, 2))
    if "scale" in known:
        experts["scale"] = float(rng.choice([1, 1.5, 2.5]))
    types = [[Type.F32], [Type.F32, Type.F16, Type.BF16]][rng.integers(0, 2)]
    return MIXTURES.get(arch, dict(n_heads=4, n_kv_heads=2, head_dim=64)) | dict(arch=arch, types=types, n_layers=2, experts=experts)


def clear_rows(monkeypatch, model, tokens):
    """The logits, and how many leading rows go to experts that are the best by more than rounding."""
    route, noise, unclear = oracle.route, np.random.default_rng(0), []

    def noted(model, scores, *rest):
        chosen, weights = route(model, scores, *rest)
        for _ in range(4):
            other, _ = route(model, scores + noise.uniform(-NOISE, NOISE, scores.shape), *rest)
            unclear.extend(np.flatnonzero((np.sort(other) != np.sort(chosen)).any(-1)))
        return chosen, weights

    monkeypatch.setattr(oracle, "route", noted)
    logits = oracle.logits(model, [tokens])[0]
    return logits, min(unclear, default=len(tokens))


@pytest.mark.parametrize("seed", [pytest.param(s, marks=[] if s == DAY % N_SEEDS else pytest.mark.long) for s in range(N_SEEDS)])
def test_random_mixtures(bin_dir, tmp_path, f32_activations, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    options = random_mixture(rng)
    path, tokens = tmp_path / "model.gguf", rng.integers(0, 261, N_TOKENS)
    write_gguf.random_model(path, **options)
    exact, n_clear = clear_rows(monkeypatch, oracle.load(path), tokens)
    _, got = dump(bin_dir, tmp_path, path, tokens, kv="f32", piece=int(rng.integers(40, 100)), threads=2)
    print(options["arch"], options["experts"], f"{n_clear} rows, difference {np.abs(got - exact)[:n_clear].max():.3g}")
    assert n_clear > 20
    assert np.abs(got - exact)[:n_clear].max() <= 1e-4
    for piece, threads in ((N_TOKENS, 1), (int(rng.integers(2, 9)), 2), (1, 1)):
        assert dump(bin_dir, tmp_path, path, tokens, kv="f32", piece=piece, threads=threads)[1].tobytes() == got.tobytes(), (piece, threads)
