"""forward_check on a small random model of each architecture that a device runs: everything but attention has the CPU's bits."""

import os
import subprocess

import pytest
import write_gguf
from test_exact_archs import MODELS
from waiting import LIMIT_S

pytestmark = pytest.mark.exact

NOT_ON_A_DEVICE = {
    "a mixture of experts": ["qwen2moe", "qwen3moe", "granitemoe", "gpt-oss", "olmoe", "glm4moe", "ernie4_5-moe", "gemma4_experts"],
    "rows of several states": ["gemma3n"],
    "embeddings of its layers' own": ["gemma4"],
    "values that are keys": ["gemma4_keys"],
    "attention and feed-forward blocks side by side": ["command-r", "cohere2"],
    "norms of Q and K over all heads": ["olmo2"],
}  # fmt: skip
REFUSED = {name: why for why, names in NOT_ON_A_DEVICE.items() for name in names}
IN_THE_GATE = ("llama", "qwen2", "starcoder2")


def check(bin_dir, path, name):
    if name not in IN_THE_GATE and name not in REFUSED and "CATTN_LEVEL" in os.environ:
        pytest.skip("the highest level has all architectures")
    program = bin_dir / "forward_check"
    if not program.exists():
        pytest.skip("there is no emulation on this machine")
    write_gguf.random_model(path, **{"arch": name} | MODELS[name])
    return subprocess.run([program, path], timeout=LIMIT_S, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", [n if n in IN_THE_GATE else pytest.param(n, marks=pytest.mark.long) for n in MODELS if n not in REFUSED])
def test_bits_of_the_cpu(bin_dir, tmp_path, name):
    done = check(bin_dir, tmp_path / "model.gguf", name)
    wanted = "close" if name == "qwen2" else "same bits"  # BF16 matrices have bits of their own
    assert done.returncode == 0 and done.stdout.startswith(wanted), done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_same_bits_in_any_batch(bin_dir, tmp_path, name):
    """tests/chunkattn/exact/test_models.c on the device: batches, cuts, sharing, order, warm caches, and each K/V type."""
    program, path = bin_dir / "exact_models_device_test", tmp_path / "model.gguf"
    if not program.exists() or "CATTN_LEVEL" in os.environ:
        pytest.skip("there is no emulation on this machine, or the device has been tested")
    write_gguf.random_model(path, **{"arch": name} | MODELS[name])
    done = subprocess.run([program], env={**os.environ, "CHUNKLLAMA_MODEL": str(path), "CHUNKLLAMA_DEVICE": "cuda"}, timeout=LIMIT_S,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0 and "15 runs compared, 0 failures" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(bin_dir, tmp_path, name):
    done = check(bin_dir, tmp_path / "model.gguf", name)
    assert done.returncode == 1 and f"the model has {REFUSED[name]}; that is not supported on a CUDA device" in done.stderr, done.stderr
