"""The values of each tensor type equal those of PyPI's gguf bit for bit: both round a weight once, when a minimum is added."""

import subprocess

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from random_blocks import BLOCKS, random_blocks
from waiting import LIMIT_S

N_ROWS, N_COLUMNS = 37, 512


def dump(bin_dir, path, out):
    subprocess.run([bin_dir / "rows_dump", path, out], check=True, timeout=LIMIT_S)
    return np.fromfile(out, np.float32)


def random_tensor(rng, kind):
    if kind in BLOCKS:
        return random_blocks(rng, kind, N_ROWS, N_COLUMNS, 0.05)
    bits = rng.integers(0, 0x7C00, (N_ROWS, N_COLUMNS)).astype(np.uint16)  # f16: all finite ones, subnormal ones too
    bits |= rng.integers(0, 2, bits.shape).astype(np.uint16) << 15
    if kind == "F32":
        return bits.view(np.float16).astype(np.float32) * np.float32(1.000001)
    return bits.view(np.float16) if kind == "F16" else bits.view(np.uint8)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", *BLOCKS])
def test_same_bits(bin_dir, tmp_path, kind):
    path = tmp_path / "t.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    rng = np.random.default_rng(5)
    tensor_type = gguf.GGMLQuantizationType[kind]
    for name in ("a", "b"):
        writer.add_tensor(name, random_tensor(rng, kind), raw_dtype=tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors = gguf.GGUFReader(path).tensors
    assert [tuple(map(int, t.shape)) for t in tensors] == [(N_COLUMNS, N_ROWS)] * 2
    expected = np.concatenate([dequantize(t.data, tensor_type).reshape(-1).astype(np.float32) for t in tensors])
    got = dump(bin_dir, path, tmp_path / "rows")
    assert np.count_nonzero(expected) > 0.5 * len(expected)
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16"])
def test_quantised(bin_dir, tmp_path, kind):
    """Weights that gguf has quantised are within one step of the original values."""
    values = np.random.default_rng(6).normal(0, 1, (8, 256)).astype(np.float32)
    tensor_type = gguf.GGMLQuantizationType[kind]
    path = tmp_path / "t.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("a", gguf.quants.quantize(values, tensor_type), raw_dtype=tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    # Blocks reach to about 3; of the 16 or 32 steps over twice that, half a one or, at the asymmetric end, a whole one.
    bits = {"Q4": 4, "Q5": 5, "Q8": 8, "BF": 8, "F1": 11}[kind[:2]]
    assert np.abs(dump(bin_dir, path, tmp_path / "rows").reshape(values.shape) - values).max() <= 8 / 2**bits
