"""Models for the tests: SmolLM2 with its weights written out in F32, and small random ones."""

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

Type = gguf.GGMLQuantizationType
value_type = gguf.GGUFValueType


def write(path, architecture, fields, tensors):
    """fields: (name, value, type, element type); tensors: name to (float32 array, type)."""
    writer = gguf.GGUFWriter(path, architecture)
    for field in fields:
        writer.add_key_value(*field)
    for name, (values, tensor_type) in tensors.items():
        if tensor_type == Type.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, tensor_type), raw_dtype=tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def in_f32(source, path):
    """The model `source` with every weight dequantised, so that no product quantises activations."""
    reader = gguf.GGUFReader(source)
    fields = []
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        element = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        fields.append((field.name, field.contents(), field.types[0], element))
    tensors = {}
    for t in reader.tensors:
        values = np.asarray(dequantize(t.data, t.tensor_type), np.float32)
        tensors[t.name] = (values.reshape([int(n) for n in t.shape[::-1]]), Type.F32)
    write(path, "llama", fields, tensors)


def random_model(path, types, n_heads, n_kv_heads, head_dim, n_layers=2, n_embd=160, n_ff=224, tied=False, **options):
    """A model of random weights. types: the tensor types that its matrices take in turn. options: rope_factors (an array),
    rope_linear (a factor), rope_base; replace_fields (name to (value, type)) and replace_tensors (name to (values, type)), None to
    leave one out."""
    rng = np.random.default_rng(7)
    n_vocab = 3 + 256 + 2  # not a multiple of 16
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + ["a", "b"]
    kinds = [2, 3, 3] + [6] * 256 + [1, 1]
    value = value_type
    fields = [
        ("llama.block_count", n_layers, value.UINT32),
        ("llama.context_length", 2048, value.UINT32),
        ("llama.embedding_length", n_embd, value.UINT32),
        ("llama.feed_forward_length", n_ff, value.UINT32),
        ("llama.attention.head_count", n_heads, value.UINT32),
        ("llama.attention.head_count_kv", n_kv_heads, value.UINT32),
        ("llama.attention.key_length", head_dim, value.UINT32),
        ("llama.attention.value_length", head_dim, value.UINT32),
        ("llama.rope.dimension_count", head_dim, value.UINT32),
        ("llama.rope.freq_base", float(options.get("rope_base", 10000)), value.FLOAT32),
        ("llama.attention.layer_norm_rms_epsilon", 1e-5, value.FLOAT32),
        ("tokenizer.ggml.model", "llama", value.STRING),
        ("tokenizer.ggml.tokens", tokens, value.ARRAY, value.STRING),
        ("tokenizer.ggml.scores", [0.0] * n_vocab, value.ARRAY, value.FLOAT32),
        ("tokenizer.ggml.token_type", kinds, value.ARRAY, value.INT32),
        ("tokenizer.ggml.unknown_token_id", 0, value.UINT32),
        ("tokenizer.ggml.bos_token_id", 1, value.UINT32),
        ("tokenizer.ggml.eos_token_id", 2, value.UINT32),
    ]
    if "rope_linear" in options:
        fields.append(("llama.rope.scaling.type", "linear", value.STRING))
        fields.append(("llama.rope.scaling.factor", float(options["rope_linear"]), value.FLOAT32))

    shapes = {"token_embd": (n_vocab, n_embd)}
    if not tied:
        shapes["output"] = (n_vocab, n_embd)
    for i in range(n_layers):
        shapes[f"blk.{i}.attn_q"] = (n_heads * head_dim, n_embd)
        shapes[f"blk.{i}.attn_k"] = (n_kv_heads * head_dim, n_embd)
        shapes[f"blk.{i}.attn_v"] = (n_kv_heads * head_dim, n_embd)
        shapes[f"blk.{i}.attn_output"] = (n_embd, n_heads * head_dim)
        shapes[f"blk.{i}.ffn_gate"] = shapes[f"blk.{i}.ffn_up"] = (n_ff, n_embd)
        shapes[f"blk.{i}.ffn_down"] = (n_embd, n_ff)
    tensors = {}
    for i, (name, shape) in enumerate(shapes.items()):
        values = rng.normal(0, 1.5 / np.sqrt(shape[1]), shape).astype(np.float32)
        tensors[name + ".weight"] = (values, types[i % len(types)])
    norms = ["output_norm"] + [f"blk.{i}.{part}_norm" for i in range(n_layers) for part in ("attn", "ffn")]
    for name in norms:
        tensors[name + ".weight"] = (rng.normal(1, 0.2, n_embd).astype(np.float32), Type.F32)
    if "rope_factors" in options:
        tensors["rope_freqs.weight"] = (np.asarray(options["rope_factors"], np.float32), Type.F32)
    for name, new in options.get("replace_fields", {}).items():
        fields = [f for f in fields if f[0] != name] + ([(name, *new)] if new else [])
    tensors.update(options.get("replace_tensors", {}))
    write(path, "llama", fields, {name: tensor for name, tensor in tensors.items() if tensor})
