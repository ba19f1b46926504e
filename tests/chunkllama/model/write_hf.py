"""Folders as Hugging Face has them: a GGUF model's weights as safetensors, with config.json and tokenizer.json."""

import json
import struct

import gguf
import numpy as np
import oracle

DTYPES = {"F32": "F32", "F16": "F16", "BF16": "BF16"}
CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "gemma3": "Gemma3ForCausalLM"}
PARTS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def write_safetensors(path, tensors, metadata=None):
    """tensors: name to (dtype, shape, bytes)."""
    header, at = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def hf_name(arch, name):
    """Hugging Face's name of a GGUF tensor."""
    base, _, kind = name.rpartition(".")
    if base in WHOLE:
        return f"{WHOLE[base]}.{kind}"
    _, layer, part = base.split(".")
    if part == "ffn_norm":
        part = "pre_feedforward_layernorm" if arch == "gemma3" else "post_attention_layernorm"
    return f"model.layers.{layer}.{PARTS.get(part, part)}.{kind}"


def tensors_of(path):
    """Architecture and tensors of a GGUF of float weights: Q and K as they were before llama's permutation, norms less Gemma's 1."""
    reader = gguf.GGUFReader(path)
    arch = reader.get_field("general.architecture").contents()
    n_heads, n_kv = (reader.get_field(f"{arch}.attention.{k}").contents() for k in ("head_count", "head_count_kv"))
    d = reader.get_field(f"{arch}.attention.key_length").contents()
    out = {}
    for t in reader.tensors:
        if t.name == "rope_freqs.weight":
            continue
        data = np.asarray(t.data)
        shape = [int(n) for n in t.shape[::-1]]
        rows = data.reshape(shape[0], -1)
        if arch == "llama" and t.name.endswith(("attn_q.weight", "attn_k.weight")):
            rows = oracle.halves(rows, n_heads if "attn_q" in t.name else n_kv, d)
        if arch == "gemma3" and t.name.endswith("norm.weight"):
            rows = rows - np.float32(1)
        out[hf_name(arch, t.name)] = (DTYPES[t.tensor_type.name], shape, np.ascontiguousarray(rows).tobytes())
    return arch, out


def config_of(path):
    reader = gguf.GGUFReader(path)
    arch = reader.get_field("general.architecture").contents()

    def get(key, default=None):
        field = reader.get_field(f"{arch}.{key}")
        return default if field is None else field.contents()

    config = {
        "architectures": [CLASSES[arch]],
        "num_hidden_layers": get("block_count"),
        "hidden_size": get("embedding_length"),
        "intermediate_size": get("feed_forward_length"),
        "max_position_embeddings": get("context_length"),
        "num_attention_heads": get("attention.head_count"),
        "num_key_value_heads": get("attention.head_count_kv"),
        "head_dim": get("attention.key_length"),
        "rms_norm_eps": float(get("attention.layer_norm_rms_epsilon")),
        "rope_theta": get("rope.freq_base"),
        "vocab_size": len(reader.get_field("tokenizer.ggml.tokens").contents()),
        "tie_word_embeddings": not any(t.name == "output.weight" for t in reader.tensors),
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rope_scaling": None,
        "sliding_window": get("attention.sliding_window"),
    }
    if get("rope.scaling.type"):
        config["rope_scaling"] = {"rope_type": "linear", "factor": get("rope.scaling.factor")}
    if arch == "gemma3":
        del config["hidden_act"]
        config |= {"hidden_activation": "gelu_pytorch_tanh", "rope_local_base_freq": 10000, "sliding_window_pattern": 6,
                   "query_pre_attn_scalar": get("attention.key_length"),
                   "final_logit_softcapping": get("final_logit_softcapping"),
                   "attn_logit_softcapping": get("attn_logit_softcapping")}  # fmt: skip
    return config


def byte_tokenizer(path):
    """The vocabulary of write_gguf.random_model as a tokenizer.json: bytes and a few words without merges."""
    tokens = gguf.GGUFReader(path).get_field("tokenizer.ggml.tokens").contents()
    special = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i in range(3)]  # fmt: skip
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": {t: i for i, t in enumerate(tokens)},
             "merges": []}  # fmt: skip
    normalizer = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    return {"version": "1.0", "added_tokens": special, "normalizer": normalizer, "pre_tokenizer": None, "model": model}


def write_folder(folder, gguf_path, shards=1, change=None):
    """change(config, tokenizer, tensors): edits before writing."""
    folder.mkdir()
    _, tensors = tensors_of(gguf_path)
    config, tokenizer = config_of(gguf_path), byte_tokenizer(gguf_path)
    if change:
        change(config, tokenizer, tensors)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
        return folder
    names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    weight_map = {name: names[i % shards] for i, name in enumerate(tensors)}
    for shard in names:
        write_safetensors(folder / shard, {n: t for n, t in tensors.items() if weight_map[n] == shard})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder
