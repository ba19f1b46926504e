#!/usr/bin/env python3
"""usage: transformers_logits.py [NAME ...]

Runs small models of Hugging Face Transformers in float64, and writes their configurations, shapes and logits to
tests/chunkllama/model/references, which test_transformers.py compares with ChunkLlama's. Needs PyPI's `torch` and `transformers`.
"""

import json
import pathlib
import sys
import tempfile

import torch

# Transformers computes rotations and norms in float32 by name, whatever the type of the weights.
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double

import numpy as np  # noqa: E402
import safetensors.numpy  # noqa: E402
import transformers  # noqa: E402

MODELS = pathlib.Path(__file__).parents[2] / "tests" / "chunkllama" / "model"
sys.path.insert(0, str(MODELS))
from seeded_weights import N_VOCAB, PROMPTS, tokens, weights  # noqa: E402

SHOWN = 9  # every ninth logit is kept

SIZES = dict(vocab_size=N_VOCAB, hidden_size=128, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2, pad_token_id=0)  # fmt: skip
HEADS = dict(head_dim=64)
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 128, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}  # fmt: skip
UNROUNDED = {"rope_type": "yarn", "rope_theta": 1.5e5, "factor": 16.0, "original_max_position_embeddings": 128, "beta_fast": 32.0,
             "beta_slow": 1.0, "truncate": False}  # fmt: skip
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 128,
        "short_factor": np.linspace(1, 2, 12).tolist(), "long_factor": np.linspace(1, 30, 12).tolist()}  # fmt: skip
BY_KIND = {"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
           "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 5e7, "factor": 6.0}
USED = dict(num_experts_per_tok=3)
KINDS = dict(num_hidden_layers=4, sliding_window=48)
# Gemma 4's layers without a window have heads of their own, and the last ones the K and V of earlier ones.
GEMMA4 = KINDS | HEADS | dict(num_hidden_layers=6, global_head_dim=128, layer_types=["sliding_attention", "full_attention"] * 3,
                              final_logit_softcapping=4.0)  # fmt: skip
ALL_OF_GEMMA4 = dict(num_hidden_layers=8, layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2 + ["sliding_attention", "full_attention"],
                     num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=32, vocab_size_per_layer_input=N_VOCAB,
                     num_kv_shared_layers=4, use_double_wide_mlp=True)  # fmt: skip
GEMMA3N = KINDS | HEADS | dict(num_hidden_layers=6, layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2,
                               hidden_size_per_layer_input=32, vocab_size_per_layer_input=N_VOCAB - 40, laurel_rank=24,
                               intermediate_size=256, activation_sparsity_pattern=[0.7, 0.6, 0.5, 0.0, 0.0, 0.0], final_logit_softcapping=4.0)  # fmt: skip
# The fields that Transformers writes where published files have others.
NEWER = {"internlm3": ["attention_bias", "mlp_bias"], "gemma4": ["per_layer_config"]}
BASE = {"qwen3_embedding"}  # folders of a model without a head, whose names have no prefix
TEXT = {"Gemma3", "Gemma3n", "Gemma4"}  # families whose models also see
CASES = {
    "llama": ("Llama", HEADS | dict(attention_bias=True, mlp_bias=True)),
    "falcon3": ("Llama", dict(head_dim=256, rope_theta=1000042.0)),
    "internlm3": ("InternLM3", HEADS | dict(qkv_bias=True, bias=True, rope_parameters=DYNAMIC)),
    "mistral": ("Mistral", HEADS | dict(sliding_window=48)),
    "ministral3": ("Ministral3", HEADS | dict(rope_parameters=YARN)),
    "qwen2": ("Qwen2", dict(tie_word_embeddings=True)),
    "qwen3": ("Qwen3", HEADS),
    "qwen3_embedding": ("Qwen3", HEADS | dict(tie_word_embeddings=True)),
    "gemma": ("Gemma", HEADS),
    "gemma2": ("Gemma2", HEADS | KINDS),
    "gemma3": ("Gemma3", HEADS | KINDS | dict(layer_types=["sliding_attention", "full_attention"] * 2, rope_parameters=BY_KIND)),
    "gemma3n": ("Gemma3n", GEMMA3N),
    "gemma4": ("Gemma4", GEMMA4 | ALL_OF_GEMMA4),
    "gemma4_e4b": ("Gemma4", GEMMA4 | dict(hidden_size_per_layer_input=32, vocab_size_per_layer_input=N_VOCAB, num_kv_shared_layers=2)),
    "gemma4_26b": ("Gemma4", GEMMA4 | dict(num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0, enable_moe_block=True,
                                           num_experts=8, top_k_experts=3, moe_intermediate_size=64)),
    "gemma4_31b": ("Gemma4", GEMMA4 | dict(num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0)),
    "phi3": ("Phi3", dict(rope_parameters=LONG, original_max_position_embeddings=128)),
    "granite": ("Granite", dict(embedding_multiplier=6.0, residual_multiplier=0.3, attention_multiplier=0.2, logits_scaling=2.0)),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=4)),
    "olmo2": ("Olmo2", {}),
    "olmo3": ("Olmo3", KINDS),
    "exaone4": ("Exaone4", KINDS),
    "glm4": ("Glm4", HEADS),
    "seed_oss": ("SeedOss", HEADS),
    "ernie4_5": ("Ernie4_5", HEADS),
    "cohere": ("Cohere", dict(use_qk_norm=True)),
    "cohere2": ("Cohere2", KINDS),
    "hunyuan": ("HunYuanDenseV1", HEADS),
    "starcoder2": ("Starcoder2", dict(sliding_window=48)),
    "qwen2_moe": ("Qwen2Moe", USED | dict(num_experts=6, moe_intermediate_size=64, shared_expert_intermediate_size=80)),
    "qwen3_moe": ("Qwen3Moe", HEADS | USED | dict(num_experts=8, moe_intermediate_size=64, norm_topk_prob=True)),
    "mixtral": ("Mixtral", USED | dict(num_local_experts=6)),
    "granite_moe": ("GraniteMoe", USED | dict(num_local_experts=6, residual_multiplier=0.3, logits_scaling=2.0)),
    "granite_moe_shared": ("GraniteMoeShared", USED | dict(num_local_experts=6, shared_intermediate_size=64)),
    "gpt_oss": ("GptOss", HEADS | USED | KINDS | dict(num_local_experts=6, rope_parameters=UNROUNDED)),
    "olmoe": ("Olmoe", USED | dict(num_experts=6)),
    "glm4_moe": ("Glm4Moe", HEADS | USED | dict(n_routed_experts=12, moe_intermediate_size=64, n_shared_experts=2, n_group=4, topk_group=2,
                                                first_k_dense_replace=1, use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.5)),
    "ernie4_5_moe": ("Ernie4_5_Moe", dict(moe_num_experts=6, moe_k=2, moe_intermediate_size=64, moe_num_shared_experts=2,
                                          moe_layer_start_index=1, moe_layer_end_index=-1)),
}  # fmt: skip


def fill(model, folder):
    """Replace the weights of a folder by those that follow from their names. Returns their shapes."""
    path = folder / "model.safetensors"
    old = safetensors.numpy.load_file(path)
    new = {name: weights(model, name, old[name].shape).astype(np.float64) for name in sorted(old)}
    safetensors.numpy.save_file(new, path, {"format": "pt"})
    return {name: list(values.shape) for name, values in new.items()}


def case(name):
    """The model is written, filled and loaded, so that its tensors have the names and the forms of published files."""
    family, fields = CASES[name]
    config = getattr(transformers, family + ("TextConfig" if family in TEXT else "Config"))(**SIZES | fields)
    config._attn_implementation = "eager"
    model_family = "Llama" if family == "InternLM3" else family
    saved = getattr(transformers, model_family + ("Model" if name in BASE else "ForCausalLM"))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        saved(config).half().save_pretrained(folder)
        shapes = fill(name, folder)
        model = getattr(transformers, model_family + "ForCausalLM").from_pretrained(folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor([tokens()])).logits[0].numpy()
    rows = {n: [float(f"{x:.7g}") for x in logits[n - 1, ::SHOWN]] for n in PROMPTS}
    likeliest = {n: int(logits[n - 1].argmax()) for n in PROMPTS}
    written = {key: value for key, value in json.loads(config.to_json_string()).items() if key not in NEWER.get(name, [])}
    written |= {"architectures": [family + "ForCausalLM"]} | (fields if name in NEWER else {})
    return dict(config=written, tensors=shapes, likeliest=likeliest, every=SHOWN, logits=rows)


def main():
    for name in sys.argv[1:] or CASES:
        path = MODELS / "references" / f"{name}.json"
        path.write_text(json.dumps(case(name), indent=0) + "\n")
        print(path, path.stat().st_size, "bytes", flush=True)


if __name__ == "__main__":
    main()
