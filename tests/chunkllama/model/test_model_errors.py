"""Files of models that cannot be run: the message names the key or tensor, and what is allowed."""

import subprocess

import numpy as np
import pytest
import write_gguf
from test_logits import FAMILIES
from waiting import LIMIT_S
from write_gguf import Type, value_type

SHAPE = dict(types=[Type.F32], n_heads=2, n_kv_heads=1, head_dim=64, n_layers=1)


def message(bin_dir, tmp_path, fields=None, tensors=None, **shape):
    """The message of logits_dump about a small model with fields and tensors replaced, added or, if None, removed."""
    path, ids = tmp_path / "model.gguf", tmp_path / "tokens.json"
    shape = SHAPE | shape
    replaced = shape.get("replace_fields", {}) | (fields or {})
    write_gguf.random_model(path, **shape | dict(replace_fields=replaced, replace_tensors=tensors or {}))
    ids.write_text("[1, 5, 9]")
    command = [bin_dir / "logits_dump", path, ids, tmp_path / "out.npy"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert run.returncode in (0, 1), run
    return run.stderr


def test_unchanged(bin_dir, tmp_path):
    assert message(bin_dir, tmp_path) == ""


U32, F32, STRING, BOOL, ARRAY = value_type.UINT32, value_type.FLOAT32, value_type.STRING, value_type.BOOL, value_type.ARRAY
GATED = {"llama.expert_count": (8, U32), "llama.expert_used_count": (3, U32)}
FIELDS = [
    ({"llama.block_count": None}, ["llama.block_count", "no integer"]),
    ({"llama.block_count": (0, U32)}, ["llama.block_count is 0", "1 to 1024"]),
    ({"llama.block_count": (2, U32)}, ["blk.1.attn_norm.weight is missing"]),
    ({"llama.block_count": ("one", STRING)}, ["llama.block_count"]),
    ({"llama.block_count": ([2, 2], ARRAY, U32)}, ["llama.block_count is an array; one number is needed"]),
    ({"llama.context_length": (0, U32)}, ["llama.context_length is 0"]),
    ({"llama.embedding_length": (192, U32)}, ["token_embd.weight", "[160, 261", "[192, 261]"]),
    ({"llama.feed_forward_length": (32, U32)}, ["blk.0.ffn_gate.weight", "[160, 32]"]),
    ({"llama.attention.head_count": (0, U32)}, ["llama.attention.head_count is 0"]),
    ({"llama.attention.head_count_kv": (3, U32)}, ["llama.attention.head_count_kv is 3", "1 to 2"]),
    ({"llama.attention.head_count": (3, U32), "llama.attention.head_count_kv": (2, U32)}, ["llama.attention.head_count is 3", "a multiple of the number of KV heads, 2"]),
    ({"llama.attention.head_count": (129, U32)}, ["n_heads is 129", "1 to 128 times"]),
    ({"llama.attention.key_length": (72, U32), "llama.attention.value_length": (72, U32)}, ["head_dim is 72", "64, 80, 96"]),
    ({"llama.attention.value_length": (128, U32)}, ["llama.attention.value_length is 128"]),
    ({"llama.attention.layer_norm_rms_epsilon": None}, ["llama.attention.layer_norm_rms_epsilon"]),
    ({"llama.attention.layer_norm_rms_epsilon": (float("nan"), F32)}, ["layer_norm_rms_epsilon is nan"]),
    ({"llama.rope.freq_base": (0.0, F32)}, ["llama.rope.freq_base is 0"]),
    ({"llama.rope.dimension_count": (63, U32)}, ["llama.rope.dimension_count is 63", "even"]),
    ({"llama.rope.dimension_count": (66, U32)}, ["llama.rope.dimension_count is 66", "2 to 64"]),
    ({"llama.rope.scaling.type": ("ntk", STRING)}, ['llama.rope.scaling.type is "ntk"', "linear, yarn, longrope"]),
    ({"llama.rope.scaling.type": ("yarn", STRING)}, ["llama.rope.scaling.factor, which yarn scaling needs"]),
    ({"llama.attention.temperature_scale": (0.1, F32)}, ["llama.rope.scaling.original_context_length"]),
    ({"llama.rope.scaling.type": ("linear", STRING)}, ["llama.rope.scaling.factor"]),
    ({"llama.expert_count": (8, U32)}, ["the file has no integer llama.expert_used_count"]),
    ({"llama.expert_count": (5000, U32)}, ["llama.expert_count is 5000; allowed: 0 to 4096"]),
    ({"llama.expert_count": (8, U32), "llama.expert_used_count": (9, U32)}, ["llama.expert_used_count is 9; allowed: 1 to 8"]),
    (GATED | {"llama.expert_gating_func": (4, U32)}, ["llama.expert_gating_func is 4; supported: 1 (softmax), 2 (sigmoid), 3"]),
    (GATED | {"llama.expert_group_count": (3, U32), "llama.expert_group_used_count": (1, U32)},
     ["llama.expert_group_count is 3; the 8 experts cannot be divided into so many groups"]),
    (GATED | {"llama.expert_group_count": (4, U32), "llama.expert_group_used_count": (1, U32)},
     ["llama.expert_group_used_count is 1; so few groups of 2 experts do not have the 3 that a row goes to"]),
    (GATED | {"llama.interleave_moe_layer_step": (2, U32)}, ["llama.interleave_moe_layer_step is 2; allowed: 1 to 1"]),
    (GATED, ["tensor blk.0.ffn_gate.weight is not part of the architecture llama"]),
    ({"llama.attention.causal": (False, BOOL)}, ["llama.attention.causal must be true; attention in both directions"]),
    ({"llama.attention.causal": (0, U32)}, ["llama.attention.causal must be true"]),
    ({"llama.pooling_type": (2, U32)}, ["llama.pooling_type is 2; supported: 0 (none), 1 (mean), 3 (last)"]),
    ({"llama.pooling_type": (4, U32)}, ["llama.pooling_type is 4 (rank): the file has the rows of a few labels", "use the model's folder"]),
    ({"llama.rope.scaling.type": (1, U32)}, ["llama.rope.scaling.type is no text"]),
    ({"llama.attention.clamp_kqv": (8.0, F32)}, ["llama.attention.clamp_kqv is 8; that is not supported"]),
    ({"llama.rope.scaling.attn_factor": (0.0, F32)}, ["llama.rope.scaling.attn_factor is 0; allowed: 0.001"]),
    ({"llama.attention.head_count_kv": ([1, 1], ARRAY, U32)}, ["llama.attention.head_count_kv has 2 entries; one number, or one for"]),
    ({"llama.attention.head_count": ([2, 4], ARRAY, U32)}, ["llama.attention.head_count is not one integer", "layers that differ"]),
    ({"llama.attention.head_count_kv": ([1, 2], ARRAY, U32)}, ["llama.attention.head_count_kv has 2 entries; one number, or one for"]),
    ({"llama.attention.head_count_kv": (["1"], ARRAY, STRING)}, ["llama.attention.head_count_kv is neither an integer from 0 nor an array"]),
    ({"llama.attention.shared_kv_layers": (1, U32)}, ["llama.attention.shared_kv_layers is 1; allowed: 0 to 0"]),
    ({"llama.nextn_predict_layers": (1, U32)}, ["llama.nextn_predict_layers is 1; allowed: 0 to 0"]),
]


@pytest.mark.parametrize("fields, parts", FIELDS, ids=[parts[0] for _, parts in FIELDS])
def test_fields(bin_dir, tmp_path, fields, parts):
    text = message(bin_dir, tmp_path, fields=fields)
    assert all(part in text for part in parts), text


def test_experts_of_two_types(bin_dir, tmp_path):
    path, ids = tmp_path / "model.gguf", tmp_path / "tokens.json"
    other = {"blk.0.ffn_up.1.weight": (np.ones((64, 160), np.float32), Type.F16)}
    write_gguf.random_model(path, **SHAPE, experts=dict(n=4, used=2, n_ff=64, form="single"), replace_tensors=other)
    ids.write_text("[1]")
    run = subprocess.run([bin_dir / "logits_dump", path, ids, tmp_path / "out.npy"], capture_output=True, text=True, timeout=LIMIT_S)
    assert run.returncode == 1
    assert "tensor blk.0.ffn_up.1.weight has type F16 and those of other experts F32; they must be equal" in run.stderr


# Four layers, of which every second has no window and the last two have the K and V of the first two.
UNLIKE = FAMILIES["gemma4"] | dict(arch="gemma4", types=[Type.F32], n_layers=4, shared_kv=2)
HEADS = "gemma4.attention.head_count_kv"
LENGTHS = {f"gemma4.attention.{name}_length_swa": None for name in ("key", "value")}
OF_LAYERS = [
    ({HEADS: ([2, 2, 0, 2], ARRAY, U32)}, {}, [f"{HEADS} is 0; allowed: 1 to 4"]),
    ({HEADS: ([2, 2, 3, 2], ARRAY, U32)}, {}, ["gemma4.attention.head_count is 4", "a multiple of the number of KV heads, 3"]),
    ({HEADS: ([2, 2, 2, 1], ARRAY, U32)}, {}, ["kv_source[3] is 1, which has 2 KV heads of 128", "layer 3 has 1 of 128"]),
    ({"gemma4.attention.shared_kv_layers": (4, U32)}, {}, ["gemma4.attention.shared_kv_layers is 4; allowed: 0 to 3"]),
    ({"gemma4.attention.shared_kv_layers": (3, U32)}, {},
     ["gemma4.attention.shared_kv_layers is 3, but no layer before these has K and V for layer 1, which has no window"]),
    ({"gemma4.attention.value_length_swa": None}, {}, ["gemma4.attention.value_length_swa is 128 and key_length 64; they must be equal"]),
    ({"gemma4.attention.shared_kv_layers": (0, U32)} | LENGTHS | {f"gemma4.attention.{name}_length": ([64, 128, 64, 64], ARRAY, U32) for name in ("key", "value")}, {},
     ["gemma4.attention.key_length is 128 and 64 in layers without a window, which must agree"]),
    ({"gemma4.rope.dimension_count_swa": (128, U32)}, {}, ["gemma4.rope.dimension_count_swa is 128; allowed: 2 to 64"]),
    ({"gemma4.embedding_length_per_layer_input": (16, U32)}, {}, ["per_layer_token_embd.weight has shape [128, 261", "[64, 261]"]),
    ({"gemma4.embedding_length_per_layer_input": (0, U32)}, {}, ["tensor per_layer_token_embd.weight is not part of the architecture gemma4"]),
    ({}, {"per_layer_proj_norm.weight": None}, ["tensor per_layer_proj_norm.weight is missing"]),
    ({}, {"blk.0.attn_v.weight": None}, ["tensor blk.0.attn_v.weight is missing"]),
    ({}, {"blk.3.proj.weight": None}, ["tensor blk.3.proj.weight is missing"]),
    ({}, {"blk.1.layer_output_scale.weight": (np.ones(2, np.float32), Type.F32)}, ["blk.1.layer_output_scale.weight", "[1, 1]"]),
    ({}, {"blk.0.pre_ffw_norm_2.weight": (np.ones(160, np.float32), Type.F32)}, ["tensor blk.0.pre_ffw_norm_2.weight is not part of"]),
]


STATES = FAMILIES["gemma3n"] | dict(arch="gemma3n", types=[Type.F32], n_layers=3, shared_kv=0)
CUTS = "gemma3n.activation_sparsity_scale"
OF_STATES = [
    ({"gemma3n.altup.num_inputs": (5, U32)}, {}, ["gemma3n.altup.num_inputs is 5; allowed: 2 to 4"]),
    ({"gemma3n.altup.num_inputs": (3, U32)}, {}, ["altup_proj.weight has shape [160, 160, 3, 1]; the parameters say [160, 160, 2]"]),
    ({"gemma3n.altup.active_idx": (1, U32)}, {}, ["gemma3n.altup.active_idx is 1; allowed: 0 to 0"]),
    ({CUTS: None}, {}, [f"{CUTS} must be an array of a float32 for each of the 3 layers"]),
    ({CUTS: ([0.5, 0.5], ARRAY, F32)}, {}, [f"{CUTS} must be an array of a float32 for each of the 3 layers"]),
    ({CUTS: ([1, 1, 1], ARRAY, U32)}, {}, [f"{CUTS} must be an array of a float32 for each of the 3 layers"]),
    ({CUTS: ([0.5, float("nan"), 0.5], ARRAY, F32)}, {}, [f"{CUTS} has nan for layer 1; numbers below 100 are allowed"]),
    ({}, {"blk.0.laurel_l.weight": None}, ["tensor blk.0.laurel_l.weight is missing or has not 1 to 65536 rows"]),
    ({}, {"blk.1.laurel_l.weight": (np.ones((16, 160), np.float32), Type.F32)}, ["blk.1.laurel_l.weight has shape [160, 16", "[160, 32]"]),
    ({}, {"blk.2.altup_router.weight": None}, ["tensor blk.2.altup_router.weight is missing"]),
    ({}, {"altup_unembd_proj.weight": None}, ["tensor altup_unembd_proj.weight is missing"]),
    ({}, {"per_layer_token_embd.weight": (np.ones((262, 96), np.float32), Type.F32)}, ["per_layer_token_embd.weight has shape [96, 262", "[96, 261]"]),
]


@pytest.mark.parametrize("fields, tensors, parts", OF_STATES, ids=[parts[0] for _, _, parts in OF_STATES])
def test_states(bin_dir, tmp_path, fields, tensors, parts):
    text = message(bin_dir, tmp_path, fields, tensors, **STATES)
    assert all(part in text for part in parts), text


@pytest.mark.parametrize("fields, tensors, parts", OF_LAYERS, ids=[parts[0] for _, _, parts in OF_LAYERS])
def test_layers_that_differ(bin_dir, tmp_path, fields, tensors, parts):
    text = message(bin_dir, tmp_path, fields, tensors, **UNLIKE)
    assert all(part in text for part in parts), text


def test_k_and_v_of_layers_that_have_those_of_others(bin_dir, chunkllama_bin, tmp_path):
    """Files may have matrices for them, which are not read; the memory for K and V is that of the others."""
    got = []
    for i, left_out in enumerate([[], ["attn_k", "attn_v", "attn_k_norm"]]):
        folder = tmp_path / str(i)
        folder.mkdir()
        tensors = {f"blk.{layer}.{part}.weight": None for layer in (2, 3) for part in left_out}
        assert message(bin_dir, folder, tensors=tensors, **UNLIKE) == ""
        got.append((folder / "out.npy").read_bytes())
    assert got[0] == got[1]

    def output(*command):  # doctor's status depends on the machine
        command = [chunkllama_bin, command[0], tmp_path / "1" / "model.gguf", *command[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False).stdout

    elements = 2 * (2 * 64 + 2 * 128)  # of a token, in layers 0 and 1
    assert f", {2 * elements / 1024:.1f} KiB of K/V for each token with --kv-type f16\n" in output("info")
    n_chunks = (64 << 20) // (4 * elements * 64)
    users = (n_chunks - 2048 // 64) // (512 // 64 + 1)
    assert f" {users} users" in output("doctor", "--kv-budget", "64M", "--kv-type", "f32")


ones = np.ones
TENSORS = [
    ({"output_norm.weight": None}, ["output_norm.weight is missing"]),
    ({"output_norm.weight": (ones((1, 160), np.float32), Type.Q8_0)}, ["output_norm.weight has type Q8_0", "F32, F16 or BF16"]),
    ({"blk.0.attn_q.weight": (ones((128, 128), np.float32), Type.F32)}, ["blk.0.attn_q.weight", "[160, 128]"]),
    ({"blk.0.attn_v.weight": (np.zeros((64, 200), np.uint8), Type.Q8_1)},
     ["blk.0.attn_v.weight has type Q8_1; supported: F32, F16, Q4_0, ", "Q6_K, IQ2_XXS, ", "MXFP4 (requantise"]),
    ({"blk.0.attn_norm.bias": (ones(160, np.float32), Type.F32)}, ["tensor blk.0.attn_norm.bias is not part of the architecture llama"]),
    ({"blk.0.attn_q.bias": (ones(127, np.float32), Type.F32)}, ["blk.0.attn_q.bias", "[128, 1]"]),
    ({"blk.0.attn_q_norm.weight": (ones(64, np.float32), Type.F32)}, ["tensor blk.0.attn_q_norm.weight is not part of"]),
    ({"blk.0.attn_sinks.weight": (ones(2, np.float32), Type.F32)}, ["tensor blk.0.attn_sinks.weight is not part of"]),
    ({"cls.output.weight": (ones((1, 160), np.float32), Type.F32)}, ["tensor cls.output.weight is not part of"]),
    ({"blk.1.attn_norm.weight": (ones(160, np.float32), Type.F32)}, ["tensor blk.1.attn_norm.weight is not part of"]),
    ({"blk.0.nextn.eh_proj.weight": (ones((1, 160), np.float32), Type.F32)}, ["tensor blk.0.nextn.eh_proj.weight is not part of"]),
    ({"vision.weight": (ones(1, np.float32), Type.F32)}, ["tensor vision.weight is not part of"]),
    ({"rope_freqs.weight": (ones(31, np.float32), Type.F32)}, ["rope_freqs.weight", "[32, 1]"]),
    ({"rope_freqs.weight": (np.zeros(32, np.float32), Type.F32)}, ["rope_freqs.weight has 0 at 0"]),
]


@pytest.mark.parametrize("tensors, parts", TENSORS, ids=[parts[0] for _, parts in TENSORS])
def test_tensors(bin_dir, tmp_path, tensors, parts):
    text = message(bin_dir, tmp_path, tensors=tensors)
    assert all(part in text for part in parts), text


ONE = (ones(1, np.float32), Type.F32)
WITHIN = {  # fields and tensors that change nothing
    "equal for each layer": (
        {f"llama.{name}": ([value], ARRAY, U32) for name, value in
         {"attention.head_count": 2, "attention.head_count_kv": 1, "feed_forward_length": 224, "rope.dimension_count": 64}.items()}
        | {"llama.rope.freq_base": ([10000.0], ARRAY, F32)}, {}),
    "causal": ({"llama.attention.causal": (True, BOOL), "llama.rope.scaling.attn_factor": (1.0, F32), "llama.pooling_type": (3, U32)}, {}),
    "left out": ({}, {"v.blk.0.attn_q.weight": ONE, "mm.0.weight": ONE, "mtp.fc.weight": ONE, "model.mtp_block.0.x": ONE, "blk.0.attn_rot_embd.weight": ONE}),
    "next layers": ({"llama.block_count": (2, U32), "llama.nextn_predict_layers": (1, U32)},
                    {"blk.1.nextn.eh_proj.weight": ONE, "blk.1.attn_norm.weight": ONE}),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHIN)
def test_same_logits(bin_dir, tmp_path, name):
    fields, tensors = WITHIN[name]
    got = []
    for i, (replace_fields, replace_tensors) in enumerate([({}, {}), (fields, tensors)]):
        folder = tmp_path / str(i)
        folder.mkdir()
        assert message(bin_dir, folder, replace_fields, replace_tensors) == ""
        got.append((folder / "out.npy").read_bytes())
    assert got[0] == got[1]


def test_pooling_changes_no_logits(bin_dir, tmp_path):
    """Qwen3-Embedding's files say how states are pooled, and their embedding is the output matrix."""
    got = []
    for pooling in (None, (3, U32)):
        folder = tmp_path / str(pooling)
        folder.mkdir()
        assert message(bin_dir, folder, {"ARCH.pooling_type": pooling}, arch="qwen3", tied=True) == ""
        got.append((folder / "out.npy").read_bytes())
    assert got[0] == got[1]


def test_info_names_what_is_left_out(chunkllama, tmp_path):
    path = tmp_path / "model.gguf"
    extra = {f"v.blk.{i}.attn_q.weight": ONE for i in range(3)} | {"mm.0.weight": ONE}
    write_gguf.random_model(path, **SHAPE, replace_fields={}, replace_tensors=extra)
    out = chunkllama("info", path).stdout
    assert "left out        vision tower: 3 tensors, 0.0 MB\nleft out        projector: 1 tensor, 0.0 MB\n" in out
    assert "next-token" not in out


def test_the_log_warns_of_a_missing_pre_tokenizer(chunkllama_bin, chunkllama, tmp_path):
    path = tmp_path / "model.gguf"
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{i:02X}>" for i in range(256)], "a", "aa"]
    fields = {"tokenizer.ggml.model": ("gpt2", STRING), "tokenizer.ggml.tokens": (tokens, ARRAY, STRING),
              "tokenizer.ggml.merges": (["a a"], ARRAY, STRING)}  # fmt: skip
    write_gguf.random_model(path, **SHAPE, replace_fields=fields)
    with subprocess.Popen([chunkllama_bin, "serve", path, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout.readline().startswith("chunkllama serves")
            server.terminate()
            log = server.communicate(timeout=LIMIT_S)[1]
        finally:
            server.kill()
    assert " warn  text may become wrong tokens " in log and "tokenizer.ggml.pre" in log
    doctor = chunkllama("doctor", path, status=1).stdout
    assert "warn  tokenizer  the file has no tokenizer.ggml.pre" in doctor and "; convert the model with a newer converter" in doctor


@pytest.mark.parametrize("name, needs", [("mamba", "recurrent layers (state spaces)"), ("deepseek2", "multi-head latent attention"),
                                         ("bert", "attention in both directions"), ("clip", "a vision tower, and has no model of text"),
                                         ("phimoe", "a mixture of experts of a form of its own"), ("qwen3vlmoe", "a vision tower"),
                                         ("dream", "diffusion"), ("apertus", "an activation of its own"),
                                         ("gemma4-assistant", "another model"), ("stablelm", "layers of a form of its own")])  # fmt: skip
def test_architectures_that_need_more(bin_dir, tmp_path, name, needs):
    path = tmp_path / "model.gguf"
    write_gguf.write(path, name, [], {"output_norm.weight": ONE})
    (tmp_path / "ids.json").write_text("[1]")
    command = [bin_dir / "logits_dump", path, tmp_path / "ids.json", tmp_path / "out.npy"]
    error = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False).stderr
    assert f'general.architecture is "{name}", which needs {needs}' in error and "not supported" in error
