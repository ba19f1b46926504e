"""tests/chunkattn/exact/test_models.c on a small random model of each architecture: no bit depends on batch, threads, cuts or sharing."""

import os
import subprocess

import pytest
import write_gguf
from test_logits import FAMILIES, GEMMA3_CAPPED
from waiting import LIMIT_S
from write_gguf import Type

pytestmark = pytest.mark.exact

MODELS = {
    "llama": dict(types=[Type.Q4_1, Type.Q8_0], n_heads=4, n_kv_heads=2, head_dim=64),
    "qwen2": dict(types=[Type.Q8_0, Type.BF16], n_heads=6, n_kv_heads=2, head_dim=64, tied=True),
    "qwen3": dict(types=[Type.Q4_0, Type.F16], n_heads=2, n_kv_heads=1, head_dim=128),
    "gemma3": dict(types=[Type.Q8_0, Type.F32], n_heads=4, n_kv_heads=1, head_dim=64, n_layers=7, tied=True, rope_base=1e6,
                   rope_linear=8, replace_fields=GEMMA3_CAPPED),
    **{name: {"arch": name, "types": [Type.Q8_0, Type.F32]} | options for name, options in FAMILIES.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_same_bits(bin_dir, tmp_path, name):
    path = tmp_path / "model.gguf"
    write_gguf.random_model(path, **{"arch": name} | MODELS[name])
    done = subprocess.run([bin_dir / "exact_models_test"], env={**os.environ, "CHUNKLLAMA_MODEL": str(path)}, timeout=LIMIT_S,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0 and "18 runs compared, 0 failures" in done.stdout, done.stdout + done.stderr
