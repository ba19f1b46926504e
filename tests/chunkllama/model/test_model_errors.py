"""Files of models that cannot be run: the message names the key or tensor, and what is allowed."""

import subprocess

import numpy as np
import pytest
import write_gguf
from waiting import LIMIT_S
from write_gguf import Type, value_type

SHAPE = dict(types=[Type.F32], n_heads=2, n_kv_heads=1, head_dim=64, n_layers=1)


def message(bin_dir, tmp_path, fields=None, tensors=None):
    """The message of logits_dump about a small model with fields and tensors replaced, added or, if None, removed."""
    path, ids = tmp_path / "model.gguf", tmp_path / "tokens.json"
    write_gguf.random_model(path, **SHAPE, replace_fields=fields or {}, replace_tensors=tensors or {})
    ids.write_text("[1, 5, 9]")
    command = [bin_dir / "logits_dump", path, ids, tmp_path / "out.npy"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert run.returncode in (0, 1), run
    return run.stderr


def test_unchanged(bin_dir, tmp_path):
    assert message(bin_dir, tmp_path) == ""


U32, F32, STRING = value_type.UINT32, value_type.FLOAT32, value_type.STRING
FIELDS = [
    ({"llama.block_count": None}, ["llama.block_count", "no integer"]),
    ({"llama.block_count": (0, U32)}, ["llama.block_count is 0", "1 to 1024"]),
    ({"llama.block_count": (2, U32)}, ["blk.1.attn_norm.weight is missing"]),
    ({"llama.block_count": ("one", STRING)}, ["llama.block_count"]),
    ({"llama.context_length": (0, U32)}, ["llama.context_length is 0"]),
    ({"llama.embedding_length": (192, U32)}, ["token_embd.weight", "[160, 261", "[192, 261]"]),
    ({"llama.feed_forward_length": (32, U32)}, ["blk.0.ffn_gate.weight", "[160, 32]"]),
    ({"llama.attention.head_count": (0, U32)}, ["llama.attention.head_count is 0"]),
    ({"llama.attention.head_count_kv": (3, U32)}, ["llama.attention.head_count_kv is 3", "1 to 2"]),
    ({"llama.attention.head_count": (3, U32), "llama.attention.head_count_kv": (2, U32)}, ["llama.attention.head_count is 3", "a multiple of the number of KV heads, 2"]),
    ({"llama.attention.head_count": (129, U32)}, ["n_heads is 129", "1 to 128 times"]),
    ({"llama.attention.key_length": (72, U32), "llama.attention.value_length": (72, U32)}, ["head_dim is 72", "64, 80, 96"]),
    ({"llama.attention.value_length": (128, U32)}, ["llama.attention.value_length is 128"]),
    ({"llama.attention.layer_norm_rms_epsilon": None}, ["llama.attention.layer_norm_rms_epsilon"]),
    ({"llama.attention.layer_norm_rms_epsilon": (float("nan"), F32)}, ["layer_norm_rms_epsilon is nan"]),
    ({"llama.rope.freq_base": (0.0, F32)}, ["llama.rope.freq_base is 0"]),
    ({"llama.rope.dimension_count": (63, U32)}, ["llama.rope.dimension_count is 63", "even"]),
    ({"llama.rope.dimension_count": (66, U32)}, ["llama.rope.dimension_count is 66", "2 to 64"]),
    ({"llama.rope.scaling.type": ("yarn", STRING)}, ['llama.rope.scaling.type is "yarn"', "linear"]),
    ({"llama.rope.scaling.type": ("linear", STRING)}, ["llama.rope.scaling.factor"]),
    ({"llama.expert_count": (8, U32)}, ["llama.expert_count is 8"]),
]


@pytest.mark.parametrize("fields, parts", FIELDS, ids=[parts[0] for _, parts in FIELDS])
def test_fields(bin_dir, tmp_path, fields, parts):
    text = message(bin_dir, tmp_path, fields=fields)
    assert all(part in text for part in parts), text


ones = np.ones
TENSORS = [
    ({"output_norm.weight": None}, ["output_norm.weight is missing"]),
    ({"output_norm.weight": (ones((1, 160), np.float32), Type.Q8_0)}, ["output_norm.weight has type Q8_0", "F32, F16 or BF16"]),
    ({"blk.0.attn_q.weight": (ones((128, 128), np.float32), Type.F32)}, ["blk.0.attn_q.weight", "[160, 128]"]),
    ({"blk.0.attn_v.weight": (np.zeros((64, 200), np.uint8), Type.Q8_1)},
     ["blk.0.attn_v.weight has type Q8_1; supported: F32, F16, Q4_0, ", "Q6_K, IQ4_NL, BF16 "]),
    ({"blk.0.attn_q.bias": (ones(128, np.float32), Type.F32)}, ["blk.0.attn_q.bias", "bias"]),
    ({"rope_freqs.weight": (ones(31, np.float32), Type.F32)}, ["rope_freqs.weight", "[32, 1]"]),
    ({"rope_freqs.weight": (np.zeros(32, np.float32), Type.F32)}, ["rope_freqs.weight has 0 at 0"]),
]


@pytest.mark.parametrize("tensors, parts", TENSORS, ids=[parts[0] for _, parts in TENSORS])
def test_tensors(bin_dir, tmp_path, tensors, parts):
    text = message(bin_dir, tmp_path, tensors=tensors)
    assert all(part in text for part in parts), text
