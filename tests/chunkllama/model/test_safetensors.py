"""Safetensors folders: the same logits as the same weights in a GGUF file, and the messages about folders that are not models."""

import json
import subprocess

import numpy as np
import oracle
import pytest
import write_gguf
import write_hf
from test_logits import EXPERTS, FAMILIES, GEMMA3, dump
from test_make_model import llama3_factors
from waiting import LIMIT_S
from write_gguf import Type

PERMUTED = ["mistral3", "granite", "granitemoe", "smollm3"]  # in GGUF
MODELS = {
    "qwen2": dict(arch="qwen2", types=[Type.F32, Type.BF16], n_heads=6, n_kv_heads=2, head_dim=64, rope_base=1e6, tied=True),
    "qwen3": dict(arch="qwen3", types=[Type.BF16, Type.F16], n_heads=4, n_kv_heads=2, head_dim=128, rope_base=1e6),
    "gemma3": dict(arch="gemma3", types=[Type.BF16], n_heads=4, n_kv_heads=1, head_dim=64, n_layers=7, tied=True, rope_base=1e6,
                   rope_linear=8, replace_fields=GEMMA3),
    **{name: {"arch": name, "types": [Type.BF16]} | options for name, options in FAMILIES.items() if name not in PERMUTED},
}  # fmt: skip
LLAMAS = {
    **{name: FAMILIES[name] | dict(arch=name) for name in PERMUTED},
    "llama": {},
    "mixtral": dict(experts=EXPERTS | dict(n_ff=224, form="single")),
    "biases": dict(biases="qkv output ffn"),
    "llama3": dict(rope_base=5e5, rope_freqs=np.asarray(llama3_factors(64, 5e5, 8), np.float32)),
    "linear": dict(rope_linear=4, tied=True),
    "mistral": dict(replace_fields={"ARCH.attention.sliding_window": (16, write_gguf.value_type.UINT32)}),
}
TOKENS = np.random.default_rng(3).integers(0, 261, 70)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shards", [1, 3])
def test_same_bits_as_gguf(bin_dir, tmp_path, name, shards):
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, **MODELS[name])
    folder = write_hf.write_folder(tmp_path / "hf", path, shards)
    expected, got = (dump(bin_dir, tmp_path, p, TOKENS, kv="f32")[1] for p in (path, folder))
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", LLAMAS)
def test_llama(bin_dir, tmp_path, name):
    """Weights that were not permuted rotate in halves: another order of the sums than a GGUF's, so the oracle decides."""
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, types=[Type.F32], **dict(n_heads=4, n_kv_heads=2, head_dim=64, n_layers=3) | LLAMAS[name])

    def change(config, _, tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", [2], bytes(8))
        if name == "llama3":
            config["rope_scaling"] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 8192}  # fmt: skip
        if name == "biases":
            config |= {"attention_bias": True, "mlp_bias": True}
        if name == "mixtral":
            config["architectures"] = ["MixtralForCausalLM"]
        if name == "mistral":
            config["architectures"] = ["MistralForCausalLM"]

    folder = write_hf.write_folder(tmp_path / "hf", path, change=change)
    exact = oracle.logits(oracle.load(path), [TOKENS])[0]
    _, got = dump(bin_dir, tmp_path, folder, TOKENS, kv="f32")
    assert np.abs(got - exact).max() <= 1e-4


def folder_logits(bin_dir, folder, path, **fields):
    """Bytes of the logits of a folder of path's weights, with fields of config.json replaced."""

    def change(config, _, __):
        config.update(fields)

    folder.mkdir()
    return dump(bin_dir, folder, write_hf.write_folder(folder / "hf", path, change=change), TOKENS, kv="f32")[1].tobytes()


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"])
def test_fields_of_other_models(bin_dir, tmp_path, name):
    """Fields that a class does not read have no effect: Mistral's window counts, its caps do not."""
    path = tmp_path / "model.gguf"
    arch = {"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}.get(name, "llama")
    write_gguf.random_model(path, types=[Type.BF16], arch=arch, n_heads=4, n_kv_heads=2, head_dim=64, tied=True)
    mistral = name == "MistralForCausalLM"
    stray = {
        "attn_logit_softcapping": 0.5,
        "final_logit_softcapping": 0.5,
        "query_pre_attn_scalar": 7,
        "rope_local_base_freq": 50.0,
        "sliding_window_pattern": 2,
    }
    of_class = {"architectures": [name], "sliding_window": 16 if mistral else None}
    plain = folder_logits(bin_dir, tmp_path / "plain", path, **of_class)
    assert folder_logits(bin_dir, tmp_path / "stray", path, **of_class, **stray) == plain
    other = folder_logits(bin_dir, tmp_path / "window", path, **{**of_class, "sliding_window": 8})
    assert (other == plain) == (not mistral)


def test_rope_theta(bin_dir, tmp_path):
    """The base is that of rope_parameters, otherwise the one beside it, otherwise the class's default."""
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, types=[Type.BF16], n_heads=4, n_kv_heads=2, head_dim=64, tied=True)
    linear = {"rope_type": "linear", "factor": 2.0}

    def got(name, theta, **rope):
        return folder_logits(bin_dir, tmp_path / name, path, rope_theta=theta, **rope)

    old = {theta: got(f"old{theta:.0f}", theta, rope_scaling=linear) for theta in (1e4, 5e5)}
    assert old[1e4] != old[5e5]
    assert got("beside", 5e5, rope_parameters=linear) == old[5e5]
    assert got("inside", 1e4, rope_parameters={**linear, "rope_theta": 5e5}) == old[5e5]
    assert got("class", None, rope_parameters=linear) == old[1e4]


def test_layer_types(bin_dir, tmp_path, f32_activations):
    """Newer configurations list the kinds of layers; query_pre_attn_scalar scales the scores."""
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, **MODELS["gemma3"])

    def change(config, _, __):
        del config["sliding_window_pattern"]
        config["layer_types"] = ["full_attention" if i in (0, 4) else "sliding_attention" for i in range(7)]
        config["query_pre_attn_scalar"] = 100

    folder = write_hf.write_folder(tmp_path / "hf", path, change=change)
    model, other = oracle.load(path), oracle.load(path)
    for i in range(7):
        source = 5 if i in (0, 4) else 0  # a layer of the same kind in the file
        other.windows[i], other.frequencies[i] = model.windows[source], model.frequencies[source]
    other.scale = 0.1
    _, got = dump(bin_dir, tmp_path, folder, TOKENS, kv="f32")
    assert np.abs(got - oracle.logits(other, [TOKENS])[0]).max() <= 1e-4


def logits_of(bin_dir, tmp_path, name, gguf, change=None, after=None):
    folder = tmp_path / name
    folder.mkdir()
    write_hf.write_folder(folder / "hf", gguf, change=change)
    if after:
        after(folder / "hf")
    return dump(bin_dir, folder, folder / "hf", TOKENS, kv="f32")[1].tobytes()


def as_transformers_5_saves(config, _=None, __=None):
    """A Gemma 3 whose rotation is listed by kind of layer, as in all files since transformers 5."""
    scaling = config.pop("rope_scaling")
    config["rope_parameters"] = {
        "full_attention": (scaling or {"rope_type": "default"}) | {"rope_theta": config.pop("rope_theta")},
        "sliding_attention": {"rope_type": "default", "rope_theta": float(config.pop("rope_local_base_freq"))},
    }
    period = config.pop("sliding_window_pattern")
    kinds = ["sliding_attention", "full_attention"]
    config["layer_types"] = [kinds[(i + 1) % period == 0] for i in range(config["num_hidden_layers"])]
    config |= {"_sliding_window_pattern": period, "attention_bias": False, "use_bidirectional_attention": False, "model_type": "gemma3_text"}


def nested(prefix, head, name):
    """Puts the model of text into that of a class that also sees, with its other tensors."""

    def change(config, _, tensors):
        text = dict(config)
        config.clear()
        config |= {"architectures": [name], "text_config": text, "vision_config": {"hidden_size": 8}, "model_type": "seeing"}
        del text["architectures"]
        for tensor in list(tensors):
            tensors[head if tensor.startswith("lm_head") else tensor.replace("model.", prefix, 1)] = tensors.pop(tensor)
        for extra in ("vision_tower.patch.weight", "model.vision_tower.x.bias", "multi_modal_projector.linear.weight"):
            tensors[extra] = ("F32", [1], bytes(4))

    return change


def test_gemma3_of_transformers_5(bin_dir, tmp_path):
    gguf = tmp_path / "model.gguf"
    write_gguf.random_model(gguf, **MODELS["gemma3"])
    plain = logits_of(bin_dir, tmp_path, "plain", gguf)
    assert logits_of(bin_dir, tmp_path, "new", gguf, as_transformers_5_saves) == plain

    def other_base(config, *rest):
        as_transformers_5_saves(config, *rest)
        config["rope_parameters"]["sliding_attention"]["rope_theta"] = 500.0

    assert logits_of(bin_dir, tmp_path, "other", gguf, other_base) != plain


@pytest.mark.parametrize("field, value, part", [("partial_rotary_factor", 0.5, "must be 1"), ("rope_type", "linear", 'is "linear"; supported: default')])
def test_rotation_of_windows(chunkllama, tmp_path, field, value, part):
    gguf = tmp_path / "model.gguf"
    write_gguf.random_model(gguf, **MODELS["gemma3"])

    def change(config, *rest):
        as_transformers_5_saves(config, *rest)
        config["rope_parameters"]["sliding_attention"][field] = value

    folder = write_hf.write_folder(tmp_path / "hf", gguf, change=change)
    assert f"rope_parameters.sliding_attention.{field} {part}" in chunkllama("info", folder).stdout


PATHS = [
    (lambda text: text["rope_parameters"]["full_attention"].update(rope_type="ntk"), 'rope_parameters.full_attention.rope_type is "ntk"'),
    (lambda text: text["rope_parameters"].pop("full_attention"), "rope_parameters.full_attention is missing"),
    (lambda text: text["layer_types"].__setitem__(0, "none"), "layer_types[0] must be"),
    (lambda text: text.update(vocab_size=0), "vocab_size is 0"),
    (lambda text: text.update(num_hidden_layers=-1), "num_hidden_layers is -1"),
]


@pytest.mark.parametrize("spoil, part", PATHS)
def test_messages_have_the_whole_path(chunkllama, tmp_path, spoil, part):
    gguf = tmp_path / "model.gguf"
    write_gguf.random_model(gguf, **MODELS["gemma3"])

    def change(config, *rest):
        as_transformers_5_saves(config)
        nested("model.language_model.", "lm_head.weight", "Gemma3ForConditionalGeneration")(config, *rest)
        spoil(config["text_config"])

    folder = write_hf.write_folder(tmp_path / "hf", gguf, change=change)
    assert f"config.json: text_config.{part}" in chunkllama("info", folder).stdout


@pytest.mark.parametrize("prefix, head", [("language_model.model.", "language_model.lm_head.weight"), ("model.language_model.", "lm_head.weight")])
@pytest.mark.parametrize("name", ["Gemma3ForConditionalGeneration", "Mistral3ForConditionalGeneration"])
def test_text_of_models_that_see(bin_dir, chunkllama, tmp_path, name, prefix, head):
    gguf = tmp_path / "model.gguf"
    gemma = name.startswith("Gemma")
    fields = MODELS["gemma3"] if gemma else dict(types=[Type.BF16], n_heads=4, n_kv_heads=2, head_dim=64)
    write_gguf.random_model(gguf, **fields)

    def change(*all_parts):
        if gemma:
            as_transformers_5_saves(all_parts[0])
        nested(prefix, head, name)(*all_parts)

    assert logits_of(bin_dir, tmp_path, "nested", gguf, change) == logits_of(bin_dir, tmp_path, "plain", gguf)
    out = chunkllama("info", tmp_path / "nested" / "hf").stdout
    assert "left out        vision tower: 2 tensors" in out and "left out        projector: 1 tensor" in out


GEMMA_TOWERS = ("model.vision_tower.x.weight", "model.embed_vision.x.weight", "model.audio_tower.x.weight", "model.embed_audio.x.weight")


def of_towers(name, text_type):
    """Puts the model of text into that of a class that also sees and hears, with its other tensors."""

    def change(config, _, tensors):
        text = dict(config, model_type=text_type)
        config.clear()
        config |= {"architectures": [name], "text_config": text}
        for tensor in list(tensors):
            tensors[tensor.replace("model.", "model.language_model.", 1)] = tensors.pop(tensor)
        for extra in GEMMA_TOWERS:
            tensors[extra] = ("F32", [1], bytes(4))

    return change


def test_text_of_gemma3n(bin_dir, chunkllama, tmp_path):
    """The part of gates that is cut, and the bases of the rotation, have defaults."""
    gguf = tmp_path / "model.gguf"
    fields = dict(n_layers=12, shared_kv=3, cuts=[1.6448536269514722] * 10 + [-np.inf] * 2)
    write_gguf.random_model(gguf, **MODELS["gemma3n"] | fields)

    def change(config, *rest):
        for field in ("activation_sparsity_pattern", "altup_num_inputs", "rope_theta"):
            del config[field]
        config["intermediate_size"] = [config["intermediate_size"][0]] * 12
        of_towers("Gemma3nForConditionalGeneration", "gemma3n_text")(config, *rest)

    assert logits_of(bin_dir, tmp_path, "nested", gguf, change) == logits_of(bin_dir, tmp_path, "plain", gguf)
    assert "left out        towers of images and sound: 4 tensors" in chunkllama("info", tmp_path / "nested" / "hf").stdout


WRONG_GEMMA3N = {
    "n_ff": (dict(intermediate_size=[5]), ["intermediate_size has 1 entries, but num_hidden_layers is 6"]),
    "cuts": (dict(activation_sparsity_pattern=[0.5] * 5), ["activation_sparsity_pattern has 5 entries, but num_hidden_layers is 6"]),
    "cut": (dict(activation_sparsity_pattern=[0.5] * 5 + [1.0]), ["activation_sparsity_pattern[5] is 1; 0 to below 1 is allowed"]),
    "states": (dict(altup_num_inputs=1), ["altup_num_inputs is 1; allowed: 2 to 4"]),
    "fewer states": (dict(altup_num_inputs=3), ["model.altup_projections.2.weight is not part of"]),
    "active": (dict(altup_active_idx=1), ["altup_active_idx is 1; allowed: 0 to 0"]),
    "scale": (dict(altup_correct_scale=False), ["altup_correct_scale is false; only true is supported"]),
}


@pytest.mark.parametrize("name", WRONG_GEMMA3N)
def test_messages_about_gemma3n(chunkllama, tmp_path, name):
    fields, parts = WRONG_GEMMA3N[name]
    gguf = tmp_path / "model.gguf"
    write_gguf.random_model(gguf, **MODELS["gemma3n"])
    folder = write_hf.write_folder(tmp_path / "hf", gguf, change=lambda config, _, __: config.update(fields))
    out = chunkllama("info", folder).stdout
    assert all(part in out for part in parts), out


@pytest.mark.parametrize("name, kind", [("gemma4", ""), ("gemma4_experts", ""), ("gemma4_keys", "Unified")])
def test_text_of_gemma4(bin_dir, chunkllama, tmp_path, name, kind):
    """As published; of models that also see and hear; and as Transformers saves it, with what differs listed by layer."""
    gguf = tmp_path / "model.gguf"
    write_gguf.random_model(gguf, **MODELS[name])
    plain = logits_of(bin_dir, tmp_path, "plain", gguf)

    def change(config, *rest):
        if kind:
            config["use_bidirectional_attention"] = "vision"
            for field in ("hidden_size_per_layer_input", "enable_moe_block"):
                del config[field]
        of_towers(f"Gemma4{kind}ForConditionalGeneration", f"gemma4_{kind.lower()}{'_' if kind else ''}text")(config, *rest)

    assert logits_of(bin_dir, tmp_path, "nested", gguf, change) == plain
    assert "left out        towers of images and sound: 4 tensors" in chunkllama("info", tmp_path / "nested" / "hf").stdout
    assert logits_of(bin_dir, tmp_path, "saved", gguf, lambda config, _, __: by_layer(config)) == plain


def by_layer(config):
    full = {"head_dim": config.pop("global_head_dim"), "num_key_value_heads": config.pop("num_global_key_value_heads")}
    config["per_layer_config"] = {str(i): full for i, kind in enumerate(config["layer_types"]) if kind == "full_attention"}


def of_gemma4(**fields):
    return lambda config: config.update(fields)


WRONG_GEMMA4 = {
    "layer types": (of_gemma4(layer_types=["full_attention"] * 7), ["layer_types has 7 entries, but num_hidden_layers is 8"]),
    "no layer types": (lambda config: config.pop("layer_types"), ["layer_types is missing; it must be an array"]),
    "last layer": (lambda config: config["layer_types"].__setitem__(7, "sliding_attention"), ['layer_types[7] must be "full_attention"']),
    "all shared": (of_gemma4(num_kv_shared_layers=8), ["num_kv_shared_layers is 8; allowed: 0 to 7"]),
    "too many shared": (of_gemma4(num_kv_shared_layers=2**63 - 1), ["num_kv_shared_layers is 9223372036854775807; 0 to 4294967295 are"]),
    "n_ff": (of_gemma4(intermediate_size=2**63 - 1), ["intermediate_size is 9223372036854775807; 0 to 4294967295 are allowed"]),
    "no n_ff": (lambda config: config.pop("intermediate_size"), ["intermediate_size is 0; allowed: 1 to"]),
    "heads": (of_gemma4(global_head_dim=-1), ["head_dim is -1; 0 to 4294967295 are allowed"]),
    "heads of another size": (of_gemma4(global_head_dim=72), ["layer_head_dim[1] is 72; it must be 32"]),
    "K as V": (of_gemma4(attention_k_eq_v=True), ["self_attn.v_proj.weight is not part of"]),
    "field of a layer": (of_gemma4(per_layer_config={"3": {"intermediate_size": 5}}), ["per_layer_config.3.intermediate_size: layers may not differ in it"]),
    "fields of layers": (of_gemma4(per_layer_config=[]), ["per_layer_config must be an object"]),
    "type of a layer's field": (of_gemma4(per_layer_config={"3": {"head_dim": "5"}}), ["per_layer_config.3.head_dim must be an integer"]),
    "experts": (of_gemma4(enable_moe_block=True, num_experts=4), ["no integer config.json: top_k_experts"]),
    "both directions": (of_gemma4(use_bidirectional_attention="all"), ['use_bidirectional_attention is "all"; only false and "vision" are supported']),
    "rotation": (lambda config: config["rope_parameters"]["full_attention"].update(partial_rotary_factor=2.0), ["partial_rotary_factor is 2; above 0"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_GEMMA4)
def test_messages_about_gemma4(chunkllama, tmp_path, name):
    spoil, parts = WRONG_GEMMA4[name]
    gguf = tmp_path / "model.gguf"
    write_gguf.random_model(gguf, **MODELS["gemma4"])
    folder = write_hf.write_folder(tmp_path / "hf", gguf, change=lambda config, _, __: spoil(config))
    out = chunkllama("info", folder).stdout
    assert all(part in out for part in parts), out


def test_tied_beside_the_text(bin_dir, tmp_path):
    """Whether the embedding is the output matrix may be said beside text_config, too."""
    gguf = tmp_path / "model.gguf"
    write_gguf.random_model(gguf, types=[Type.BF16], n_heads=4, n_kv_heads=2, head_dim=64, tied=True)

    def change(config, *rest):
        nested("model.language_model.", "", "Mistral3ForConditionalGeneration")(config, *rest)
        config["tie_word_embeddings"] = config["text_config"].pop("tie_word_embeddings")

    assert logits_of(bin_dir, tmp_path, "beside", gguf, change) == logits_of(bin_dir, tmp_path, "plain", gguf)


@pytest.mark.parametrize("arch", ["llama", "qwen3"])
def test_an_embedding_that_is_stored_twice(bin_dir, tmp_path, arch):
    """Files may hold an output matrix although the embedding is it, such as those of Qwen3-0.6B."""
    gguf = tmp_path / "model.gguf"
    write_gguf.random_model(gguf, arch=arch, types=[Type.BF16], n_heads=4, n_kv_heads=2, head_dim=64, tied=True)

    def change(_, __, tensors):
        dtype, shape, data = tensors["model.embed_tokens.weight"]
        tensors["lm_head.weight"] = (dtype, shape, bytes(len(data)))

    assert logits_of(bin_dir, tmp_path, "twice", gguf, change) == logits_of(bin_dir, tmp_path, "plain", gguf)


def test_fields_that_gemma_leaves_out(bin_dir, tmp_path):
    """Published files of Gemma 3 have only the fields that differ from those of one size."""
    gguf = tmp_path / "model.gguf"
    window = {"ARCH.attention.sliding_window": (4096, write_gguf.value_type.UINT32)}
    write_gguf.random_model(gguf, arch="gemma3", types=[Type.BF16], n_heads=8, n_kv_heads=4, head_dim=256, tied=True, rope_base=1e6,
                            replace_fields=window)

    def change(config, *rest):
        for field in ("num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "max_position_embeddings",
                      "query_pre_attn_scalar", "sliding_window", "hidden_activation", "rope_theta", "rope_local_base_freq",
                      "sliding_window_pattern", "tie_word_embeddings", "final_logit_softcapping", "attn_logit_softcapping"):
            del config[field]
        config["model_type"] = "gemma3_text"
        nested("language_model.model.", "", "Gemma3ForConditionalGeneration")(config, *rest)

    def plain(config, *_):
        config["rms_norm_eps"] = 1e-6

    assert logits_of(bin_dir, tmp_path, "few", gguf, change) == logits_of(bin_dir, tmp_path, "all", gguf, plain)


def test_other_text_towers(bin_dir, tmp_path):
    def change(*parts):
        nested("model.language_model.", "lm_head.weight", "Mistral3ForConditionalGeneration")(*parts)
        parts[0]["text_config"]["model_type"] = "other"

    assert 'text_config.model_type is "other"; supported: mistral' in message(bin_dir, tmp_path, change=change)


@pytest.mark.parametrize("name, extra", [("glm4moe", "model.layers.3.eh_proj.weight"), ("ernie4_5-moe", "model.mtp_block.0.input_layernorm.weight")])
def test_next_token_layers_are_left_out(bin_dir, tmp_path, name, extra):
    """As GLM-4.5 has them, behind its layers and not counted among them, and ERNIE 4.5."""
    gguf = tmp_path / "model.gguf"
    write_gguf.random_model(gguf, **MODELS[name] | dict(n_layers=3))

    def change(config, _, tensors):
        config["num_nextn_predict_layers"] = 1
        tensors[extra] = tensors["model.layers.2.input_layernorm.weight"]
        tensors["model.layers.3.input_layernorm.weight"] = tensors["model.layers.2.input_layernorm.weight"]

    assert logits_of(bin_dir, tmp_path, "next", gguf, change) == logits_of(bin_dir, tmp_path, "plain", gguf)


def without_head(name):
    def change(config, _, tensors):
        config["architectures"] = [name]
        for tensor in list(tensors):
            data = tensors.pop(tensor)
            if not tensor.startswith("lm_head"):
                tensors[tensor.removeprefix("model.")] = data

    return change


@pytest.mark.parametrize("name", ["LlamaModel", "Qwen2Model", "Qwen3Model", "MistralModel", "Gemma3TextModel"])
def test_models_without_a_head(bin_dir, tmp_path, name):
    """Folders of sentence-transformers, whose names have no prefix. The embedding is the output matrix where the file says so."""
    gguf = tmp_path / "model.gguf"
    arch = {"LlamaModel": "llama", "MistralModel": "llama", "Gemma3TextModel": "gemma3"}.get(name, name[:5].lower())
    write_gguf.random_model(gguf, arch=arch, types=[Type.BF16], n_heads=4, n_kv_heads=2, head_dim=64, tied=True)
    assert logits_of(bin_dir, tmp_path, "base", gguf, without_head(name)) == logits_of(bin_dir, tmp_path, "plain", gguf)


@pytest.mark.parametrize("name", ["Qwen3Model", "Qwen3ForCausalLM"])
def test_only_embeddings(chunkllama, tmp_path, name):
    gguf = tmp_path / "model.gguf"
    write_gguf.random_model(gguf, arch="qwen3", types=[Type.BF16], n_heads=4, n_kv_heads=2, head_dim=64)
    folder = write_hf.write_folder(tmp_path / "hf", gguf, change=without_head(name))
    done = chunkllama("run", "-m", folder, "--raw", "-p", "ab", "-n", "1", status=1)
    assert "the model's file has no output matrix, so it makes embeddings only" in done.stderr


def test_commands(chunkllama, tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, **MODELS["qwen3"])
    folder = write_hf.write_folder(tmp_path / "hf", path)
    out = chunkllama("info", folder, "--tensors").stdout
    assert "(safetensors)" in out and "qwen3" in out and "model.layers.1.self_attn.q_norm.weight" in out
    out = chunkllama("run", "-p", "ab", "-n", "4", "--chat-format", "chatml", env={"CHUNKLLAMA_MODEL": str(folder)})
    assert out.stdout


# ---- What is wrong with a folder ----


def message(bin_dir, tmp_path, change=None, after=None, shards=1, tied=True):
    """The message of logits_dump about a folder; after(folder) edits its files."""
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, types=[Type.BF16], n_heads=2, n_kv_heads=1, head_dim=64, n_layers=1, tied=tied)
    folder = write_hf.write_folder(tmp_path / "hf", path, shards, change)
    if after:
        after(folder)
    (tmp_path / "ids.json").write_text("[1, 5]")
    command = [bin_dir / "logits_dump", folder, tmp_path / "ids.json", tmp_path / "out.npy"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert run.returncode in (0, 1), run
    return run.stderr


def test_unchanged(bin_dir, tmp_path):
    assert message(bin_dir, tmp_path) == ""


def config(**fields):
    """Replaces fields; None removes one."""

    def change(config, _, __):
        for name, value in fields.items():
            config[name] = value
            if value is None:
                del config[name]

    return dict(change=change)


def tokenizer(edit):
    return dict(change=lambda _, t, __: edit(t))


def tensors(edit):
    return dict(change=lambda _, __, t: edit(t))


def bytes_of(edit):
    def after(folder):
        path = folder / "model.safetensors"
        path.write_bytes(edit(path.read_bytes()))

    return dict(after=after)


def index(edit):
    def after(folder):
        path = folder / "model.safetensors.index.json"
        fields = json.loads(path.read_text())
        edit(fields)
        path.write_text(json.dumps(fields))

    return dict(after=after, shards=2)


def holds(*names, lacks="config.json"):
    def after(folder):
        (folder / lacks).unlink()
        for name in names:
            (folder / name).touch()

    return dict(after=after)


def pooling(**fields):
    def after(folder):
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(fields))

    return dict(after=after)


def template(pieces, ids):
    single = [{"Sequence": {"id": "A", "type_id": 0}} if p == "$A" else {"SpecialToken": {"id": p, "type_id": 0}} for p in pieces]
    tokens = {name: {"id": name, "ids": some, "tokens": [name] * len(some)} for name, some in ids.items()}
    return {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": tokens}


def of_gpt_oss(tensors):
    """The folder as one of gpt-oss, with further tensors."""

    def change(fields, _, all_tensors):
        fields.update(architectures=["GptOssForCausalLM"], num_local_experts=7, num_experts_per_tok=3)
        all_tensors.update(tensors)

    return dict(change=change)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 1\n"
Q = "model.layers.0.self_attn.q_proj.weight"
EMBEDDING = "model.embed_tokens.weight"
EXPERTS_OF_0 = "model.layers.0.mlp.experts."
ADDED = {"id": 3, "content": "x", "special": False}
without_tokenizer = dict(after=lambda f: (f / "tokenizer.json").unlink())
WRONG = {
    "config missing": (dict(after=lambda f: (f / "config.json").unlink()), ["hf: the folder is no model, since it has no config.json"]),
    "of a GGUF": (dict(after=lambda f: (f / "config.json").rename(f / "m.gguf")), ["the folder has no config.json", "name that: m.gguf"]),
    "several GGUF": (holds("b.gguf", "a.gguf", "A-mmproj-F16.gguf"), ["to load one of its 2 GGUF files, name that, such as: a.gguf"]),
    "projector": (holds("b.gguf", "mmproj-a.gguf"), ["no config.json; to load a GGUF file in it, name that: b.gguf"]),
    "projector alone": (holds("mmproj-a.gguf"), ["only a part of a model", "mmproj-a.gguf"]),
    "parts": (holds("m-00002-of-00003.gguf", "m-00001-of-00003.gguf", "m-00003-of-00003.gguf"), ["name that: m-00001-of-00003.gguf"]),
    "later part": (holds("m-00002-of-00003.gguf"), ["only a part of a model", "m-00002-of-00003.gguf"]),
    "adapter": (holds("adapter_config.json"), ["no config.json; it is a LoRA adapter", "merge it into the weights of its model"]),
    "PyTorch": (holds("pytorch_model.bin"), ["convert the model to GGUF, or to a folder of safetensors: pytorch_model.bin"]),
    "PyTorch weights": (holds("pytorch_model-00001-of-00002.bin", lacks="model.safetensors"), ["neither model.safetensors", "convert the model"]),
    "GGUF weights": (holds("m.gguf", lacks="model.safetensors"), ["neither model.safetensors nor", "to load a GGUF file in it, name that: m.gguf"]),
    "adapter of a model": (holds("adapter_config.json", lacks="model.safetensors"), ["neither model.safetensors nor", "it is a LoRA adapter"]),
    "config cut": (dict(after=lambda f: (f / "config.json").write_text('{"a": ')), ["config.json: line 1, column", "the file is cut short"]),
    "pointer": (dict(after=lambda f: (f / "tokenizer.json").write_text(POINTER)), ["tokenizer.json: it is a pointer of Git LFS"]),
    "config twice": (dict(after=lambda f: (f / "config.json").write_text('{"a": 1, "a": 2}')), ["config.json", "duplicate"]),
    "config array": (dict(after=lambda f: (f / "config.json").write_text("[]")), ["config.json: it must be an object"]),
    "class": (config(architectures=["GPT2LMHeadModel"]), ['"GPT2LMHeadModel"; supported, each with ForCausalLM behind it: Llama, InternLM3, ', "Starcoder2"]),
    "recurrent": (config(architectures=["MambaForCausalLM"]), ['"MambaForCausalLM", which needs recurrent layers (state spaces); that is not']),
    "vision": (config(architectures=["Qwen3VLMoeForConditionalGeneration"]), ["which needs a vision tower; that is not supported"]),
    "encoder": (config(architectures=["DistilBertModel"]), ["which needs attention in both directions, as an encoder does; that is not"]),
    "labels": (config(architectures=["LlamaForSequenceClassification"]), ["which needs a head of labels; that is not supported"]),
    "experts": (config(architectures=["PhimoeForCausalLM"]), ['"PhimoeForCausalLM", which needs a mixture of experts of a form of']),
    "clamp": (config(architectures=["GptOssForCausalLM"], head_dim=64, swiglu_limit=5), ["config.json: swiglu_limit is 5; only 7 is supported"]),
    "gate and up": (of_gpt_oss({EXPERTS_OF_0 + "gate_up_proj": ("F32", [7, 160, 191], bytes(4 * 7 * 160 * 191))}),
                    [f"tensor {EXPERTS_OF_0}gate_up_proj has type F32 and 3 dimensions; needed are", "as many outputs of gate as of up"]),
    "experts of integers": (of_gpt_oss({EXPERTS_OF_0 + "gate_up_proj_bias": ("I32", [7, 192], bytes(4 * 7 * 192))}),
                            [f"tensor {EXPERTS_OF_0}gate_up_proj_bias has type I32"]),
    "no class": (config(architectures=None), ["config.json: architectures is missing; it must be an array"]),
    "layers missing": (config(num_hidden_layers=None), ["config.json: num_hidden_layers is missing; it must be an integer"]),
    "layers string": (config(num_hidden_layers="1"), ["config.json: num_hidden_layers must be an integer"]),
    "layers 0": (config(num_hidden_layers=0), ["config.json: num_hidden_layers is 0; allowed: 1 to 1024"]),
    "layers 2": (config(num_hidden_layers=2), ["tensor model.layers.1.input_layernorm.weight is missing"]),
    "layers many": (config(num_hidden_layers=2**40), ["num_hidden_layers is 1099511627776"]),
    "layers too long": (config(num_hidden_layers=10**30), ["config.json: line ", "too big integer"]),
    "heads": (config(num_attention_heads=3, num_key_value_heads=2), ["config.json: num_attention_heads is 3"]),
    "width": (config(hidden_size=192), ["config.json: hidden_size is 192; tensor model.embed_tokens.weight has rows of 160"]),
    "vocab": (config(vocab_size=300), ["config.json: vocab_size is 300; tensor model.embed_tokens.weight has 261 rows"]),
    "vocab huge": (config(vocab_size=2**31 - 1), ["config.json: vocab_size is 2147483647; tensor model.embed_tokens.weight has 261 rows"]),
    "vocab small": (config(vocab_size=100), ["model.vocab: the id of", "below vocab_size in config.json, 100"]),
    "eps": (config(rms_norm_eps=-1.0), ["config.json: rms_norm_eps is -1"]),
    "rope": (config(rope_scaling={"rope_type": "ntk", "factor": 2}), ['rope_scaling.rope_type is "ntk"; supported: default, linear']),
    "rope factor": (config(rope_scaling={"type": "linear"}), ["rope_scaling.factor is missing; it must be a number"]),
    "rope llama3": (config(rope_scaling={"rope_type": "llama3", "factor": 8}), ["rope_scaling.low_freq_factor is missing"]),
    "rope by layer": (config(rope_parameters={"full_attention": {"rope_theta": 1e4}}), ["rope_parameters differ by kind of layer; a llama"]),
    "partial rotation": (config(partial_rotary_factor=0.5), ["config.json: partial_rotary_factor must be 1"]),
    "rope partial": (config(rope_parameters={"partial_rotary_factor": 0.5}), ["rope_parameters.partial_rotary_factor must be 1"]),
    "bias": (config(attention_bias=True), ["self_attn.q_proj.bias is missing"]),
    "bias of another class": (config(architectures=["MistralForCausalLM"], attention_bias=True), ["attention_bias is true; only false is"]),
    "divisors": (config(rope_scaling={"rope_type": "longrope", "short_factor": [1.0]}), ["rope_scaling.long_factor is missing"]),
    "not causal": (config(is_causal=False), ["config.json: is_causal is false; only true is supported"]),
    "both directions": (config(use_bidirectional_attention=True), ["use_bidirectional_attention is true; only false is supported"]),
    "activation": (config(hidden_act="gelu"), ['hidden_act is "gelu"', '"silu"']),
    "eos": (config(eos_token_id=999), ["eos_token_id must be a token id below vocab_size, 261"]),
    "layer types": (config(layer_types=["linear_attention"]), ["layer_types[0] must be"]),
    "tokenizer missing": (without_tokenizer, ["tokenizer.json", "cannot be opened"]),
    "tokenizer type": (tokenizer(lambda t: t["model"].update(type="WordPiece")), ['model.type is "WordPiece"; supported: BPE']),
    "normalizer": (tokenizer(lambda t: t.update(normalizer={"type": "Lowercase"})), ["normalizer and pre_tokenizer are together none of the known ones"]),
    "id twice": (tokenizer(lambda t: t["model"]["vocab"].update(zz=7)), ["model.vocab: 'zz' has id 7, which '<0x04>' has already"]),
    "id string": (tokenizer(lambda t: t["model"]["vocab"].update(zz="7")), ["model.vocab: the id of 'zz'"]),
    "added": (tokenizer(lambda t: t["added_tokens"].append(ADDED)), ["added_tokens[3].id 3 is 'x' here and '<0x00>' in model.vocab"]),
    "strip": (tokenizer(lambda t: t["added_tokens"][0].update(lstrip=True)), ["added_tokens[0].lstrip is true"]),
    "merge": (tokenizer(lambda t: t["model"].update(merges=["a b"])), ["model.merges[0]: a part or the result of 'a' and 'b'"]),
    "merge three": (tokenizer(lambda t: t["model"].update(merges=["a b c"])), ["model.merges[0] must be two tokens"]),
    "no weights": (dict(after=lambda f: (f / "model.safetensors").unlink()), ["neither model.safetensors nor"]),
    "tensor missing": (tensors(lambda t: t.pop(Q)), [f"tensor {Q} is missing"]),
    # This is reported before the tokenizer is read, whose memory depends on vocab_size.
    "embedding missing": (tensors(lambda t: t.pop(EMBEDDING)) | without_tokenizer, [f"tensor {EMBEDDING} is missing"]),
    "embedding thin": (config(hidden_size=161) | without_tokenizer, ["config.json: hidden_size is 161", f"{EMBEDDING} has rows of 160"]),
    "tensor unknown": (tensors(lambda t: t.update({"model.extra.weight": ("F32", [1], bytes(4))})), ["tensor model.extra.weight is not part"]),
    "bias tensor": (tensors(lambda t: t.update({Q[:-6] + "bias": ("F32", [128], bytes(512))})), ["self_attn.q_proj.bias is not part"]),
    "o bias": (tensors(lambda t: t.update({"model.layers.0.self_attn.o_proj.bias": ("F32", [1], bytes(4))})), ["o_proj.bias is not part"]),
    "integers": (tensors(lambda t: t.update({Q: ("I8", [128, 160], bytes(128 * 160))})), [f"tensor {Q} has type I8; supported: F32"]),
    "shape": (tensors(lambda t: t.update({Q: ("F16", [160, 128], bytes(2 * 128 * 160))})), [f"tensor {Q} has shape [128, 160", "[160, 128]"]),
    "untied": (config(tie_word_embeddings=False), ["lm_head.weight is missing", "tie_word_embeddings"]),
    "post-processor": (tokenizer(lambda t: t.update(post_processor=template(["<s>", "$A"], {"<s>": [999]}))), ["post_processor: an id", "261"]),
    "post-processor name": (tokenizer(lambda t: t.update(post_processor=template(["<s>", "$A"], {}))), ["special_tokens has no ids of '<s>'"]),
    "pooling": (pooling(pooling_mode_cls_token=True), ["1_Pooling/config.json: pooling_mode_cls_token: only one of mean and lasttoken"]),
    "pooling by name": (pooling(pooling_mode="cls"), ["1_Pooling/config.json: pooling_mode: only one of mean and lasttoken"]),
    "two poolings": (pooling(pooling_mode_mean_tokens=True, pooling_mode_lasttoken=True), ["only one of mean and lasttoken is supported"]),
    "other pooling": (pooling(pooling_mode="attention"), ['pooling_mode is "attention"; supported: mean, lasttoken']),
    "dense": (dict(after=lambda f: (f / "2_Dense").mkdir()), ["2_Dense: layers behind the pooling"]),
    "cut": (bytes_of(lambda b: b[:-10]), ["model.safetensors: tensor", "the file is cut short"]),
    "empty": (bytes_of(lambda _: b""), ["model.safetensors: the file is empty"]),
    "short": (bytes_of(lambda _: b"1234567"), ["model.safetensors: 7 bytes"]),
    "index map": (index(lambda i: i.pop("weight_map")), ["weight_map is missing; it must be an object"]),
    "index file": (index(lambda i: i["weight_map"].update({Q: 1})), [f"weight_map: the file of {Q} must be a string"]),
    "index path": (index(lambda i: i["weight_map"].update({Q: "../x"})), ['weight_map names "../x"; a file of the same folder']),
    "index missing": (index(lambda i: i["weight_map"].pop(Q)), [f"weight_map has tensor {Q} in no file"]),
    "index extra": (index(lambda i: i["weight_map"].update(x="model-00001-of-00002.safetensors")), ["weight_map has 12 tensors, the files hold 11"]),
    "index shard": (index(lambda i: i["weight_map"].update(x="other.safetensors")), ["other.safetensors: cannot be opened"]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_messages(bin_dir, tmp_path, name):
    how, parts = WRONG[name]
    text = message(bin_dir, tmp_path, **how)
    assert all(part in text for part in parts), text


def test_file_instead_of_folder(bin_dir, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"x")
    done = subprocess.run([bin_dir / "tokenize_dump", tmp_path / "model.safetensors"], input="", capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)  # fmt: skip
    assert done.returncode == 1 and "name the folder it is in" in done.stderr
