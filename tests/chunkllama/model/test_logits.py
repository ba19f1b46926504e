"""Logits of all positions against the float64 model in oracle.py.

Where no activation is quantised (float weights) the difference is f32 rounding, and what K and V lose in storage. Where one is,
int8 rounding is a threshold: the last bit of a value decides which way it falls, and the next layers spread that, so that two
correct implementations differ by as much as each differs from the exact model. So the bound there is what quantisation costs the
oracle itself, times two for being one sample of a random error.
"""

import json
import pathlib
import subprocess

import numpy as np
import oracle
import pytest
import write_gguf
from waiting import LIMIT_S
from write_gguf import Type, value_type

TEXTS = [
    "The tree keeps every prefix once. When two questions begin alike, the second finds what the first has computed.",
    "def area(radius):\n    return 3.14159 * radius ** 2\n",
    "In 1969 three people flew to the Moon;",
]
N_GREEDY = 32

# Largest and root-mean-square difference of a logit (they range over about 40) on SmolLM2 with F32 weights. f32: a rounding of
# 2^-24 at each of some 300 dependent steps, on sums of up to 1536 terms. f16 and bf16 K/V keep 11 and 8 bits, so they are
# 2^-12 and 2^-9 off; bf16 also rounds queries and probabilities. 30 layers add up.
F32_WEIGHTS_BOUND = {"f32": (2e-3, 2e-4), "f16": (0.05, 0.005), "bf16": (0.5, 0.06)}


def rms(a):
    return float(np.sqrt(np.mean(a * a)))


def dump(bin_dir, tmp_path, model, tokens, **options):
    """The tokens, followed by the greedily chosen ones, and the logits that logits_dump writes."""
    ids, out = tmp_path / "tokens.json", tmp_path / "logits.npy"
    ids.write_text(json.dumps([int(t) for t in tokens]))
    arguments = [f"{key}={value}" for key, value in options.items()]
    subprocess.run([bin_dir / "logits_dump", model, ids, out, *arguments], check=True, timeout=LIMIT_S)
    logits = np.load(out)
    tokens = list(tokens)
    while len(tokens) < len(logits):
        tokens.append(int(logits[len(tokens) - 1].argmax()))
    return tokens, logits


def check_top1(got, exact, bound):
    """The same likeliest token everywhere, unless both logits may be off by the bound. Returns how often that was needed."""
    chosen = got.argmax(-1)
    margin = exact.max(-1) - exact[np.arange(len(exact)), chosen]
    assert margin.max() <= 2 * bound, f"position {margin.argmax()}: another token by a margin of {margin.max():.3g}"
    return int((margin > 0).sum())


@pytest.fixture(scope="module")
def smollm2(bin_dir, model_path, tmp_path_factory):
    """Runs of SmolLM2 as it is, and the oracle's exact and quantised logits of the same tokens (greedy ones behind)."""
    tmp = tmp_path_factory.mktemp("smollm2")
    strings = "".join(json.dumps(text) + "\n" for text in TEXTS)
    command = [bin_dir / "tokenize_dump", model_path]
    done = subprocess.run(command, input=strings, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    lines = done.stdout.splitlines()
    runs = []
    for i, line in enumerate(lines):
        runs.append(dump(bin_dir, tmp, model_path, json.loads(line), kv="f32", greedy=N_GREEDY if i == len(lines) - 1 else 0))
    sequences = [tokens for tokens, _ in runs]
    model = oracle.load(model_path)
    exact = oracle.logits(model, sequences)
    quantised = oracle.logits(model, sequences, quantise=True)
    return sequences, [logits for _, logits in runs], exact, quantised


@pytest.mark.long
def test_smollm2(smollm2):
    """All positions of the texts, and 32 greedy tokens decoded one by one."""
    _, got, exact, quantised = (x if i == 0 else np.concatenate(x) for i, x in enumerate(smollm2))
    error, allowed = got - exact, quantised - exact
    bound, rms_bound = 2 * np.abs(allowed).max(), 2 * rms(allowed)
    print(f"difference {np.abs(error).max():.3g} (rms {rms(error):.3g}); bound {bound:.3g} (rms {rms_bound:.3g})")
    assert rms_bound < 0.7 and bound < 5, "quantised activations cost more than they should"
    assert rms(error) <= rms_bound
    assert np.abs(error).max() <= bound
    print(f"another token within the margin at {check_top1(got, exact, bound)} of {len(exact)} positions")


@pytest.mark.long
@pytest.mark.parametrize("kv", ["f16", "bf16"])
def test_smollm2_kv_types(bin_dir, model_path, tmp_path, smollm2, kv):
    """K/V types that round: together with quantised activations, within the bound of those and of F32_WEIGHTS_BOUND."""
    sequences, _, exact, quantised = smollm2
    got = np.concatenate([dump(bin_dir, tmp_path, model_path, s, kv=kv)[1] for s in sequences])
    exact, quantised = np.concatenate(exact), np.concatenate(quantised)
    bound = 2 * np.abs(quantised - exact).max() + F32_WEIGHTS_BOUND[kv][0]
    rms_bound = 2 * rms(quantised - exact) + F32_WEIGHTS_BOUND[kv][1]
    print(f"difference {np.abs(got - exact).max():.3g} (rms {rms(got - exact):.3g}); bound {bound:.3g} (rms {rms_bound:.3g})")
    assert rms(got - exact) <= rms_bound
    assert np.abs(got - exact).max() <= bound
    check_top1(got, exact, bound)


@pytest.mark.long
def test_smollm2_f32_weights(bin_dir, model_path, tmp_path, smollm2):
    """The same weights written out in F32: nothing is quantised, so the whole pass must agree closely."""
    sequences, _, exact, _ = smollm2
    path = tmp_path / "f32.gguf"
    write_gguf.in_f32(model_path, path)
    exact = np.concatenate(exact)
    for kv, (bound, rms_bound) in F32_WEIGHTS_BOUND.items():
        got = np.concatenate([dump(bin_dir, tmp_path, path, s, kv=kv)[1] for s in sequences])
        print(f"{kv}: difference {np.abs(got - exact).max():.3g} (rms {rms(got - exact):.3g})")
        assert np.abs(got - exact).max() <= bound
        assert rms(got - exact) <= rms_bound
        check_top1(got, exact, bound)


@pytest.mark.long
def test_smollm2_same_bits(bin_dir, model_path, tmp_path, smollm2):
    """The cut of the prefill, the threads, decoding one by one and the choice of logits change no bit."""
    tokens, expected = smollm2[0][-1], smollm2[1][-1]
    for options in ({"piece": 7}, {"piece": 1, "threads": 1}, {"threads": 1}):
        _, got = dump(bin_dir, tmp_path, model_path, tokens, kv="f32", **options)
        assert got.tobytes() == expected.tobytes(), options
    for options in ({"every": 3}, {"every": 5, "piece": 9}, {"every": 1000}):
        _, got = dump(bin_dir, tmp_path, model_path, tokens, kv="f32", **options)
        step = options["every"]
        assert got[::step].tobytes() == expected[::step].tobytes(), options


K_TYPES = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
LOW_TYPES = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "TQ1_0"]
HIGH_TYPES = ["IQ3_XXS", "IQ3_S", "IQ4_XS", "MXFP4", "TQ2_0"]
LLAMA3_FACTORS = np.concatenate([np.ones(12), np.linspace(1, 8, 10), np.full(10, 8.0)])
# Gemma 3's window, small; scaled rotation of the layers without; caps near the size of what they cap.
GEMMA3 = {"ARCH.attention.sliding_window": (24, value_type.UINT32), "ARCH.final_logit_softcapping": (4.0, value_type.FLOAT32)}
GEMMA3_CAPPED = GEMMA3 | {"ARCH.attn_logit_softcapping": (2.0, value_type.FLOAT32)}


def fields(**values):
    """Metadata under the keys of the architecture; `_` is a dot where two are written."""
    types = {int: value_type.UINT32, float: value_type.FLOAT32, str: value_type.STRING}
    return {"ARCH." + key.replace("__", "."): (value, types[type(value)]) for key, value in values.items()}


WINDOW = fields(attention__sliding_window=24)
CAPS = fields(attn_logit_softcapping=2.0, final_logit_softcapping=4.0)
YARN = fields(rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__original_context_length=32)
LONGROPE = fields(rope__scaling__type="longrope", rope__scaling__attn_factor=1.25, rope__scaling__original_context_length=64)
GRANITE = fields(attention__scale=0.25, embedding_scale=6.0, residual_scale=0.25, logit_scale=4.0)
LOGIT_SCALE = fields(logit_scale=0.25)
FAMILIES = {  # name: a small model of each architecture that is not among the models below
    "mistral3": dict(n_heads=4, n_kv_heads=2, head_dim=64, rope_base=1e6,
                     replace_fields=YARN | fields(rope__scaling__yarn_log_multiplier=1.0, attention__temperature_scale=0.1)),
    "gemma": dict(n_heads=4, n_kv_heads=1, head_dim=64, tied=True),
    "gemma2": dict(n_heads=4, n_kv_heads=2, head_dim=64, tied=True, replace_fields=WINDOW | CAPS),
    "phi3": dict(n_heads=4, n_kv_heads=2, head_dim=64, n_rot=48, rope_factors_long=np.linspace(1, 40, 24),
                 rope_factors_short=np.linspace(1, 3, 24), replace_fields=LONGROPE),
    "granite": dict(n_heads=4, n_kv_heads=2, head_dim=64, tied=True, replace_fields=GRANITE),
    "smollm3": dict(n_heads=4, n_kv_heads=1, head_dim=64, n_layers=5, rope_base=2e6, tied=True),
    "olmo2": dict(n_heads=4, n_kv_heads=2, head_dim=64, n_layers=5, replace_fields=WINDOW | YARN | fields(rope__scaling__attn_factor=1.2)),
    "exaone4": dict(n_heads=4, n_kv_heads=2, head_dim=64, n_layers=5, rope_base=1e6, replace_fields=WINDOW),
    "glm4": dict(n_heads=4, n_kv_heads=2, head_dim=64, n_rot=32),
    "seed_oss": dict(n_heads=5, n_kv_heads=1, head_dim=64, rope_base=1e7),
    "ernie4_5": dict(n_heads=4, n_kv_heads=2, head_dim=64, rope_base=5e5, tied=True),
    "command-r": dict(n_heads=4, n_kv_heads=4, head_dim=64, tied=True, replace_fields=LOGIT_SCALE),
    "cohere2": dict(n_heads=4, n_kv_heads=2, head_dim=64, n_layers=5, tied=True, replace_fields=WINDOW | LOGIT_SCALE),
    "hunyuan-dense": dict(n_heads=4, n_kv_heads=2, head_dim=64, tied=True),
    "starcoder2": dict(n_heads=6, n_kv_heads=2, head_dim=64, tied=True, replace_fields=WINDOW),
}  # fmt: skip
EXPERTS = dict(n=7, used=3, n_ff=96)
GROUPED = EXPERTS | dict(n=12, groups=(4, 2))
MIXTURES = {  # name: a small model of each architecture with experts
    "qwen2moe": dict(n_heads=4, n_kv_heads=2, head_dim=64, experts=EXPERTS | dict(n=6, shared=64)),
    "qwen3moe": dict(n_heads=4, n_kv_heads=1, head_dim=64, rope_base=1e6, experts=EXPERTS),
    "granitemoe": dict(n_heads=4, n_kv_heads=2, head_dim=64, tied=True, replace_fields=GRANITE, experts=EXPERTS | dict(form="fused")),
    "gpt-oss": dict(n_heads=4, n_kv_heads=2, head_dim=64, n_layers=3, rope_base=1.5e5, replace_fields=WINDOW | YARN, experts=EXPERTS | dict(n=16, used=8)),
    "olmoe": dict(n_heads=4, n_kv_heads=4, head_dim=64, experts=EXPERTS),
    "glm4moe": dict(n_heads=4, n_kv_heads=2, head_dim=64, n_rot=32, experts=GROUPED | dict(shared=192, dense=1, scale=1.5)),
    "ernie4_5-moe": dict(n_heads=4, n_kv_heads=2, head_dim=64, rope_base=5e5, tied=True, experts=EXPERTS | dict(shared=96, dense=1)),
}  # fmt: skip
FAMILIES |= MIXTURES
# Layers without a window, every second or third, have heads of their own, of which only a fourth of the pairs turns.
UNLIKE = dict(n_heads=4, n_kv_heads=2, head_dim=128, window_head_dim=64, full_kv_heads=1, tied=True, rope_base=1e6,
              rope_freqs=np.repeat([1, 1e30], [16, 48]),
              replace_fields=WINDOW | fields(final_logit_softcapping=4.0))  # fmt: skip
FAMILIES |= {
    "gemma3n": dict(n_heads=4, n_kv_heads=2, head_dim=64, n_ff=256, tied=True, rope_base=1e6, n_layers=6, full_every=3, shared_kv=2, layer_embd=32, layer_vocab=200,
                    cuts=[0.5, 0.25, -np.inf, -0.5, -np.inf, -np.inf], replace_fields=WINDOW | fields(final_logit_softcapping=4.0)),
    "gemma4": UNLIKE | dict(full_kv_heads=2, n_layers=8, full_every=2, shared_kv=4, wide=True, layer_embd=32),
    "gemma4_keys": UNLIKE | dict(arch="gemma4", n_layers=6, full_every=3, values_are_keys=True),
    "gemma4_experts": UNLIKE | dict(arch="gemma4", n_layers=4, full_every=2, values_are_keys=True, experts=EXPERTS | dict(form="fused")),
}
RANDOM_MODELS = {
    "f32": dict(types=[Type.F32], n_heads=3, n_kv_heads=1, head_dim=64),
    "f16": dict(types=[Type.F16], n_heads=4, n_kv_heads=2, head_dim=80, tied=True),
    "bf16": dict(types=[Type.BF16], n_heads=16, n_kv_heads=1, head_dim=64),
    "floats_odd": dict(types=[Type.F32, Type.BF16, Type.F16], n_heads=2, n_kv_heads=2, head_dim=96, n_embd=150, n_ff=99),
    "llama3_factors": dict(types=[Type.F32], n_heads=4, n_kv_heads=2, head_dim=64, rope_freqs=LLAMA3_FACTORS, rope_base=5e5),
    "linear_rope": dict(types=[Type.F32], n_heads=2, n_kv_heads=1, head_dim=128, rope_linear=4),
    "narrow_heads": dict(types=[Type.F32], n_heads=40, n_kv_heads=1, head_dim=32),
    "bf16_heads_of_112": dict(types=[Type.BF16], n_heads=4, n_kv_heads=2, head_dim=112),
    "wide_heads": dict(types=[Type.F32], n_heads=2, n_kv_heads=1, head_dim=512),
    "q8_0": dict(types=[Type.Q8_0], n_heads=6, n_kv_heads=2, head_dim=64),
    "q4_0": dict(types=[Type.Q4_0], n_heads=4, n_kv_heads=4, head_dim=64),
    "q4_1": dict(types=[Type.Q4_1], n_heads=2, n_kv_heads=1, head_dim=256, tied=True),
    "qwen2": dict(arch="qwen2", types=[Type.F32], n_heads=6, n_kv_heads=2, head_dim=64, rope_base=1e6, tied=True),
    "qwen2_q8_0": dict(arch="qwen2", types=[Type.Q8_0], n_heads=4, n_kv_heads=2, head_dim=64),
    "qwen3": dict(arch="qwen3", types=[Type.BF16], n_heads=4, n_kv_heads=2, head_dim=128, rope_base=1e6),
    "qwen3_q4_0": dict(arch="qwen3", types=[Type.Q4_0], n_heads=2, n_kv_heads=1, head_dim=80, tied=True),
    "gemma3": dict(arch="gemma3", types=[Type.F32], n_heads=4, n_kv_heads=1, head_dim=64, n_layers=7, tied=True, rope_base=1e6,
                   rope_linear=8, replace_fields=GEMMA3),
    "gemma3_caps": dict(arch="gemma3", types=[Type.BF16], n_heads=2, n_kv_heads=2, head_dim=256, n_layers=6, rope_base=1e6,
                        replace_fields=GEMMA3_CAPPED),
    "gemma3_27b": dict(arch="gemma3", types=[Type.F32], n_heads=2, n_kv_heads=1, head_dim=128, n_layers=62, tied=True,
                       n_embd=64, n_ff=96, replace_fields=GEMMA3),
    "gemma3_q8_0": dict(arch="gemma3", types=[Type.Q8_0], n_heads=4, n_kv_heads=1, head_dim=64, tied=True, replace_fields=GEMMA3),
    "mistral_window": dict(types=[Type.F32], n_heads=4, n_kv_heads=2, head_dim=64,
                           replace_fields={"ARCH.attention.sliding_window": (16, value_type.UINT32)}),
    "llama_biases": dict(types=[Type.F32], n_heads=4, n_kv_heads=2, head_dim=64, biases="qkv output ffn"),
    "llama_experts": dict(types=[Type.F32], n_heads=4, n_kv_heads=2, head_dim=64, experts=EXPERTS | dict(form="single")),
    "bf16_experts": dict(arch="qwen3moe", types=[Type.BF16], n_heads=4, n_kv_heads=2, head_dim=64, experts=EXPERTS),
    "mixed_experts": dict(arch="qwen3moe", types=[Type.F32, Type.F16, Type.BF16], n_heads=4, n_kv_heads=2, head_dim=64, experts=EXPERTS),
    "llama_yarn": dict(types=[Type.F32], n_heads=4, n_kv_heads=2, head_dim=64, replace_fields=YARN),
    "granite_plain": dict(arch="granite", types=[Type.F32], n_heads=4, n_kv_heads=2, head_dim=64,
                          replace_fields=GRANITE | {"ARCH.rope.scaling.finetuned": (False, value_type.BOOL)}),
    "glm4_sections": dict(arch="glm4", types=[Type.F32], n_heads=4, n_kv_heads=2, head_dim=64, n_rot=32,
                          replace_fields={"ARCH.rope.dimension_sections": ([4, 6, 6, 0], value_type.ARRAY, value_type.UINT32)}),
    "qwen3_biases": dict(arch="qwen3", types=[Type.F32], n_heads=4, n_kv_heads=2, head_dim=64, biases="qkv output"),
    "phi3_window": dict(arch="phi3", types=[Type.F32], n_heads=4, n_kv_heads=4, head_dim=96, replace_fields=WINDOW),
    "olmo2_plain": dict(arch="olmo2", types=[Type.F32], n_heads=4, n_kv_heads=4, head_dim=64),
    "exaone4_plain": dict(arch="exaone4", types=[Type.F32], n_heads=4, n_kv_heads=2, head_dim=64, tied=True),
    **{name: {"arch": name, "types": [Type.F32]} | options for name, options in FAMILIES.items()},
    **{name + "_q8_0": {"arch": name, "types": [Type.Q8_0]} | options | dict(n_layers=1) | ({"full_every": 1} if "full_every" in options else {})
       for name, options in FAMILIES.items()},
    "mixed": dict(types=list(Type(t) for t in (2, 3, 8, 1, 0, 30)), n_heads=4, n_kv_heads=1, head_dim=64),
    "q5": dict(types=[Type.Q5_0, Type.Q5_1], n_heads=4, n_kv_heads=2, head_dim=64),
    "iq4_nl": dict(types=[Type.IQ4_NL], n_heads=4, n_kv_heads=2, head_dim=64),
    **{t.lower(): dict(types=[Type[t]], n_heads=4, n_kv_heads=2, head_dim=64, n_embd=256, n_ff=512) for t in K_TYPES},
    **{name: dict(types=[Type[t] for t in types], n_heads=4, n_kv_heads=2, head_dim=64, n_embd=256, n_ff=512)
       for name, types in {"low_types": LOW_TYPES, "high_types": HIGH_TYPES}.items()},
    "k_mixed": dict(types=[Type[t] for t in K_TYPES], n_heads=8, n_kv_heads=2, head_dim=64, n_embd=512, n_ff=256, tied=True),
}


@pytest.mark.parametrize("name", RANDOM_MODELS)
def test_random_models(bin_dir, tmp_path, f32_activations, name):
    """Every architecture, tensor type, group size, head size and rotation. Float weights: logits of a size of about 3 to within
    1e-4, for each ten layers, over which rounding adds up.

    Quantised weights have one layer, in which few values are so near a threshold that f32 decides: most rows are as near to the
    oracle that quantises too; the others are within what quantisation costs."""
    options = RANDOM_MODELS[name]
    quantise = any(t in oracle.QUANTISED for t in options["types"])
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, **{"n_layers": 1 if quantise else 3, **options})
    tokens = np.random.default_rng(11).integers(0, 261, 70)
    model = oracle.load(path)
    exact = oracle.logits(model, [tokens])[0]
    quantised = oracle.logits(model, [tokens], quantise=True)[0]
    _, got = dump(bin_dir, tmp_path, path, tokens, kv="f32", piece=23)
    difference = np.abs(got - quantised).max(-1)
    print(f"difference {difference.max():.3g}, median row {np.median(difference):.3g}")
    if not quantise:
        bound = 1e-4 * max(1, model.n_layers / 10)
        assert difference.max() <= bound
        check_top1(got, exact, bound)
        return
    check_rounded(got, exact, quantised)


@pytest.mark.parametrize("ctx, same", [(64, True), (65, False)])
def test_longrope(bin_dir, tmp_path, f32_activations, ctx, same):
    """An engine's context decides between short and long divisors, for all sequences alike."""
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, arch="phi3", types=[Type.F32], **FAMILIES["phi3"])
    tokens = np.random.default_rng(11).integers(0, 261, 70)
    short, long = (oracle.logits(oracle.load(path, n), [tokens])[0] for n in (64, 2048))
    _, got = dump(bin_dir, tmp_path, path, tokens, kv="f32", ctx=ctx)
    assert np.abs(got - (short if same else long)).max() <= 1e-4
    assert np.abs(short - long).max() > 0.01


def check_rounded(got, exact, rounded):
    """Check the logits of one layer that rounds activations, as test_random_models describes."""
    assert rms(rounded - exact) < 0.05, "rounded activations cost more than they should"
    difference, bound = np.abs(got - rounded).max(-1), 2 * np.abs(rounded - exact).max()
    assert np.mean(difference <= 2e-5) >= 0.7
    assert difference.max() <= bound
    check_top1(got, exact, bound)


@pytest.mark.parametrize("level,flag", [("avx512_bf16", "avx512_bf16"), ("amx", "amx_bf16")])
@pytest.mark.parametrize("name", [name for name, options in RANDOM_MODELS.items() if Type.BF16 in options["types"]])
def test_bf16_activations(bin_dir, tmp_path, name, level, flag, monkeypatch):
    """At levels that round activations of BF16 weights, one layer agrees with the oracle that rounds them, too."""
    if flag not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip(f"this CPU lacks {flag}")
    monkeypatch.delenv("CATTN_LEVEL", raising=False)
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, **{**RANDOM_MODELS[name], "n_layers": 1})
    tokens = np.random.default_rng(11).integers(0, 261, 70)
    _, got = dump(bin_dir, tmp_path, path, tokens, kv="f32", piece=23, level=level)
    model = oracle.load(path)
    exact = oracle.logits(model, [tokens])[0]
    rounded = oracle.logits(model, [tokens], quantise=True, bf16=True)[0]
    print(f"rms difference {rms(got - rounded):.3g}, by rounding {rms(rounded - exact):.3g}")
    check_rounded(got, exact, rounded)
