"""Quantised safetensors: the logits, bit for bit, of the same weights in types that GGUF files have."""

import numpy as np
import pytest
import write_gguf
import write_hf
from test_logits import dump
from test_safetensors import TOKENS, message
from write_gguf import Type

N_EMBD, N_FF, HEAD, N_HEADS, N_KV = 256, 384, 64, 4, 2
MODEL = dict(arch="qwen3", types=[Type.BF16], n_heads=N_HEADS, n_kv_heads=N_KV, head_dim=HEAD, n_embd=N_EMBD, n_ff=N_FF, n_layers=1)
SHAPES = {"attn_q": (N_HEADS * HEAD, N_EMBD), "attn_k": (N_KV * HEAD, N_EMBD), "attn_v": (N_KV * HEAD, N_EMBD),
          "attn_output": (N_EMBD, N_HEADS * HEAD), "ffn_gate": (N_FF, N_EMBD), "ffn_up": (N_FF, N_EMBD), "ffn_down": (N_EMBD, N_FF)}  # fmt: skip
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the outputs of a word, from its low bits on


def e4m3(codes):
    """Sign, 4 bits of exponent with bias 7, 3 of mantissa."""
    exponent, mantissa = (codes >> 3 & 15).astype(np.int32), (codes & 7).astype(np.float32)
    size = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    return np.where(codes & 128, -size, size).astype(np.float32)


def bf16(values):
    """Nearest even, as 16 bits."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def tensor(dtype, values):
    return (dtype, values.shape, np.ascontiguousarray(values).tobytes())


def words(nibbles):
    """[..., 8] codes of 4 bits, the first in the low bits, as int32."""
    return (nibbles.astype(np.uint32) << np.arange(0, 32, 4, dtype=np.uint32)).sum(-1, dtype=np.uint32).view(np.int32)


def blocks(codes, zeros, scales, group):
    """Codes [out][in], zeros and f16 scales [out][groups] as blocks of Q4_0 if all zeros are 8, or of Q5_0."""
    n_out, n_in = codes.shape
    d = scales.repeat(group // 32, 1).astype(np.float16).reshape(-1, 1).view(np.uint8)
    plain = (zeros == 8).all()
    codes = codes.astype(np.int32) + (0 if plain else 16 - zeros.astype(np.int32).repeat(group, 1))
    assert codes.min() >= 0 and codes.max() < 32
    codes = codes.reshape(-1, 32).astype(np.uint32)
    low = ((codes[:, :16] & 15) | (codes[:, 16:] & 15) << 4).astype(np.uint8)
    fifth = ((codes >> 4) << np.arange(32, dtype=np.uint32)).sum(1, dtype=np.uint32).reshape(-1, 1).view(np.uint8)
    raw = np.concatenate([d, low] if plain else [d, fifth, low], 1)
    return raw.reshape(n_out, -1), Type.Q4_0 if plain else Type.Q5_0


def gptq(codes, zeros, scales, offset):
    """Words of eight inputs; zeros are stored less `offset`."""
    n_out, n_in = codes.shape
    return {".qweight": tensor("I32", words(codes.reshape(n_out, -1, 8)).T), ".scales": tensor("F16", scales.T),
            ".qzeros": tensor("I32", words((zeros - offset).T.reshape(zeros.shape[1], -1, 8))),
            ".g_idx": tensor("I32", (np.arange(n_in) // (n_in // zeros.shape[1])).astype(np.int32))}  # fmt: skip


def awq(codes, zeros, scales):
    """Words of eight outputs in an order of their own."""
    return {".qweight": tensor("I32", words(codes.T.reshape(codes.shape[1], -1, 8)[..., AWQ_ORDER])), ".scales": tensor("F16", scales.T),
            ".qzeros": tensor("I32", words(zeros.T.reshape(zeros.shape[1], -1, 8)[..., AWQ_ORDER]))}  # fmt: skip


def packed(codes, zeros, scales, with_zeros):
    """compressed-tensors: words of eight inputs by output; bf16 scales."""
    out = {".weight_packed": tensor("I32", words(codes.reshape(codes.shape[0], -1, 8))), ".weight_scale": tensor("BF16", bf16(scales)),
           ".weight_shape": tensor("I64", np.array(codes.shape))}  # fmt: skip
    if with_zeros:
        out[".weight_zero_point"] = tensor("I32", words(zeros.reshape(-1, 8, zeros.shape[1]).transpose(0, 2, 1)))
    return out


GROUP = {"quant_method": "gptq", "bits": 4}
FOUR_BITS = {  # configuration, inputs of a group (0: all), zeros
    "gptq": ({**GROUP, "group_size": 128, "checkpoint_format": "gptq"}, 128, "random"),
    "gptq_32_symmetric": ({**GROUP, "group_size": 32, "sym": True}, 32, "8"),
    "gptq_v2_rows": ({**GROUP, "group_size": -1, "checkpoint_format": "gptq_v2"}, 0, "random"),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm"}, 64, "random"),
    "packed": ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, 128, "none"),
    "packed_zeros": ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, 32, "random"),
}


def make_pair(tmp_path, quantise, config):
    """A GGUF file and a folder of the same model, whose matrices quantise(name, shape, rng) gives in both forms."""
    rng = np.random.default_rng(17)
    of_gguf, of_folder = {}, {}
    for name, shape in SHAPES.items():
        of_gguf[f"blk.0.{name}.weight"], of_folder[name] = quantise(shape, rng)
    plain, path = tmp_path / "plain.gguf", tmp_path / "model.gguf"
    write_gguf.random_model(plain, **MODEL)
    write_gguf.random_model(path, **MODEL, replace_tensors=of_gguf)

    def change(fields, _, tensors):
        fields["quantization_config"] = config
        for name, parts in of_folder.items():
            stem = write_hf.hf_name("qwen3", f"blk.0.{name}.weight")[: -len(".weight")]
            del tensors[stem + ".weight"]
            tensors.update({stem + ending: part for ending, part in parts.items()})

    return path, write_hf.write_folder(tmp_path / "hf", plain, shards=2, change=change)


def assert_same_logits(bin_dir, tmp_path, pair):
    expected, got = (dump(bin_dir, tmp_path, path, TOKENS, kv="f32")[1] for path in pair)
    assert np.isfinite(expected).all() and expected.std() > 0.1
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", FOUR_BITS)
def test_four_bits(bin_dir, tmp_path, name):
    config, group, kind = FOUR_BITS[name]

    def quantise(shape, rng):
        n_out, n_in = shape
        size = group if group and n_in % group == 0 else n_in if not group else 32
        codes = rng.integers(0, 16, shape)
        lowest = 1 if name == "gptq" else 0  # the smallest zero that this form can store
        zeros = rng.integers(lowest, 16 + lowest, (n_out, n_in // size)) if kind == "random" else np.full((n_out, n_in // size), 8)
        scales = (rng.uniform(0.5, 2, zeros.shape) * 0.02).astype(np.float32)
        scales = (bf16(scales).astype(np.uint32) << 16).view(np.float32) if "packed" in name else scales.astype(np.float16)
        parts = (awq(codes, zeros, scales) if name == "awq" else packed(codes, zeros, scales, kind == "random") if "packed" in name
                 else gptq(codes, zeros, scales, 0 if "v2" in name else 1))  # fmt: skip
        return blocks(codes, zeros, scales, size), parts

    assert_same_logits(bin_dir, tmp_path, make_pair(tmp_path, quantise, config))


FP8 = {  # configuration, name and type of the scales, what has one: a block, an output, a tensor
    "blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ".weight_scale_inv", "F32", "block"),
    "blocks_of_64": ({"quant_method": "fp8", "weight_block_size": [32, 64]}, ".weight_scale_inv", "BF16", "block"),
    "fbgemm": ({"quant_method": "fbgemm_fp8"}, ".weight_scale", "F32", "output"),
    "listed": ({"quant_method": "compressed-tensors", "format": "float-quantized"}, ".weight_scale", "BF16", "listed"),
    "tensor": ({"quant_method": "compressed-tensors", "format": "naive-quantized"}, ".weight_scale", "F32", "tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", FP8)
def test_fp8(bin_dir, tmp_path, name):
    """Each weight is the product of its code and its scale, rounded to bf16."""
    config, ending, dtype, of = FP8[name]
    block_out, block_in = config.get("weight_block_size", [1, 10**6])

    def quantise(shape, rng):
        codes = rng.integers(0, 256, shape).astype(np.uint8)
        codes[codes & 127 == 127] = 0  # not a number
        if of == "tensor":
            scales, full = np.full((), 3e-4, np.float32), np.float32(3e-4)
        else:
            n = -(-shape[0] // block_out), -(-shape[1] // block_in)
            scales = (rng.uniform(0.5, 2, n) * 3e-4).astype(np.float32)
            if dtype == "BF16":
                scales = (bf16(scales).astype(np.uint32) << 16).view(np.float32)
            full = scales.repeat(block_out, 0)[: shape[0]].repeat(block_in, 1)[:, : shape[1]] if block_in < 10**6 else scales
        weights = bf16(e4m3(codes) * full).view(np.uint8).reshape(shape[0], -1)
        stored = scales[:, 0] if of == "listed" else scales
        parts = {".weight": tensor("F8_E4M3", codes), ending: tensor(dtype, bf16(stored) if dtype == "BF16" else stored)}
        if of == "tensor":
            parts |= {name: tensor("F32", np.ones(1, np.float32)) for name in (".input_scale", ".activation_scale")}
        return (weights, Type.BF16), parts

    assert_same_logits(bin_dir, tmp_path, make_pair(tmp_path, quantise, config))


def test_mxfp4(bin_dir, tmp_path):
    """The experts of gpt-oss, whose gate and up are rows of one matrix in turn."""
    rng = np.random.default_rng(5)
    n, n_ff, n_embd = 6, 96, 64
    options = dict(arch="gpt-oss", types=[Type.BF16], n_heads=N_HEADS, n_kv_heads=N_KV, head_dim=HEAD, n_embd=n_embd, n_layers=1,
                   experts=dict(n=n, used=2, n_ff=n_ff))  # fmt: skip
    blocks, parts = {}, {}
    for name, n_out, n_in in (("gate_up_proj", 2 * n_ff, n_embd), ("down_proj", n_embd, n_ff)):
        pairs = rng.integers(0, 256, (n, n_out, n_in // 32, 16)).astype(np.uint8)
        powers = rng.integers(118, 124, (n, n_out, n_in // 32)).astype(np.uint8)
        codes = np.stack([pairs & 15, pairs >> 4], -1).reshape(n, n_out, n_in // 32, 32)
        rows = np.concatenate([powers[..., None], codes[..., :16] | codes[..., 16:] << 4], -1)
        blocks[name] = rows.astype(np.uint8).reshape(n, n_out, -1)
        parts |= {name + "_blocks": tensor("U8", pairs), name + "_scales": tensor("U8", powers)}
    experts = {"gate": blocks["gate_up_proj"][:, ::2], "up": blocks["gate_up_proj"][:, 1::2], "down": blocks["down_proj"]}
    plain, path = tmp_path / "plain.gguf", tmp_path / "model.gguf"
    write_gguf.random_model(plain, **options)
    write_gguf.random_model(path, **options, replace_tensors={
        f"blk.0.ffn_{name}_exps.weight": (np.ascontiguousarray(rows), Type.MXFP4) for name, rows in experts.items()})  # fmt: skip

    def change(fields, _, tensors):
        fields["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
        for name in blocks:
            del tensors[f"model.layers.0.mlp.experts.{name}"]
        tensors |= {f"model.layers.0.mlp.experts.{name}": part for name, part in parts.items()}

    assert_same_logits(bin_dir, tmp_path, (path, write_hf.write_folder(tmp_path / "hf", plain, change=change)))


Q = "model.layers.0.self_attn.q_proj"
CODES = {".qweight": ("I32", [20, 128], bytes(4 * 20 * 128)), ".scales": ("F16", [5, 128], bytes(2 * 5 * 128)),
         ".qzeros": ("I32", [5, 16], bytes(4 * 5 * 16))}  # fmt: skip
ORDER = ("I32", [160], np.arange(160, dtype=np.int32)[::-1].tobytes())
WRONG = {  # configuration, tensors instead of those of Q, parts of the message
    "method": ({"quant_method": "bitsandbytes"}, {}, ['quantization_config.quant_method is "bitsandbytes"; supported: fp8, fbgemm_fp8, mxfp4',
                                                      "use a GGUF file of the model"]),
    "no method": ({}, {}, ['quant_method is ""']),
    "no object": ("fp8", {}, ["quantization_config must be an object"]),
    "bits": ({"quant_method": "gptq", "bits": 3}, {}, ["quantization_config.bits is 3; supported: 4"]),
    "form": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, {}, ['checkpoint_format is "marlin"; supported: gptq, gptq_v2']),
    "version": ({"quant_method": "awq", "bits": 4, "version": "gemv"}, {}, ['version is "gemv"; supported: gemm']),
    "format": ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, {}, ['format is "nvfp4-pack-quantized"; supported']),
    "bits of a group": ({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {"weights": {"num_bits": 8}}}},
                        {}, ["config_groups.g.weights.num_bits is 8; supported: 4"]),
    "block size": ({"quant_method": "fp8", "weight_block_size": [0, 128]}, {}, ["weight_block_size must be two integers from 1"]),
    "no scale": ({"quant_method": "fp8"}, {".weight": ("F8_E4M3", [128, 160], bytes(128 * 160))}, [f"tensor {Q}.weight: {Q}.weight_scale is missing"]),
    "scales": ({"quant_method": "fp8"}, {".weight": ("F8_E4M3", [128, 160], bytes(128 * 160)), ".weight_scale": ("F32", [3, 1], bytes(12))},
               [f"{Q}.weight_scale has type F32 and shape [3, 1]; needed is F32, F16 or BF16 [128, 1]"]),
    "no configuration": (None, {".weight": ("F8_E4M3", [128, 160], bytes(128 * 160))}, [f"tensor {Q}.weight has type F8_E4M3; supported: F32"]),
    "scale alone": ({"quant_method": "fp8"}, {".weight_scale": ("F32", [1], bytes(4))}, [f"tensor {Q}.weight_scale is not part of"]),
    "order": ({"quant_method": "gptq", "bits": 4}, CODES | {".g_idx": ORDER}, [f"tensor {Q}.qweight: its inputs are permuted (desc_act; "]),
    "no zeros": ({"quant_method": "gptq", "bits": 4}, {k: v for k, v in CODES.items() if k != ".qzeros"}, [f"{Q}.qzeros is missing beside it"]),
    "words": ({"quant_method": "gptq", "bits": 4}, CODES | {".qweight": ("F16", [40, 128], bytes(2 * 40 * 128))}, ["it has type F16; a matrix of I32"]),
    "groups": ({"quant_method": "gptq", "bits": 4}, CODES | {".scales": ("F16", [10, 128], bytes(2 * 10 * 128))}, ["160 inputs in 10 groups"]),
    "blocks": ({"quant_method": "mxfp4"}, {"_blocks": ("U8", [1, 128, 5, 15], bytes(128 * 5 * 15))}, ["[matrices, outputs, blocks, 16]"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_messages(bin_dir, tmp_path, name):
    config, parts, expected = WRONG[name]

    def change(fields, _, tensors):
        if config is not None:
            fields["quantization_config"] = config
        if parts and name != "scale alone":
            del tensors[Q + ".weight"]
        tensors.update({Q + ending: part for ending, part in parts.items()})

    text = message(bin_dir, tmp_path, change=change)
    assert all(part in text for part in expected), text
