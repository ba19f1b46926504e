"""The logits of small models of each class of Hugging Face Transformers, which bench/peers/transformers_logits.py computed in float64."""

import json
import pathlib

import numpy as np
import pytest
import seeded_weights
import write_gguf
import write_hf
from test_logits import dump
from write_gguf import Type

CASES = {path.stem: path for path in sorted((pathlib.Path(__file__).parent / "references").glob("*.json"))}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "model.gguf"
    write_gguf.random_model(path, types=[Type.F32], n_heads=1, n_kv_heads=1, head_dim=64, n_layers=1)
    return write_hf.byte_tokenizer(path)


@pytest.mark.parametrize("name", CASES)
def test_logits(bin_dir, tmp_path, tokenizer, f32_activations, name):
    """Prompts of 1 to 1000 tokens in one step, in steps of 63, and decoded one by one from the 60th on: to within 1e-4 of logits up to
    about 5, for each four layers, and the likeliest token unless another is as likely to within that."""
    case = json.loads(CASES[name].read_text())
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(case["config"]))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    tensors = {key: ("F32", shape, seeded_weights.weights(name, key, shape).tobytes()) for key, shape in case["tensors"].items()}
    write_hf.write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    tokens = seeded_weights.tokens()
    _, got = dump(bin_dir, tmp_path, folder, tokens, kv="f32")
    for n, expected in case["logits"].items():
        row = got[int(n) - 1]
        assert np.abs(row[:: case["every"]] - expected).max() <= 1e-4
        assert row.max() - row[case["likeliest"][n]] <= 1e-4
    assert dump(bin_dir, tmp_path, folder, tokens, kv="f32", piece=63)[1].tobytes() == got.tobytes()
    assert dump(bin_dir, tmp_path, folder, tokens[:70], kv="f32", piece=1)[1].tobytes() == got[:70].tobytes()
