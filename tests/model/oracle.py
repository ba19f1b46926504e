"""A llama model in float64 NumPy, written from its published definition: the independent source that logits are held to.

Reads a GGUF file with PyPI `gguf`, dequantises every weight, and attends plainly over all pairs of positions. The file's rows of
Q and K are permuted for rotation in pairs (2i, 2i + 1); here they are put back and rotated in halves, as the model was published.

Two options make the differences that the program is allowed, so that their size can be measured on the oracle alone:
`quantise` rounds the activations before a quantised matrix to int8 per block of 32, as llama/linear_kernels.h defines it, and
`kv` rounds what goes through attention as K and V of that type are stored and multiplied.
"""

import dataclasses

import gguf
import numpy as np
from gguf.quants import dequantize

QUANTISED = {gguf.GGMLQuantizationType[t] for t in ("Q4_0", "Q4_1", "Q8_0")}


@dataclasses.dataclass
class Model:
    weights: dict  # name: (float32 array [n_out][n_in] or [n], whether it is quantised)
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    eps: float
    frequencies: np.ndarray  # [head_dim / 2]


def load(path):
    reader = gguf.GGUFReader(path)

    def get(key, default=None):
        field = reader.get_field("llama." + key)
        return default if field is None else field.contents()

    weights = {}
    for tensor in reader.tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        values = values.reshape([int(n) for n in tensor.shape[::-1]])
        weights[tensor.name.removesuffix(".weight")] = (values, tensor.tensor_type in QUANTISED)
    n_heads = get("attention.head_count")
    head_dim = get("attention.key_length", get("embedding_length") // n_heads)
    frequencies = get("rope.freq_base", 10000.0) ** (-np.arange(0, head_dim, 2) / head_dim)
    if get("rope.scaling.type", "none") == "linear":
        frequencies = frequencies / get("rope.scaling.factor")
    if "rope_freqs" in weights:
        frequencies = frequencies / weights["rope_freqs"][0]
    n_kv_heads = get("attention.head_count_kv", n_heads)
    eps = get("attention.layer_norm_rms_epsilon")
    return Model(weights, get("block_count"), n_heads, n_kv_heads, head_dim, eps, frequencies)


def int8_blocks(x):
    """x as int8 per block of 32 says it: scale and product in float32, like the kernels."""
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, 32)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    scale = ((scale.view(np.uint32) + 3) & ~np.uint32(3)).view(np.float32)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    return (np.rint(blocks * inverse).astype(np.float64) * scale).reshape(x.shape)


def rounded(x, kv):
    """x as a stored type holds it."""
    if kv == "f16":
        return x.astype(np.float16).astype(np.float64)
    if kv == "bf16":
        bits = x.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    if kv == "int8":  # a scale for each vector, lib/cache/layout.h
        x = x.astype(np.float32)
        most = np.abs(x).max(-1, keepdims=True)
        return np.rint(x * (np.float32(127) / most)).astype(np.float64) * (most / np.float32(127))
    return x


def halves(matrix, n_heads, head_dim):
    """Rows of Q or K from pairs (2i, 2i + 1) to halves (i, i + head_dim / 2)."""
    return matrix.reshape(n_heads, head_dim // 2, 2, -1).swapaxes(1, 2).reshape(n_heads * head_dim, -1)


def rotate(x, cos, sin):
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rotated(model, q, k):
    angles = np.arange(len(q))[:, None, None] * model.frequencies
    return rotate(q, np.cos(angles), np.sin(angles)), rotate(k, np.cos(angles), np.sin(angles))


def attend(model, q, k, v, kv):
    """One sequence: q [n][heads][d], k and v [n][kv_heads][d] to [n][heads * d]."""
    return attend_rotated(model, *rotated(model, q, k), v, kv)


def attend_rotated(model, q, k, v, kv):
    """bf16 also rounds q and the probabilities, since bf16 dot products take both sides in bf16."""
    n = len(q)
    k, v = rounded(k, kv), rounded(v, kv)
    if kv == "bf16":
        q = rounded(q, kv)
    group = model.n_heads // model.n_kv_heads
    hidden = np.triu(np.full((n, n), -np.inf), 1)
    out = np.empty_like(q)
    for head in range(model.n_heads):
        scores = q[:, head] @ k[:, head // group].T / np.sqrt(model.head_dim) + hidden
        p = np.exp(scores - scores.max(-1, keepdims=True))
        total = p.sum(-1, keepdims=True)
        out[:, head] = (rounded(p, kv) if kv == "bf16" else p) @ v[:, head // group] / total
    return out.reshape(n, -1)


def logits(model, sequences, quantise=False, kv="f32"):
    """Logits of all positions of each sequence: a list of float64 [n][n_vocab]."""

    def weight(name):
        return model.weights[name][0].astype(np.float64)

    def linear(name, x, order=lambda w: w):
        quantised = model.weights[name][1]
        return (int8_blocks(x) if quantise and quantised else x) @ order(weight(name)).T

    def norm(name, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + model.eps) * weight(name)

    lengths = [len(s) for s in sequences]
    cuts = np.cumsum(lengths)[:-1]
    tokens = np.concatenate(sequences)
    x = model.weights["token_embd"][0][tokens].astype(np.float64)
    d = model.head_dim
    for i in range(model.n_layers):
        at = f"blk.{i}."
        h = norm(at + "attn_norm", x)
        q = linear(at + "attn_q", h, lambda w: halves(w, model.n_heads, d)).reshape(-1, model.n_heads, d)
        k = linear(at + "attn_k", h, lambda w: halves(w, model.n_kv_heads, d)).reshape(-1, model.n_kv_heads, d)
        v = linear(at + "attn_v", h).reshape(-1, model.n_kv_heads, d)
        parts = zip(np.split(q, cuts), np.split(k, cuts), np.split(v, cuts))
        x = x + linear(at + "attn_output", np.concatenate([attend(model, *p, kv) for p in parts]))
        h = norm(at + "ffn_norm", x)
        gate = linear(at + "ffn_gate", h)
        x = x + linear(at + "ffn_down", gate / (1 + np.exp(-gate)) * linear(at + "ffn_up", h))
    out = linear("output" if "output" in model.weights else "token_embd", norm("output_norm", x))
    return np.split(out, cuts)
