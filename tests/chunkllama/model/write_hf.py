"""Folders as Hugging Face has them: a GGUF model's weights as safetensors, with config.json and tokenizer.json."""

import json
import math
import struct

import gguf
import numpy as np
import oracle
from archs import ARCHS

DTYPES = {"F32": "F32", "F16": "F16", "BF16": "BF16"}
CLASSES = {
    "llama": "LlamaForCausalLM", "mistral3": "Ministral3ForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3": "Gemma3ForCausalLM", "gemma3n": "Gemma3nForCausalLM", "gemma4": "Gemma4ForCausalLM", "phi3": "Phi3ForCausalLM",
    "granite": "GraniteForCausalLM", "smollm3": "SmolLM3ForCausalLM", "olmo2": "Olmo3ForCausalLM", "exaone4": "Exaone4ForCausalLM",
    "glm4": "Glm4ForCausalLM", "seed_oss": "SeedOssForCausalLM", "ernie4_5": "Ernie4_5ForCausalLM", "command-r": "CohereForCausalLM",
    "qwen2moe": "Qwen2MoeForCausalLM", "qwen3moe": "Qwen3MoeForCausalLM", "granitemoe": "GraniteMoeSharedForCausalLM",
    "olmoe": "OlmoeForCausalLM", "gpt-oss": "GptOssForCausalLM", "glm4moe": "Glm4MoeForCausalLM", "ernie4_5-moe": "Ernie4_5_MoeForCausalLM",
    "cohere2": "Cohere2ForCausalLM", "hunyuan-dense": "HunYuanDenseV1ForCausalLM", "starcoder2": "Starcoder2ForCausalLM",
}  # fmt: skip
MLP = ("gate", "up", "down")
# Names of an architecture that differ from PARTS, and fields of its config.json beside those that all have.
GEMMA = {"ffn_norm": "pre_feedforward_layernorm"}
LAYER_EMBD = {"inp_gate": "per_layer_input_gate", "proj": "per_layer_projection", "post_norm": "post_per_layer_input_norm"}
OTHER_PARTS = {
    "gemma2": GEMMA, "gemma3": GEMMA,
    "gemma3n": GEMMA | LAYER_EMBD | {
        "altup_router": "altup.modality_router", "altup_router_norm": "altup.router_norm", "altup_predict_coef": "altup.prediction_coefs",
        "altup_correct_coef": "altup.correction_coefs", "laurel_l": "laurel.linear_left", "laurel_r": "laurel.linear_right",
        "laurel_post_norm": "laurel.post_laurel_norm"},
    "gemma4": GEMMA | LAYER_EMBD | {"ffn_gate_inp": "router.proj", "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
                       "post_ffw_norm_1": "post_feedforward_layernorm_1", "post_ffw_norm_2": "post_feedforward_layernorm_2"},
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "glm4": {"post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm", "ffn_up": "mlp.gate_up_proj"},
    "hunyuan-dense": {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"},
    "qwen2moe": {"ffn_gate_inp_shexp": "mlp.shared_expert_gate", **{f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj" for part in MLP}},
    "llama": {"ffn_gate_inp": "block_sparse_moe.gate"},
    "granitemoe": {"ffn_gate_inp": "block_sparse_moe.router.layer", "ffn_gate_up_exps": "block_sparse_moe.input_linear",
                   "ffn_down_exps": "block_sparse_moe.output_linear"},
    "gpt-oss": {"ffn_gate_inp": "mlp.router"},
    "starcoder2": {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
}  # fmt: skip
OTHER_NAMES = {  # of whole tensors
    "altup_correct_scale.weight": "altup.correct_output_scale", "layer_output_scale.weight": "layer_scalar", "ffn_gate_inp.scale": "router.scale", "ffn_down_exps.scale": "router.per_expert_scale",
    "ffn_gate_up_exps.weight": "experts.gate_up_proj", "ffn_down_exps.weight": "experts.down_proj",
}  # fmt: skip
FIELDS = {
    "gemma": {"hidden_act": "gelu_pytorch_tanh"},
    "starcoder2": {"hidden_act": "gelu_pytorch_tanh", "use_bias": True},
    "seed_oss": {"attention_bias": True},
    "glm4": {"attention_bias": True},
    "gpt-oss": {"attention_bias": True, "swiglu_alpha": 1.702, "swiglu_limit": 7.0},
    "smollm3": {"no_rope_layer_interval": 4},
}
PARTS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_qkv": "self_attn.qkv_proj", "ffn_norm": "post_attention_layernorm",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate_inp": "mlp.gate", **{f"ffn_{part}_shexp": f"mlp.shared_experts.{part}_proj" for part in MLP},
}  # fmt: skip
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
         "per_layer_token_embd": "model.embed_tokens_per_layer", "per_layer_model_proj": "model.per_layer_model_projection",
         "per_layer_proj_norm": "model.per_layer_projection_norm"}  # fmt: skip


STATES = {"altup_proj.weight": "model.altup_projections.{}.weight", "altup_unembd_proj.weight": "model.altup_unembed_projections.{}.weight"}


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
    _, layer, part, *expert = base.split(".")
    if arch in ("gemma3n", "gemma4") and f"{part}.{kind}" in OTHER_NAMES:
        return f"model.layers.{layer}.{OTHER_NAMES[f'{part}.{kind}']}"
    if expert and arch == "llama":
        return f"model.layers.{layer}.block_sparse_moe.experts.{expert[0]}.{dict(ffn_gate='w1', ffn_up='w3', ffn_down='w2')[part]}.weight"
    if expert:
        return f"model.layers.{layer}.mlp.experts.{expert[0]}.{part.removeprefix('ffn_')}_proj.weight"
    if part == "attn_sinks":
        return f"model.layers.{layer}.self_attn.sinks"
    if part == "exp_probs_b":
        return f"model.layers.{layer}.mlp.{'moe_statics' if arch == 'ernie4_5-moe' else 'gate'}.e_score_correction_bias"
    name = OTHER_PARTS.get(arch, {}).get(part) or PARTS.get(part, part)
    return f"model.layers.{layer}.{name}.{kind}"


def in_turn(tensors, dtype):
    """The experts of a layer of gpt-oss, from GGUF's tensors without the beginnings and ends of their names: outputs of gate and up
    in turn, and inputs as rows."""
    matrices = {"gate_up_proj": np.stack([tensors["gate_exps.weight"], tensors["up_exps.weight"]], 2),
                "down_proj": tensors["down_exps.weight"]}  # fmt: skip
    n, n_ff, _, n_embd = matrices["gate_up_proj"].shape
    matrices["gate_up_proj"] = matrices["gate_up_proj"].reshape(n, 2 * n_ff, n_embd)
    out = {name: (dtype, m.transpose(0, 2, 1)) for name, m in matrices.items()}
    out["gate_up_proj_bias"] = ("F32", np.stack([tensors["gate_exps.bias"], tensors["up_exps.bias"]], 2).reshape(n, 2 * n_ff))
    out["down_proj_bias"] = ("F32", tensors["down_exps.bias"])
    return {name: (kind, values.shape, np.ascontiguousarray(values).tobytes()) for name, (kind, values) in out.items()}


def tensors_of(path):
    """Architecture and tensors of a GGUF of float weights: Q and K as they were before llama's permutation, norms less Gemma's 1."""
    reader = gguf.GGUFReader(path)
    arch = reader.get_field("general.architecture").contents()
    n_heads, n_kv = (reader.get_field(f"{arch}.attention.{k}").contents() for k in ("head_count", "head_count_kv"))
    d = reader.get_field(f"{arch}.attention.key_length").contents()
    out, mixed, kinds = {}, {}, set()
    for t in reader.tensors:
        if t.name.startswith("rope_"):
            continue
        data = np.asarray(t.data)
        shape = [int(n) for n in t.shape[::-1]]
        rows = data.reshape(shape[0], -1)
        if ARCHS[arch].permuted and t.name.split(".")[-2] in ("attn_q", "attn_k"):
            rows = oracle.halves(rows, n_heads if "attn_q" in t.name else n_kv, d)
        if arch in ("gemma", "gemma2", "gemma3") and t.name.endswith("norm.weight"):
            rows = rows - np.float32(1)
        if arch == "gpt-oss" and "_exps." in t.name:
            _, layer, part = t.name.split(".", 2)
            # BF16 are bytes to the reader
            values = data.reshape(shape) if t.tensor_type.name != "BF16" else data.view(np.uint16).reshape(shape)
            mixed.setdefault(layer, {})[part.removeprefix("ffn_")] = values
            kinds |= {t.tensor_type.name} if part.endswith("weight") else set()
            continue
        if t.name in STATES:
            for i in range(shape[0]):
                out[STATES[t.name].format(i)] = (DTYPES[t.tensor_type.name], shape[1:], np.ascontiguousarray(data[i]).tobytes())
            continue
        if "_exps." in t.name and arch not in ("granitemoe", "gemma4"):
            for e in range(shape[0]):
                name = hf_name(arch, t.name.replace("_exps", f".{e}"))
                out[name] = (DTYPES[t.tensor_type.name], shape[1:], np.ascontiguousarray(data[e]).tobytes())
            continue
        out[hf_name(arch, t.name)] = (DTYPES[t.tensor_type.name], shape, np.ascontiguousarray(rows).tobytes())
    for layer, parts in mixed.items():
        (kind,) = kinds
        out |= {f"model.layers.{layer}.mlp.experts.{name}": tensor for name, tensor in in_turn(parts, DTYPES[kind]).items()}
    return arch, out


def rope_scaling(arch, get, reader):
    """The field of config.json that says the same as GGUF's keys and tensors."""
    kind = get("rope.scaling.type")
    scaling = {"rope_type": kind, "factor": get("rope.scaling.factor")}
    if kind == "linear":
        return scaling
    scaling["original_max_position_embeddings"] = get("rope.scaling.original_context_length")
    if kind == "longrope":
        del scaling["factor"]
        scaling["attention_factor"] = get("rope.scaling.attn_factor")
        for name in ("long", "short"):
            tensor = next(t for t in reader.tensors if t.name == f"rope_factors_{name}.weight")
            scaling[name + "_factor"] = [float(x) for x in tensor.data]
    if kind == "yarn" and get("rope.scaling.attn_factor"):
        scaling["attention_factor"] = get("rope.scaling.attn_factor")
    if arch == "gpt-oss":
        scaling["truncate"] = False
    if arch == "mistral3":
        scaling |= {"mscale": 1.0, "mscale_all_dim": get("rope.scaling.yarn_log_multiplier"),
                    "llama_4_scaling_beta": get("attention.temperature_scale")}  # fmt: skip
    return scaling


def expert_config(arch, get):
    """The fields of a mixture of experts, which each class calls by names of its own."""
    n, n_used, n_ff = get("expert_count"), get("expert_used_count"), get("expert_feed_forward_length")
    shared, dense = get("expert_shared_feed_forward_length"), get("leading_dense_block_count")
    if arch == "gemma4":
        return {"num_experts": n, "top_k_experts": n_used, "moe_intermediate_size": n_ff}
    if arch in ("llama", "granitemoe", "gpt-oss"):
        return {"num_local_experts": n, "num_experts_per_tok": n_used, "intermediate_size": n_ff}
    if arch == "olmoe":
        return {"num_experts": n, "num_experts_per_tok": n_used, "intermediate_size": n_ff, "norm_topk_prob": False}
    config = {"num_experts_per_tok": n_used, "moe_intermediate_size": n_ff}
    if arch == "glm4moe":
        return config | {"n_routed_experts": n, "n_shared_experts": shared // n_ff, "first_k_dense_replace": dense, "norm_topk_prob": True,
                         "n_group": get("expert_group_count"), "topk_group": get("expert_group_used_count"), "attention_bias": True,
                         "routed_scaling_factor": float(get("expert_weights_scale"))}  # fmt: skip
    if arch == "ernie4_5-moe":
        return {"moe_num_experts": n, "moe_k": n_used, "moe_intermediate_size": n_ff, "moe_num_shared_experts": shared // n_ff,
                "moe_layer_start_index": dense, "moe_layer_end_index": get("block_count") - 1}  # fmt: skip
    config |= {"num_experts": n, "norm_topk_prob": arch == "qwen3moe", "decoder_sparse_step": 1, "mlp_only_layers": []}
    return config | ({"shared_expert_intermediate_size": shared} if shared else {})


def gemma4_config(config, get, reader):
    """As published: the fields of layers with the window, and others for those without."""
    full = config["layer_types"].index("full_attention")
    window = config["layer_types"].index("sliding_attention")
    heads, n_ff = get("attention.head_count_kv"), get("feed_forward_length")
    divisors = next(t.data for t in reader.tensors if t.name == "rope_freqs.weight")
    names = [t.name for t in reader.tensors]
    del config["hidden_act"], config["rope_scaling"], config["rope_theta"]
    config.pop("partial_rotary_factor", None)
    return {"hidden_activation": "gelu_pytorch_tanh", "head_dim": get("attention.key_length_swa"), "global_head_dim": get("attention.key_length"),
            "num_key_value_heads": heads[window], "num_global_key_value_heads": heads[full], "intermediate_size": n_ff[0],
            "attention_k_eq_v": f"blk.{full}.attn_v.weight" not in names, "use_double_wide_mlp": n_ff[-1] > n_ff[0],
            "num_kv_shared_layers": get("attention.shared_kv_layers"), "hidden_size_per_layer_input": get("embedding_length_per_layer_input"),
            "final_logit_softcapping": get("final_logit_softcapping"), "enable_moe_block": bool(get("expert_count")),
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "rope_theta": get("rope.freq_base"), "partial_rotary_factor": float(np.mean(divisors == 1))},
                "sliding_attention": {"rope_type": "default", "rope_theta": get("rope.freq_base_swa")}}}  # fmt: skip


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
        "rope_theta": get("rope.freq_base"),
        "vocab_size": len(reader.get_field("tokenizer.ggml.tokens").contents()),
        "tie_word_embeddings": not any(t.name == "output.weight" for t in reader.tensors),
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rope_scaling": None,
        "sliding_window": get("attention.sliding_window"),
    }
    a = ARCHS[arch]
    eps = {"starcoder2": "norm_epsilon"}.get(arch, "layer_norm_eps" if a.layer_norm else "rms_norm_eps")
    config[eps] = float(get("attention.layer_norm_epsilon" if a.layer_norm else "attention.layer_norm_rms_epsilon"))
    config |= FIELDS.get(arch, {})
    if get("rope.scaling.type"):
        config["rope_scaling"] = rope_scaling(arch, get, reader)
    if get("rope.dimension_count") != get("attention.key_length"):
        config["partial_rotary_factor"] = get("rope.dimension_count") / get("attention.key_length")
    if a.full_every and get("attention.sliding_window"):
        kinds = ["full_attention", "sliding_attention"]
        windows = get("attention.sliding_window_pattern") or [(i + 1) % a.full_every != 0 for i in range(get("block_count"))]
        config["layer_types"] = [kinds[window] for window in windows]
    if get("expert_count"):
        config |= expert_config(arch, get)
    if arch in ("granite", "granitemoe"):
        config |= {"embedding_multiplier": get("embedding_scale"), "residual_multiplier": get("residual_scale"),
                   "attention_multiplier": get("attention.scale"), "logits_scaling": get("logit_scale")}  # fmt: skip
    if arch in ("command-r", "cohere2"):
        config["logit_scale"] = get("logit_scale")
    if arch in ("gemma2", "gemma3"):
        del config["hidden_act"]
        config |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": get("attention.key_length"),
                   "final_logit_softcapping": get("final_logit_softcapping"),
                   "attn_logit_softcapping": get("attn_logit_softcapping")}  # fmt: skip
    if arch == "gemma3n":
        del config["hidden_act"], config["rope_scaling"]
        config |= {"hidden_activation": "gelu_pytorch_tanh", "intermediate_size": get("feed_forward_length"), "altup_active_idx": 0,
                   "num_key_value_heads": get("attention.head_count_kv")[0], "num_kv_shared_layers": get("attention.shared_kv_layers"),
                   "hidden_size_per_layer_input": get("embedding_length_per_layer_input"), "altup_num_inputs": get("altup.num_inputs"),
                   "altup_correct_scale": True, "final_logit_softcapping": get("final_logit_softcapping"),
                   "activation_sparsity_pattern": [math.erfc(-cut / math.sqrt(2)) / 2 for cut in get("activation_sparsity_scale")]}  # fmt: skip
    if arch == "gemma4":
        config |= gemma4_config(config, get, reader)
    if arch == "gemma3":
        config.pop("layer_types", None)
        config |= {"rope_local_base_freq": 10000, "sliding_window_pattern": 6}
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
