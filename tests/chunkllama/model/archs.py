"""How the architectures differ, as their models were published: for the oracle, and for the files of random models."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Arch:
    permuted: bool = False  # rows of Q and K in GGUF, for rotation in pairs (2i, 2i + 1)
    pairs: bool = False  # rotates pairs (2i, 2i + 1) as published; otherwise halves
    layer_norm: bool = False  # norms subtract the mean
    before: bool = True  # attention and feed-forward block have norms before them,
    behind: bool = False  # and behind them
    parallel: bool = False  # both have the same input
    ffn_norm: str = "ffn_norm"
    qk_norm: str = ""  # of each "head", of each head with its "own" weights, or of "all" heads
    qk_norm_rotated: bool = False
    gated: bool = True
    fused: bool = False  # matrices: Q, K and V are one, gate and up another
    fused_gate: bool = False  # only the latter
    gelu: bool = False
    biases: str = ""  # words: qkv output ffn norm
    plain_every: int = 0  # each such layer is not rotated
    plain_full: bool = False  # nor are layers without a window, if there are windows
    full_every: int = 0  # each such layer has no window
    window_base: float = 0  # RoPE's in layers with a window
    window_unscaled: bool = False
    embedding_root: bool = False
    logits_divided: bool = False
    wide_scale_layers: int = 0
    scores: str = "softmax"  # of a router
    normalised: bool = True  # weights of experts
    shared_router: bool = False
    choice_bias: bool = False
    clamped: bool = False  # the SwiGLU of gpt-oss
    sinks: bool = False  # logits of heads without a value
    expert_biases: bool = False  # and the router's
    yarn_unrounded: bool = False  # its ramp begins and ends between pairs
    beside: bool = False  # experts are beside a dense block, and each of the two has norms of its own
    v_norm: bool = False  # of each head, without weights
    unscaled: bool = False  # scores are q.k
    altup: bool = False  # rows have several states, layers a low-rank product beside attention, and gates are cut
    layer_scale: bool = False  # x is multiplied by a number at the end of a layer


ARCHS = {
    "llama": Arch(permuted=True),
    "mistral3": Arch(permuted=True),
    "qwen2": Arch(biases="qkv"),
    "qwen3": Arch(qk_norm="head"),
    "qwen2moe": Arch(biases="qkv", normalised=False, shared_router=True),
    "qwen3moe": Arch(qk_norm="head"),
    "gemma": Arch(gelu=True, embedding_root=True),
    "gemma2": Arch(gelu=True, embedding_root=True, behind=True, full_every=2, wide_scale_layers=46),
    "gemma3": Arch(gelu=True, embedding_root=True, behind=True, qk_norm="head", full_every=6, window_base=10000.0,
                   window_unscaled=True, wide_scale_layers=62),
    "gemma3n": Arch(gelu=True, embedding_root=True, behind=True, qk_norm="head", v_norm=True, unscaled=True, altup=True, full_every=5,
                    window_base=10000.0, window_unscaled=True),
    "gemma4": Arch(gelu=True, embedding_root=True, behind=True, qk_norm="head", v_norm=True, unscaled=True, layer_scale=True, full_every=6,
                   window_base=10000.0, window_unscaled=True, beside=True),
    "phi3": Arch(fused=True),
    "granite": Arch(permuted=True, logits_divided=True),
    "granitemoe": Arch(permuted=True, logits_divided=True),
    "smollm3": Arch(permuted=True, plain_every=4),
    "olmo2": Arch(before=False, behind=True, qk_norm="all", full_every=4, window_unscaled=True),
    "olmoe": Arch(qk_norm="all", normalised=False),
    "exaone4": Arch(before=False, behind=True, qk_norm="head", full_every=4, plain_full=True),
    "glm4": Arch(pairs=True, behind=True, fused_gate=True, biases="qkv"),
    "glm4moe": Arch(qk_norm="head", ffn_norm="post_attention_norm", biases="qkv", scores="sigmoid", choice_bias=True),
    "gpt-oss": Arch(ffn_norm="post_attention_norm", biases="qkv output", full_every=2, clamped=True, sinks=True, expert_biases=True,
                    yarn_unrounded=True),
    "seed_oss": Arch(ffn_norm="post_attention_norm", biases="qkv"),
    "ernie4_5": Arch(pairs=True),
    "ernie4_5-moe": Arch(pairs=True, choice_bias=True),
    "command-r": Arch(pairs=True, layer_norm=True, parallel=True, qk_norm="own"),
    "cohere2": Arch(pairs=True, layer_norm=True, parallel=True, full_every=4, plain_full=True),
    "hunyuan-dense": Arch(qk_norm="head", qk_norm_rotated=True),
    "starcoder2": Arch(layer_norm=True, gated=False, gelu=True, biases="qkv output ffn norm"),
}  # fmt: skip
