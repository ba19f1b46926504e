#!/usr/bin/env python3
"""Convert a GGUF model of architecture `llama` to a folder in Hugging Face's format, for peers that do not read GGUF.

    build/peers-serve/bin/python bench/peers/gguf_to_hf.py MODEL.gguf FOLDER

Writes config.json, model.safetensors and the tokenizer's files. Weights become bf16, which keeps 8 significant bits of the
file's quantised values. Nothing is downloaded.
"""

import argparse
import json
import os
import pathlib

os.environ["HF_HUB_OFFLINE"] = "1"

import gguf  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402: reads the environment

LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
WHOLE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
         "output.weight": "lm_head.weight"}  # fmt: skip


def hf_name(name):
    if name in WHOLE:
        return WHOLE[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.{kind}"


def config_of(reader, tied):
    def field(key, default=None):
        found = reader.fields.get(key)
        return found.contents() if found else default

    heads, width = field("llama.attention.head_count"), field("llama.embedding_length")
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_act": "silu",
        "hidden_size": width, "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"), "num_attention_heads": heads,
        "num_key_value_heads": field("llama.attention.head_count_kv", heads),
        "head_dim": field("llama.attention.key_length", width // heads),
        "max_position_embeddings": field("llama.context_length"), "rope_theta": field("llama.rope.freq_base", 1e4),
        "rms_norm_eps": field("llama.attention.layer_norm_rms_epsilon"), "vocab_size": len(field("tokenizer.ggml.tokens")),
        "bos_token_id": field("tokenizer.ggml.bos_token_id"), "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": tied,
    }  # fmt: skip


def weight(tensor, config):
    """Dequantised. GGUF has the two halves of each head of q and k interleaved; Hugging Face keeps them apart."""
    values = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
    for part, heads in (("attn_q", config["num_attention_heads"]), ("attn_k", config["num_key_value_heads"])):
        if f".{part}.weight" in tensor.name:
            shape = values.shape
            values = values.reshape(heads, shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(shape)
    return values.to(torch.bfloat16).contiguous()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path, help="GGUF file")
    parser.add_argument("folder", type=pathlib.Path, help="folder to write")
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.model)
    config = config_of(reader, all(t.name != "output.weight" for t in reader.tensors))
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    AutoTokenizer.from_pretrained(str(args.model.parent), gguf_file=args.model.name).save_pretrained(args.folder)
    save_file(
        {hf_name(t.name): weight(t, config) for t in reader.tensors if t.name != "rope_freqs.weight"},
        args.folder / "model.safetensors",
        {"format": "pt"},
    )


main()
