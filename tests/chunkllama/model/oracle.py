"""Models in float64 NumPy, written from their published definitions: the independent reference for logits.

Reads a GGUF file with PyPI `gguf`, dequantises every weight, and attends plainly over all pairs of positions. All architectures
rotate as published; a llama file's rows of Q and K are permuted for rotation in pairs (2i, 2i + 1), and put back here.
A Gemma file's norms hold 1 + w already.

Three options introduce the differences that the program may have, so that their size can be measured on the oracle alone:
`quantise` rounds the activations before a quantised matrix to int8 per block of 32, as chunkllama/linear/linear_kernels.h defines it,
`bf16` rounds those before a BF16 matrix to bf16, as the levels avx512_bf16 and amx do, and `kv` rounds what goes through attention as
K and V of that type are stored and multiplied.
"""

import dataclasses

import gguf
import numpy as np
from archs import ARCHS, Arch
from gguf.quants import dequantize
from random_blocks import BLOCKS

QUANTISED = {gguf.GGMLQuantizationType[t] for t in BLOCKS}


@dataclasses.dataclass
class Model:
    arch: Arch
    weights: dict  # name: (float32 array [n_out][n_in] or [n], tensor type)
    n_layers: int
    n_heads: int
    n_kv_heads: list  # [n_layers]
    head_dim: list  # [n_layers]
    eps: float
    frequencies: list  # [n_layers] of arrays [n_rot / 2]
    magnitudes: list  # [n_layers] of rotated vectors
    windows: list  # [n_layers] positions that a row sees
    scale: float  # of scores; 0: 1 / sqrt(head_dim)
    score_cap: float = 0
    logit_cap: float = 0
    embedding_scale: float = 1
    residual_scale: float = 1
    logit_scale: float = 1
    query_beta: float = 0  # queries grow with log(1 + position / period)
    query_period: int = 1
    n_used: int = 0  # experts of a row
    n_groups: int = 1  # of experts
    n_groups_used: int = 1
    expert_scale: float = 1
    kv_source: list = ()  # [n_layers] the layer whose K and V a layer attends over
    cuts: list = ()  # [n_layers] of gates, in standard deviations above their mean
    n_states: int = 1  # of a row
    layer_embd: int = 0  # length of the embeddings that layers have for themselves


def yarn(arch, frequencies, get, n_rot):
    """YaRN (arXiv 2309.00071): the frequencies of a model, and the magnitude of rotated vectors."""
    factor, trained = get("rope.scaling.factor"), get("rope.scaling.original_context_length")
    base = get("rope.freq_base", 10000.0)

    def pair(turns):
        return n_rot * np.log(trained / (turns * 2 * np.pi)) / (2 * np.log(base))

    low, high = pair(get("rope.scaling.yarn_beta_fast", 32.0)), pair(get("rope.scaling.yarn_beta_slow", 1.0))
    if not arch.yarn_unrounded:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, n_rot - 1)
    ramp = np.clip((np.arange(n_rot // 2) - low) / max(high - low, 0.001), 0, 1)
    weight = get("rope.scaling.yarn_log_multiplier", 0)
    given = get("rope.scaling.attn_factor", 1)
    magnitude = given if given != 1 else (1 + 0.1 * np.log(factor)) / (1 + 0.1 * weight * np.log(factor))
    return frequencies * (1 - ramp) + frequencies / factor * ramp, magnitude


def rope(arch, get, weights, n_rot, ctx):
    """Frequencies and magnitude of the layers without a window, and the frequencies before scaling."""
    plain = get("rope.freq_base", 10000.0) ** (-np.arange(0, n_rot, 2) / n_rot)
    frequencies, magnitude = plain, 1.0
    kind = get("rope.scaling.type", "none")
    if kind == "linear":
        frequencies = plain / get("rope.scaling.factor")
    if kind == "yarn":
        frequencies, magnitude = yarn(arch, plain, get, n_rot)
    divisors = "rope_freqs"
    if kind == "longrope":
        divisors = "rope_factors_long" if ctx > get("rope.scaling.original_context_length") else "rope_factors_short"
    if divisors in weights:
        frequencies = frequencies / weights[divisors][0]
    return frequencies, magnitude * (get("rope.scaling.attn_factor", 1) if kind != "yarn" else 1), plain


def load(path, ctx=None):
    """ctx: the context of the engine, if it is not that of the file."""
    reader = gguf.GGUFReader(path)

    name = reader.get_field("general.architecture").contents()
    arch = ARCHS[name]
    sections = reader.get_field(f"{name}.rope.dimension_sections")
    if sections and any(sections.contents()):
        arch = dataclasses.replace(arch, pairs=False)

    def get(key, default=None):
        field = reader.get_field(f"{name}.{key}")
        return default if field is None else field.contents()

    weights = {}
    for tensor in reader.tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        values = values.reshape([int(n) for n in tensor.shape[::-1]])
        weights[tensor.name.removesuffix(".weight")] = (values, tensor.tensor_type)
    n_heads, n_layers, n_embd = get("attention.head_count"), get("block_count"), get("embedding_length")
    n_kv_heads = get("attention.head_count_kv", n_heads)
    n_kv_heads = n_kv_heads if isinstance(n_kv_heads, list) else [n_kv_heads] * n_layers
    head_dim = get("attention.key_length", n_embd // n_heads)
    window_dim = get("attention.key_length_swa", head_dim)
    frequencies, magnitude, unscaled = rope(arch, get, weights, get("rope.dimension_count", head_dim), ctx or get("context_length"))
    eps = get("attention.layer_norm_epsilon" if arch.layer_norm else "attention.layer_norm_rms_epsilon")
    window = get("attention.sliding_window") or np.inf
    model = Model(arch, weights, n_layers, n_heads, n_kv_heads, [window_dim] * n_layers, eps, [frequencies] * n_layers,
                  [magnitude] * n_layers, [window] * n_layers, get("attention.scale", 1 if arch.unscaled else 0))  # fmt: skip
    if arch.window_base:
        unscaled = arch.window_base ** (-np.arange(0, window_dim, 2) / window_dim)
    pattern = get("attention.sliding_window_pattern") or [not arch.full_every or (i + 1) % arch.full_every for i in range(n_layers)]
    model.kv_source, own = list(range(n_layers)), n_layers - get("attention.shared_kv_layers", 0)
    model.n_states, model.cuts = get("altup.num_inputs", 1), get("activation_sparsity_scale", [-np.inf] * n_layers)
    model.layer_embd = get("embedding_length_per_layer_input", 0)
    for i in range(n_layers):
        full = window == np.inf or not pattern[i]
        if full:
            model.windows[i], model.head_dim[i] = np.inf, head_dim
        if i >= own:
            model.kv_source[i] = max(k for k in range(own) if model.windows[k] == model.windows[i])
        if arch.window_unscaled and not full:
            model.frequencies[i], model.magnitudes[i] = unscaled, 1
        untrained = arch.logits_divided and not get("rope.scaling.finetuned", True)
        if untrained or (arch.plain_every and i % arch.plain_every == arch.plain_every - 1) or (arch.plain_full and full and window < np.inf):
            model.frequencies[i], model.magnitudes[i] = np.zeros_like(frequencies), 1
    if n_layers == arch.wide_scale_layers:  # Gemma's 27B models
        model.scale = (n_embd / n_heads) ** -0.5
    model.score_cap, model.logit_cap = get("attn_logit_softcapping", 0), get("final_logit_softcapping", 0)
    model.embedding_scale = n_embd**0.5 if arch.embedding_root else get("embedding_scale", 1)
    model.residual_scale = get("residual_scale", 1)
    model.logit_scale = 1 / get("logit_scale", 1) if arch.logits_divided else get("logit_scale", 1)
    model.n_used, model.expert_scale = get("expert_used_count", 0), get("expert_weights_scale", 1)
    model.n_groups, model.n_groups_used = get("expert_group_count", 1), get("expert_group_used_count", 1)
    model.query_beta = get("attention.temperature_scale", 0)
    model.query_period = get("rope.scaling.original_context_length", 1)
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


def rotate(model, layer, x):
    """The leading dimensions of each head: x [n][heads][d]."""
    frequencies = model.frequencies[layer]
    angles = np.arange(len(x))[:, None, None] * frequencies
    cos, sin = model.magnitudes[layer] * np.cos(angles), model.magnitudes[layer] * np.sin(angles)
    n = len(frequencies)
    out = x.copy()
    first, second = (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if model.arch.pairs else (slice(0, n), slice(n, 2 * n))
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def rotated(model, layer, q, k):
    q, k = rotate(model, layer, q), rotate(model, layer, k)
    growth = 1 + model.query_beta * np.log1p(np.arange(len(q)) // model.query_period)
    if model.arch.qk_norm_rotated:
        q, k = (norm(model, f"blk.{layer}.attn_{name}_norm", x) for name, x in (("q", q), ("k", k)))
    return q * growth[:, None, None], k


def norm(model, name, x):
    """x unchanged if the model has no such norm."""
    if name not in model.weights:
        return x
    if model.arch.layer_norm:
        x = x - x.mean(-1, keepdims=True)
    y = plain_norm(model, x) * model.weights[name][0].astype(np.float64)
    return y + model.weights[name + ".bias"][0] if name + ".bias" in model.weights else y


def plain_norm(model, x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + model.eps)


def gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def matched(x, y):
    """y scaled to the mean square of x."""
    return y * np.sqrt((x * x).mean(-1, keepdims=True) / np.maximum((y * y).mean(-1, keepdims=True), 1e-5))


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
    group, scale = model.n_heads // k.shape[1], model.scale or q.shape[-1] ** -0.5
    back = np.arange(n)[:, None] - np.arange(n)
    hidden = np.where((back >= 0) & (back < model.windows[layer]), 0, -np.inf)
    out = np.empty_like(q)
    for head in range(model.n_heads):
        scores = capped(q[:, head] @ k[:, head // group].T * scale, model.score_cap) + hidden
        sink = model.weights[f"blk.{layer}.attn_sinks"][0][head] if model.arch.sinks else -np.inf
        largest = np.maximum(scores.max(-1, keepdims=True), sink)
        p = np.exp(scores - largest)
        total = p.sum(-1, keepdims=True) + np.exp(sink - largest)
        out[:, head] = (rounded(p, kv) if kv == "bf16" else p) @ v[:, head // group] / total
    return out.reshape(n, -1)


def route(model, scores, bias):
    """The experts of each row and their weights, from scores [n][experts]."""
    choice = scores + bias
    if model.n_groups > 1:
        groups = choice.reshape(len(choice), model.n_groups, -1)
        best = np.sort(groups, -1)[..., -2:].sum(-1)
        unused = np.argsort(-best, -1, kind="stable")[:, model.n_groups_used :]
        np.put_along_axis(groups, unused[..., None], -np.inf, 1)
    chosen = np.argsort(-choice, -1, kind="stable")[:, : model.n_used]
    weights = np.take_along_axis(scores, chosen, -1)
    if model.arch.normalised:
        weights = weights / weights.sum(-1, keepdims=True)
    return chosen, weights * model.expert_scale


def logits(model, sequences, quantise=False, kv="f32", bf16=False, states=False):
    """Logits of all positions of each sequence: a list of float64 [n][n_vocab]. states: the input of the output layer instead."""

    def weight(name):
        return model.weights[name][0].astype(np.float64)

    def linear(name, x):
        kind = model.weights[name][1]
        if quantise and kind in QUANTISED:
            x = int8_blocks(x)
        if bf16 and kind == gguf.GGMLQuantizationType.BF16:
            x = rounded(x, "bf16")
        y = x @ weight(name).T
        return y + weight(name + ".bias") if name + ".bias" in model.weights else y

    def parts(name, *sizes):
        """Rows of a matrix that holds several, as matrices of their own."""
        values, kind = model.weights.pop(name)
        return [(part, kind) for part in np.split(values, np.cumsum(sizes)[:-1])]

    arch = model.arch
    for name in list(model.weights):
        if name.endswith("_exps") or name in ("altup_proj", "altup_unembd_proj"):
            values, kind = model.weights.pop(name)
            model.weights |= {f"{name.removesuffix('_exps')}.{e}": (part, kind) for e, part in enumerate(values)}
        if name.endswith("_exps.bias"):
            values, kind = model.weights.pop(name)
            model.weights |= {f"{name.removesuffix('_exps.bias')}.{e}.bias": (part, kind) for e, part in enumerate(values)}
    for i in range(model.n_layers):
        at = f"blk.{i}."
        if at + "attn_qkv" in model.weights:
            sizes = np.array([model.n_heads, *[model.n_kv_heads[i]] * 2]) * model.head_dim[i]
            for name, part in zip("qkv", parts(at + "attn_qkv", *sizes)):
                model.weights[at + "attn_" + name] = part
        for e in range(len(model.weights.get(at + "ffn_gate_inp", [[]])[0])):
            if f"{at}ffn_gate_up.{e}" in model.weights:
                half = len(model.weights[f"{at}ffn_gate_up.{e}"][0]) // 2
                model.weights[f"{at}ffn_gate.{e}"], model.weights[f"{at}ffn_up.{e}"] = parts(f"{at}ffn_gate_up.{e}", half, half)
        if arch.gated and at + "ffn_gate" not in model.weights and at + "ffn_gate_inp" not in model.weights:
            half = len(model.weights[at + "ffn_up"][0]) // 2
            model.weights[at + "ffn_gate"], model.weights[at + "ffn_up"] = parts(at + "ffn_up", half, half)

    def heads(name, x, n_heads, d):
        """[n][n_heads][d] of Q or K."""
        y = linear(name, x)
        if arch.permuted:
            y = halves(y.T, n_heads, d).T
        if arch.qk_norm == "all":
            return norm(model, name + "_norm", y).reshape(-1, n_heads, d)
        y = y.reshape(-1, n_heads, d)
        if arch.qk_norm == "own":
            weights = model.weights[name + "_norm"][0].astype(np.float64).reshape(n_heads, d)
            return plain_norm(model, y - y.mean(-1, keepdims=True)) * weights
        return y if arch.qk_norm_rotated else norm(model, name + "_norm", y)

    def block(x, gate, up, down, cut=-np.inf):
        h = linear(gate if arch.gated else up, x)
        if arch.clamped:
            h, u = h.clip(max=7), linear(up, x).clip(-7, 7)
            return linear(down, h / (1 + np.exp(-1.702 * h)) * (u + 1))
        if cut > -np.inf:
            h = np.maximum(h - (h.mean(-1, keepdims=True) + cut * h.std(-1, keepdims=True)), 0)
        if arch.gelu:
            h = gelu(h)
        else:
            h = h / (1 + np.exp(-h))
        return linear(down, h * linear(up, x) if arch.gated else h)

    def dense(at, x):
        return block(x, *(at + "ffn_" + part for part in ("gate", "up", "down")), model.cuts[int(at.split(".")[1])])

    def feed_forward(at, before, x):
        """x: the norm of the residual stream `before`."""
        if at + "ffn_gate_inp" not in model.weights:
            return dense(at, x)
        if not arch.beside:
            return mixture(at, x, x)
        routed = plain_norm(model, before) * weight(at + "ffn_gate_inp.scale") / np.sqrt(before.shape[-1])
        y = mixture(at, norm(model, at + "pre_ffw_norm_2", before), routed)
        return norm(model, at + "post_ffw_norm_1", dense(at, x)) + norm(model, at + "post_ffw_norm_2", y)

    def mixture(at, x, routed):
        scores = routed @ weight(at + "ffn_gate_inp").T
        if arch.expert_biases:
            scores = scores + weight(at + "ffn_gate_inp.bias")
        if arch.scores == "softmax":
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
        else:
            scores = 1 / (1 + np.exp(-scores))
        bias = model.weights[at + "exp_probs_b.bias"][0].astype(np.float64) if arch.choice_bias else 0
        y = np.zeros_like(x)
        for row, (chosen, shares) in enumerate(zip(*route(model, scores, bias))):
            if at + "ffn_down_exps.scale" in model.weights:
                shares = shares * weight(at + "ffn_down_exps.scale")[chosen]
            for expert, share in zip(chosen, shares):
                y[row] += share * block(x[row : row + 1], *(f"{at}ffn_{part}.{expert}" for part in ("gate", "up", "down")))[0]
        if at + "ffn_gate_shexp" in model.weights:
            shared = block(x, *(f"{at}ffn_{part}_shexp" for part in ("gate", "up", "down")))
            if arch.shared_router:
                shared /= 1 + np.exp(-(x @ weight(at + "ffn_gate_inp_shexp").reshape(-1, 1)))
            y += shared
        return y

    def modes(at, x):
        return np.tanh(norm(model, at + "altup_router_norm", x) / x.shape[-1] @ weight(at + "altup_router").T)

    def predict(at, states):
        n = model.n_states
        factors = (modes(at, states[0]) @ weight(at + "altup_predict_coef").T).reshape(-1, n, n)  # to, from
        return states + np.einsum("rtf,frj->trj", factors, states)

    def correct(at, predicted, x):
        factors = modes(at, x) @ weight(at + "altup_correct_coef").T + 1
        return predicted + factors.T[..., None] * (x - predicted[0])

    lengths = [len(s) for s in sequences]
    cuts = np.cumsum(lengths)[:-1]
    tokens = np.concatenate(sequences)
    x = model.weights["token_embd"][0][tokens].astype(np.float64) * model.embedding_scale
    if model.layer_embd:
        width = model.layer_embd
        projected = linear("per_layer_model_proj", x).reshape(len(x), -1, width) / np.sqrt(x.shape[-1])
        table = model.weights["per_layer_token_embd"][0]
        of_tokens = table[np.where(tokens < len(table), tokens, 0)].astype(np.float64).reshape(len(x), -1, width) * np.sqrt(width)
        layer_embd = (norm(model, "per_layer_proj_norm", projected) + of_tokens) / np.sqrt(2)
    stored = {}
    if model.n_states > 1:
        every = np.stack([x, *(matched(x, linear(f"altup_proj.{k}", x)) for k in range(model.n_states - 1))])
    for i in range(model.n_layers):
        at, d = f"blk.{i}.", model.head_dim[i]
        if model.n_states > 1:
            predicted = predict(at, every)
            x = predicted[0]
        h = norm(model, at + "attn_norm", x)
        q = heads(at + "attn_q", h, model.n_heads, d)
        if model.kv_source[i] == i:
            v = linear(at + ("attn_v" if at + "attn_v" in model.weights else "attn_k"), h).reshape(len(x), -1, d)
            stored[i] = heads(at + "attn_k", h, model.n_kv_heads[i], d), plain_norm(model, v) if arch.v_norm else v
        k, v = stored[model.kv_source[i]]
        qkv = zip(np.split(q, cuts), np.split(k, cuts), np.split(v, cuts))
        attended = linear(at + "attn_output", np.concatenate([attend(model, i, *part, kv) for part in qkv]))
        if arch.behind:
            attended = norm(model, at + "post_attention_norm", attended)
        x = x + attended * model.residual_scale
        if arch.altup:
            laurel = h + norm(model, at + "laurel_post_norm", linear(at + "laurel_r", linear(at + "laurel_l", h)))
            x = (x + laurel) / np.sqrt(2)
        h = h if arch.parallel else norm(model, at + arch.ffn_norm, x)
        x = x + norm(model, at + "post_ffw_norm", feed_forward(at, x, h)) * model.residual_scale
        if model.n_states > 1:
            every = correct(at, predicted, x)
            own = gelu(linear(at + "inp_gate", every[0] * weight(at + "altup_correct_scale"))) * layer_embd[:, i]
            every[1:] += norm(model, at + "post_norm", linear(at + "proj", own))
        elif model.layer_embd:
            own = gelu(linear(at + "inp_gate", x)) * layer_embd[:, i]
            x = x + norm(model, at + "post_norm", linear(at + "proj", own))
        if at + "layer_output_scale" in model.weights:
            x = x * weight(at + "layer_output_scale")
    if model.n_states > 1:
        x = (every[0] + sum(matched(every[0], linear(f"altup_unembd_proj.{k}", every[k + 1])) for k in range(model.n_states - 1))) / model.n_states
    x = norm(model, "output_norm", x)
    if states:
        return np.split(x, cuts)
    out = linear("output" if "output" in model.weights else "token_embd", x) * model.logit_scale
    return np.split(capped(out, model.logit_cap), cuts)
