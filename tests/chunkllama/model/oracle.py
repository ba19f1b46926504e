"""Models in float64 NumPy, written from their published definitions: the independent reference for logits.

Reads a GGUF file with PyPI `gguf`, dequantises every weight, and attends plainly over all pairs of positions. All architectures
rotate in halves as published; a llama file's rows of Q and K are permuted for rotation in pairs (2i, 2i + 1), and put back here.
A Gemma file's norms hold 1 + w already.

Three options introduce the differences that the program may have, so that their size can be measured on the oracle alone:
`quantise` rounds the activations before a quantised matrix to int8 per block of 32, as chunkllama/linear/linear_kernels.h defines it,
`bf16` rounds those before a BF16 matrix to bf16, as the levels avx512_bf16 and amx do, and `kv` rounds what goes through attention as
K and V of that type are stored and multiplied.
"""

import dataclasses

import gguf
import numpy as np
from gguf.quants import dequantize
from random_blocks import BLOCKS

QUANTISED = {gguf.GGMLQuantizationType[t] for t in BLOCKS}


@dataclasses.dataclass
class Model:
    weights: dict  # name: (float32 array [n_out][n_in] or [n], tensor type)
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    eps: float
    frequencies: np.ndarray  # [n_layers][head_dim / 2]
    windows: list  # [n_layers] positions that a row sees
    scale: float  # of scores
    score_cap: float = 0
    logit_cap: float = 0
    embedding_scale: float = 1
    permuted: bool = False  # rows of Q and K
    gelu: bool = False


def load(path):
    reader = gguf.GGUFReader(path)

    arch = reader.get_field("general.architecture").contents()

    def get(key, default=None):
        field = reader.get_field(f"{arch}.{key}")
        return default if field is None else field.contents()

    weights = {}
    for tensor in reader.tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        values = values.reshape([int(n) for n in tensor.shape[::-1]])
        weights[tensor.name.removesuffix(".weight")] = (values, tensor.tensor_type)
    n_heads = get("attention.head_count")
    head_dim = get("attention.key_length", get("embedding_length") // n_heads)
    exponents = -np.arange(0, head_dim, 2) / head_dim
    frequencies = get("rope.freq_base", 10000.0) ** exponents
    if get("rope.scaling.type", "none") == "linear":
        frequencies = frequencies / get("rope.scaling.factor")
    if "rope_freqs" in weights:
        frequencies = frequencies / weights["rope_freqs"][0]
    n_kv_heads = get("attention.head_count_kv", n_heads)
    eps = get("attention.layer_norm_rms_epsilon")
    n_layers = get("block_count")
    window = get("attention.sliding_window") or np.inf
    model = Model(weights, n_layers, n_heads, n_kv_heads, head_dim, eps, np.tile(frequencies, (n_layers, 1)), [window] * n_layers,
                  head_dim**-0.5, permuted=arch == "llama")  # fmt: skip
    if arch == "gemma3":
        # Five of six layers see a window, in which positions turn at the base of the models before; the sixth sees all.
        for i in range(n_layers):
            if i % 6 == 5:
                model.windows[i] = np.inf
            else:
                model.frequencies[i] = 10000.0**exponents
        if n_layers == 62:  # the 27B model: query_pre_attn_scalar is 5376 / 32
            model.scale = (get("embedding_length") / n_heads) ** -0.5
        model.score_cap, model.logit_cap = get("attn_logit_softcapping", 0), get("final_logit_softcapping", 0)
        model.embedding_scale = get("embedding_length") ** 0.5
        model.gelu = True
    return model


def int8_blocks(x):
    """x rounded to int8 in blocks of 32, with scales and products in float32, as the kernels do."""
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, 32)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    scale = ((scale.view(np.uint32) + 3) & ~np.uint32(3)).view(np.float32)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    return (np.rint(blocks * inverse).astype(np.float64) * scale).reshape(x.shape)


def rounded(x, kv):
    """x rounded as it is stored in a K/V type."""
    if kv == "f16":
        return x.astype(np.float16).astype(np.float64)
    if kv == "bf16":
        bits = x.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    if kv == "int8":  # a scale for each vector, chunkattn/cache/layout.h
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


def rotated(model, layer, q, k):
    angles = np.arange(len(q))[:, None, None] * model.frequencies[layer]
    return rotate(q, np.cos(angles), np.sin(angles)), rotate(k, np.cos(angles), np.sin(angles))


def attend(model, layer, q, k, v, kv):
    """One sequence: q [n][heads][d], k and v [n][kv_heads][d] to [n][heads * d]."""
    return attend_rotated(model, layer, *rotated(model, layer, q, k), v, kv)


def capped(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def attend_rotated(model, layer, q, k, v, kv):
    """bf16 also rounds q and the probabilities, since bf16 dot products take both sides in bf16."""
    n = len(q)
    k, v = rounded(k, kv), rounded(v, kv)
    if kv == "bf16":
        q = rounded(q, kv)
    group = model.n_heads // model.n_kv_heads
    back = np.arange(n)[:, None] - np.arange(n)
    hidden = np.where((back >= 0) & (back < model.windows[layer]), 0, -np.inf)
    out = np.empty_like(q)
    for head in range(model.n_heads):
        scores = capped(q[:, head] @ k[:, head // group].T * model.scale, model.score_cap) + hidden
        p = np.exp(scores - scores.max(-1, keepdims=True))
        total = p.sum(-1, keepdims=True)
        out[:, head] = (rounded(p, kv) if kv == "bf16" else p) @ v[:, head // group] / total
    return out.reshape(n, -1)


def logits(model, sequences, quantise=False, kv="f32", bf16=False, states=False):
    """Logits of all positions of each sequence: a list of float64 [n][n_vocab]. states: the input of the output layer instead."""

    def weight(name):
        return model.weights[name][0].astype(np.float64)

    def linear(name, x, order=lambda w: w):
        kind = model.weights[name][1]
        if quantise and kind in QUANTISED:
            x = int8_blocks(x)
        if bf16 and kind == gguf.GGMLQuantizationType.BF16:
            x = rounded(x, "bf16")
        y = x @ order(weight(name)).T
        return y + weight(name + ".bias") if name + ".bias" in model.weights else y

    def norm(name, x):
        """x unchanged if the model has no such norm."""
        if name not in model.weights:
            return x
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + model.eps) * weight(name)

    def heads(name, x, n_heads):
        """[n][n_heads][head_dim] of Q or K."""
        y = linear(name, x, lambda w: halves(w, n_heads, d) if model.permuted else w)
        return norm(name + "_norm", y.reshape(-1, n_heads, d))

    lengths = [len(s) for s in sequences]
    cuts = np.cumsum(lengths)[:-1]
    tokens = np.concatenate(sequences)
    x = model.weights["token_embd"][0][tokens].astype(np.float64) * model.embedding_scale
    d = model.head_dim
    for i in range(model.n_layers):
        at = f"blk.{i}."
        h = norm(at + "attn_norm", x)
        q, k = heads(at + "attn_q", h, model.n_heads), heads(at + "attn_k", h, model.n_kv_heads)
        v = linear(at + "attn_v", h).reshape(-1, model.n_kv_heads, d)
        parts = zip(np.split(q, cuts), np.split(k, cuts), np.split(v, cuts))
        attended = linear(at + "attn_output", np.concatenate([attend(model, i, *p, kv) for p in parts]))
        x = x + norm(at + "post_attention_norm", attended)
        h = norm(at + "ffn_norm", x)
        gate = linear(at + "ffn_gate", h)
        if model.gelu:
            gate = gate / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        x = x + norm(at + "post_ffw_norm", linear(at + "ffn_down", gate * linear(at + "ffn_up", h)))
    x = norm("output_norm", x)
    if states:
        return np.split(x, cuts)
    out = linear("output" if "output" in model.weights else "token_embd", x)
    return np.split(capped(out, model.logit_cap), cuts)
