"""Models in several GGUF files, as PyPI's gguf splits them: whichever part is named, the logits are those of the whole file."""

from functools import partial

import gguf
import write_gguf
from test_logits import dump
from test_safetensors import TOKENS
from write_gguf import Type

MODEL = dict(arch="qwen3", types=[Type.BF16, Type.Q8_0], n_heads=4, n_kv_heads=2, head_dim=64, n_layers=2)


def test_any_part(bin_dir, tmp_path, monkeypatch):
    whole = tmp_path / "whole.gguf"
    write_gguf.random_model(whole, **MODEL)
    monkeypatch.setattr(gguf, "GGUFWriter", partial(gguf.GGUFWriter, split_max_tensors=10))
    write_gguf.random_model(tmp_path / "m.gguf", **MODEL)
    parts = sorted(tmp_path.glob("m-*.gguf"))
    assert [p.name for p in parts] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    expected = dump(bin_dir, tmp_path, whole, TOKENS, kv="f32")[1].tobytes()
    for part in parts:
        assert dump(bin_dir, tmp_path, part, TOKENS, kv="f32")[1].tobytes() == expected
