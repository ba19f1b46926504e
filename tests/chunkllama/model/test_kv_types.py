"""The accuracy of K/V types: the error of attention on real q, K and V, and the change of a text's perplexity."""

import json
import math
import re
import subprocess

import numpy as np
import oracle
import pytest
from conftest import ROOT
from waiting import LIMIT_S

LAYERS = [0, 10, 20, 29]
N = 384


@pytest.fixture(scope="module")
def real_qkv(model_path, bin_dir):
    """SmolLM2, and the rotated q, k and v of some of its layers for the first tokens of the licence, rounded to f32."""
    text = json.dumps((ROOT / "LICENSE").read_text()) + "\n"
    command = [bin_dir / "tokenize_dump", model_path]
    ids = json.loads(subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout)
    seen = []

    def attend(model, layer, q, k, v, kv):
        seen.append([x.astype(np.float32).astype(np.float64) for x in (*oracle.rotated(model, layer, q, k), v)])
        return oracle.attend_rotated(model, layer, *seen[-1], kv)

    model = oracle.load(model_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "attend", attend)
        oracle.logits(model, [ids[:N]])
    return model, [seen[i] for i in LAYERS]


def attention(bin_dir, tmp_path, model, kv, q, k, v):
    """The library's output, and the level that it used."""
    source, result = tmp_path / "qkv", tmp_path / "out"
    np.concatenate([x.astype(np.float32).ravel() for x in (q, k, v)]).tofile(source)
    shape = [len(q), model.n_heads, *k.shape[1:]]
    command = [bin_dir / "attention_dump", *map(str, shape), kv, source, result]
    used = subprocess.run(command, check=True, timeout=LIMIT_S, capture_output=True, text=True).stdout.strip()
    return np.fromfile(result, np.float32).reshape(len(q), -1), used


def relative(error, exact):
    """The root mean square of the error divided by that of the exact output, and the same for the largest absolute values."""
    return np.sqrt(np.mean(error**2) / np.mean(exact**2)), np.abs(error).max() / np.abs(exact).max()


# The most that a kernel may differ from float64 arithmetic on K and V as they are stored, and the most that storing them may
# cost, as root mean squares of differences over that of the output.
#
# Arithmetic: f32 rounds a sum of up to 384 terms at 2^-24 a step, and scores of up to some 30 with it, which are exponents: some
# 1e-6. bf16 rounds q times the scale and the weights, oracle.py q and weights of another scale: each may be off by as much as
# storing. int8 in integers rounds weights to 16 bits: 2^-16 of the largest.
# Storing: half of the last bit of K and V, 2^-12 for f16 and 2^-9 for bf16, times scores of some 10, since what is off in a
# score is off in an exponent. int8: up to 1/254 of a vector's largest element, which is some 4 times the usual one: 2^-6; a q
# rounded alike comes on top.
TYPES = {  # K/V type: (arithmetic, storing)
    "f32": (2e-6, 0),
    "f16": (2e-6, 2e-3),
    "bf16": (2e-2, 2e-2),
    "int8": (1e-4, 6e-2),
}


@pytest.mark.long
@pytest.mark.parametrize("kv", TYPES)
def test_attention(bin_dir, tmp_path, real_qkv, kv):
    arithmetic, storing = TYPES[kv]
    model, layers = real_qkv
    for layer, (q, k, v) in zip(LAYERS, layers):
        exact = oracle.attend_rotated(model, layer, q, k, v, "f32")
        got, used = attention(bin_dir, tmp_path, model, kv, q, k, v)
        in_integers = kv == "int8" and used != "ref"
        stored = oracle.attend_rotated(model, layer, oracle.rounded(q, "int8") if in_integers else q, k, v, kv)
        (rms, largest), cost = relative(got - exact, exact), relative(stored - exact, exact)[0]
        own = relative(got - stored, exact)[0]
        print(f"{kv} ({used}), layer {layer}: rms {rms:.2e}, largest {largest:.2e}; by storing {cost:.2e}, arithmetic {own:.2e}")
        assert own <= arithmetic
        assert cost <= storing


@pytest.mark.long
def test_perplexity(chunkllama, tmp_path):
    """
    On documents of this project, 24 passages of 512 tokens, of which half count. What rounding does to the logarithm of a token's
    likelihood goes either way: the mean of a passage moves by 0.0065 (rms of 60 passages, bf16 and int8 alike), that of 24 by
    0.0013. Six times that is allowed.
    """
    text = tmp_path / "text"
    text.write_text("".join((ROOT / name).read_text() for name in ("LICENSE", "README.md", "docs/design.md")))
    logs = {}
    for kv in ("f32", "bf16", "int8"):
        out = chunkllama("perplexity", "-f", text, "--passages", 24, "--kv-type", kv)
        logs[kv] = math.log(float(re.search(r"PPL = ([0-9.]+)", out.stdout + out.stderr)[1]))
    print({kv: round(math.exp(log), 4) for kv, log in logs.items()})
    assert abs(logs["bf16"] - logs["f32"]) <= 0.008
    assert abs(logs["int8"] - logs["f32"]) <= 0.008
