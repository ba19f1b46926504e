"""bench/tools/make_model: its files have the shapes that it lists, are reproducible, and their tokenizer works."""

import math
import pathlib
import subprocess
import sys

import gguf
import numpy as np
import pytest
from random_blocks import BLOCKS
from tokenizers_by_hand import byte_level, tokenize_dump
from waiting import LIMIT_S

TOOL = pathlib.Path(__file__).resolve().parents[3] / "bench/tools/make_model"


def make(*args, status=0):
    done = subprocess.run([sys.executable, TOOL, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stderr


def weights(path):
    """Every tensor, dequantised to float32."""
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", *BLOCKS])
def test_types(tmp_path, kind):
    path = tmp_path / "m.gguf"
    make("tiny", "--type", kind, "--seed", 3, "-o", path)
    reader = gguf.GGUFReader(path)
    matrices = [t for t in reader.tensors if len(t.shape) == 2]
    assert {t.tensor_type.name for t in matrices} == {kind} and len(matrices) == 1 + 2 * 7
    assert all(t.tensor_type.name == "F32" for t in reader.tensors if len(t.shape) == 1)
    for name, values in weights(path).items():
        if values.ndim == 2:
            # The deviation of 8192 weights or more, and their mean, as close as chance lets them be.
            assert abs(values.std() * math.sqrt(values.shape[1]) - 1) < 0.1, name
            assert abs(values.mean()) * math.sqrt(values.shape[1]) < 0.05, name
        else:
            assert np.all((values >= 0.8) & (values <= 1.2)), name


def test_same_bytes_again(tmp_path):
    a, b, c, d = (tmp_path / f"{name}.gguf" for name in "abcd")
    make("tiny", "-o", a)
    make("tiny", "-o", b)
    make("tiny", "--seed", 2, "-o", c)
    make("tiny", "--layers", 3, "--vocab", 300, "-o", d)
    assert a.read_bytes() == b.read_bytes() != c.read_bytes()
    two, three = weights(a), weights(d)
    assert three["token_embd.weight"].shape == (300, 256)
    for name, values in two.items():
        if name.startswith("blk."):
            assert np.array_equal(values, three[name])
    assert len(three) == len(two) + 9
    assert list(tmp_path.glob("*.partial")) == []


@pytest.mark.long
def test_shapes(tmp_path):
    """One layer and a small vocabulary of real shapes: sizes, parameters, the tied and the separate output, rope factors."""
    for name, sizes in {
        "smollm2-135m": (576, 1536, 9, 3, 64, True, 0),
        "llama3.2-1b": (2048, 8192, 32, 8, 64, True, 32),
        "mistral-7b": (4096, 14336, 32, 8, 128, False, 0),
        "llama3-8b": (4096, 14336, 32, 8, 128, False, 8),
    }.items():
        n_embd, n_ff, heads, kv_heads, head_dim, tied, factor = sizes
        path = tmp_path / "m.gguf"
        make(name, "--layers", 1, "--vocab", 320, "-o", path)
        reader = gguf.GGUFReader(path)
        fields = {k.removeprefix("llama."): f.contents() for k, f in reader.fields.items() if k.startswith("llama.")}
        assert fields["attention.head_count"] == heads and fields["attention.head_count_kv"] == kv_heads
        assert fields["block_count"] == 1 and fields["vocab_size"] == 320
        shapes = {t.name: tuple(map(int, t.shape)) for t in reader.tensors}
        assert shapes["blk.0.ffn_down.weight"] == (n_ff, n_embd)
        assert shapes["blk.0.attn_k.weight"] == (n_embd, kv_heads * head_dim)
        assert shapes["blk.0.attn_output.weight"] == (heads * head_dim, n_embd)
        assert ("output.weight" in shapes) == (not tied)
        assert ("rope_freqs.weight" in shapes) == (factor > 0)
        if factor:
            assert np.allclose(weights(path)["rope_freqs.weight"], llama3_factors(head_dim, 5e5, factor), rtol=1e-6)


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "gemma3"])
def test_architectures(bin_dir, tmp_path, arch):
    """A file of each architecture runs; a Llama file is the same with and without --arch llama."""
    path, ids = tmp_path / "m.gguf", tmp_path / "ids.json"
    make("tiny", "--arch", arch, "-o", path)
    ids.write_text("[5, 6, 7]")
    subprocess.run([bin_dir / "logits_dump", path, ids, tmp_path / "out.npy"], check=True, timeout=LIMIT_S)
    logits = np.load(tmp_path / "out.npy")
    assert logits.shape == (3, 512) and 0.1 < logits.std() < 100
    if arch == "llama":
        make("tiny", "-o", tmp_path / "again.gguf")
        assert path.read_bytes() == (tmp_path / "again.gguf").read_bytes()


def test_experts(bin_dir, tmp_path):
    path, ids = tmp_path / "m.gguf", tmp_path / "ids.json"
    make("tiny-experts", "--type", "Q4_K", "-o", path)
    reader = gguf.GGUFReader(path)
    assert reader.get_field("qwen3moe.expert_count").contents() == 8 and reader.get_field("qwen3moe.expert_used_count").contents() == 2
    tensors = {t.name: (t.tensor_type.name, tuple(map(int, t.shape))) for t in reader.tensors}
    assert tensors["blk.0.ffn_up_exps.weight"] == ("Q4_K", (256, 256, 8)) and tensors["blk.0.ffn_gate_inp.weight"] == ("F32", (256, 8))
    ids.write_text("[5, 6, 7]")
    subprocess.run([bin_dir / "logits_dump", path, ids, tmp_path / "out.npy"], check=True, timeout=LIMIT_S)
    assert 0.1 < np.load(tmp_path / "out.npy").std() < 100


def test_architecture_of_a_shape(tmp_path):
    path = tmp_path / "m.gguf"
    make("gemma3-270m", "--layers", 1, "--vocab", 320, "-o", path)
    reader = gguf.GGUFReader(path)
    assert reader.get_field("general.architecture").contents() == "gemma3"
    assert reader.get_field("gemma3.attention.sliding_window").contents() == 512
    shapes = {t.name: tuple(map(int, t.shape)) for t in reader.tensors}
    assert shapes["blk.0.attn_q.weight"] == (640, 1024) and shapes["blk.0.attn_k_norm.weight"] == (256,)


def llama3_factors(head_dim, base, factor):
    """The factors by the published rule, branch by branch."""
    out = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * base ** (i / head_dim)
        if wavelength < 8192 / 4:
            out.append(1.0)
        elif wavelength > 8192 / 1:
            out.append(factor)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return out


def test_tokenizer_inside(bin_dir, tmp_path):
    path = tmp_path / "m.gguf"
    make("tiny", "-o", path)
    fields = gguf.GGUFReader(path).fields
    tokens, merges, types = (fields[f"tokenizer.ggml.{k}"].contents() for k in ("tokens", "merges", "token_type"))
    assert len(tokens) == len(set(tokens)) == 512 and len(merges) > 150
    lines = ["The people would write about the day; their words are many.", "naïve 日本 \n\t", ""]
    ours = tokenize_dump(bin_dir, path, lines)
    assert ours == [e.ids for e in byte_level(tokens, merges, types, "gpt-2").encode_batch(lines)]
    assert len(ours[0]) < 2 / 3 * len(lines[0])
    assert tokenize_dump(bin_dir, path, ours, "--decode") == lines
    chat = tokenize_dump(bin_dir, path, [[{"role": "user", "content": "<|im_end|>"}]], "--chat")[0]
    assert chat.count(1) == 2 and chat.count(2) == 1


def test_errors(tmp_path):
    path = tmp_path / "m.gguf"
    assert "--layers is 0; it must be at least 1" in make("tiny", "--layers", 0, "-o", path, status=2)
    assert "--vocab is 258; it must be at least 259" in make("tiny", "--vocab", 258, "-o", path, status=2)
    assert "invalid choice: 'llama9'" in make("llama9", "-o", path, status=2)
    message = make("smollm2-135m", "--type", "Q4_K", "-o", path, status=2)
    assert "--type Q4_K needs rows of a multiple of 256; smollm2-135m has rows of 576, 1536" in message
    assert "No such file" in make("tiny", "-o", tmp_path / "none" / "m.gguf", status=1)
    assert list(tmp_path.iterdir()) == []
