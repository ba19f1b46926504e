"""Safetensors folders: the same logits as the same weights in a GGUF file, and the messages about folders that are not models."""

import json
import subprocess

import numpy as np
import oracle
import pytest
import write_gguf
import write_hf
from test_logits import GEMMA3, dump
from test_make_model import llama3_factors
from waiting import LIMIT_S
from write_gguf import Type

MODELS = {
    "qwen2": dict(arch="qwen2", types=[Type.F32, Type.BF16], n_heads=6, n_kv_heads=2, head_dim=64, rope_base=1e6, tied=True),
    "qwen3": dict(arch="qwen3", types=[Type.BF16, Type.F16], n_heads=4, n_kv_heads=2, head_dim=128, rope_base=1e6),
    "gemma3": dict(arch="gemma3", types=[Type.BF16], n_heads=4, n_kv_heads=1, head_dim=64, n_layers=7, tied=True, rope_base=1e6,
                   rope_linear=8, replace_fields=GEMMA3),
}  # fmt: skip
LLAMAS = {
    "llama": {},
    "llama3": dict(rope_base=5e5, rope_factors=np.asarray(llama3_factors(64, 5e5, 8), np.float32)),
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
    write_gguf.random_model(path, types=[Type.F32], n_heads=4, n_kv_heads=2, head_dim=64, n_layers=3, **LLAMAS[name])

    def change(config, _, tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", [2], bytes(8))
        if name == "llama3":
            config["rope_scaling"] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 8192}  # fmt: skip
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


Q = "model.layers.0.self_attn.q_proj.weight"
EMBEDDING = "model.embed_tokens.weight"
ADDED = {"id": 3, "content": "x", "special": False}
without_tokenizer = dict(after=lambda f: (f / "tokenizer.json").unlink())
WRONG = {
    "config missing": (dict(after=lambda f: (f / "config.json").unlink()), ["config.json", "cannot be opened"]),
    "config cut": (dict(after=lambda f: (f / "config.json").write_text('{"a": ')), ["config.json: line 1, column"]),
    "config twice": (dict(after=lambda f: (f / "config.json").write_text('{"a": 1, "a": 2}')), ["config.json", "duplicate"]),
    "config array": (dict(after=lambda f: (f / "config.json").write_text("[]")), ["config.json: it must be an object"]),
    "class": (config(architectures=["GPT2LMHeadModel"]), ['"GPT2LMHeadModel"; supported: LlamaForCausalLM', "Gemma3ForCausalLM"]),
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
    "rope": (config(rope_scaling={"rope_type": "yarn", "factor": 2}), ['rope_scaling.rope_type is "yarn"; supported: default, linear']),
    "rope factor": (config(rope_scaling={"type": "linear"}), ["rope_scaling.factor is missing; it must be a number"]),
    "rope llama3": (config(rope_scaling={"rope_type": "llama3", "factor": 8}), ["rope_scaling.low_freq_factor is missing"]),
    "bias": (config(attention_bias=True), ["attention_bias is true"]),
    "activation": (config(hidden_act="gelu"), ['hidden_act is "gelu"', '"silu"']),
    "quantised": (config(quantization_config={"quant_method": "fp8"}), ["quantization_config"]),
    "eos": (config(eos_token_id=999), ["eos_token_id must be a token id below vocab_size, 261"]),
    "layer types": (config(layer_types=["linear_attention"]), ["layer_types[0] must be"]),
    "tokenizer missing": (without_tokenizer, ["tokenizer.json", "cannot be opened"]),
    "tokenizer type": (tokenizer(lambda t: t["model"].update(type="WordPiece")), ['model.type is "WordPiece"; supported: BPE']),
    "normalizer": (tokenizer(lambda t: t.update(normalizer={"type": "Lowercase"})), ["normalizer, pre_tokenizer", "known ones"]),
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
    "bias tensor": (tensors(lambda t: t.update({Q[:-6] + "bias": ("F32", [128], bytes(512))})), ["self_attn.q_proj.bias: this bias"]),
    "o bias": (tensors(lambda t: t.update({"model.layers.0.self_attn.o_proj.bias": ("F32", [1], bytes(4))})), ["o_proj.bias is not part"]),
    "integers": (tensors(lambda t: t.update({Q: ("I8", [128, 160], bytes(128 * 160))})), [f"tensor {Q} has type I8; supported: F32"]),
    "shape": (tensors(lambda t: t.update({Q: ("F16", [160, 128], bytes(2 * 128 * 160))})), [f"tensor {Q} has shape [128, 160", "[160, 128]"]),
    "untied": (config(tie_word_embeddings=False), ["lm_head.weight is missing", "tie_word_embeddings"]),
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
