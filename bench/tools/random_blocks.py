"""Random blocks of GGUF's quantised types: all patterns of codes and factors, with scales that give weights of a given size."""

from typing import NamedTuple

import gguf
import numpy as np


class Block(NamedTuple):
    d_at: int  # byte offset of the f16 scale
    deviation: float  # of the weights with random codes and factors, in units of the scale
    m_at: int = -1  # byte offset of the f16 minimum; -1: the type has none
    minimum: float = 0  # in units of the scale, so that the mean of the weights is zero


def deviation(n):
    """Standard deviation of the uniform distribution on n consecutive integers."""
    return ((n * n - 1) / 12) ** 0.5


# The mean square of a factor is 63 * 127 / 6 with 6 bits and 15 * 31 / 6 with 4 bits; that of a signed one is about its variance.
BLOCKS = {
    "Q4_0": Block(0, deviation(16)),
    "Q4_1": Block(0, deviation(16), 2, -7.5),
    "Q5_0": Block(0, deviation(32)),
    "Q5_1": Block(0, deviation(32), 2, -15.5),
    "Q8_0": Block(0, deviation(256)),
    "IQ4_NL": Block(0, float(np.sqrt(np.mean(np.square(gguf.quants.IQ4_NL.kvalues, dtype=np.float64))))),
    "Q2_K": Block(80, (15 * 31 / 6) ** 0.5 * deviation(4), 82, 1.5),
    "Q3_K": Block(108, deviation(64) * deviation(8)),
    "Q4_K": Block(0, (63 * 127 / 6) ** 0.5 * deviation(16), 2, 7.5),
    "Q5_K": Block(0, (63 * 127 / 6) ** 0.5 * deviation(32), 2, 15.5),
    "Q6_K": Block(208, deviation(256) * deviation(64)),
}


def column(values):
    """The f16 bytes of one value for each block: [n][2]."""
    return values.astype(np.float16).view(np.uint8).reshape(-1, 2)


def random_blocks(rng, kind, n_out, n_in, size):
    """The bytes of random weights [n_out][n_in] with standard deviation `size`."""
    block = BLOCKS[kind]
    elements, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    n = n_out * n_in // elements
    raw = np.frombuffer(rng.bytes(n * block_bytes), dtype=np.uint8).reshape(n, block_bytes).copy()
    scales = rng.uniform(0.7, 1.3, n).astype(np.float32) * (size / block.deviation)
    if block.m_at < 0:
        scales *= rng.choice(np.array([-1, 1], dtype=np.float32), n)  # codes such as -8 to 7 are not symmetric
    else:
        raw[:, block.m_at : block.m_at + 2] = column(block.minimum * scales)
    raw[:, block.d_at : block.d_at + 2] = column(scales)
    # Minimum and scale get the same factor, as is nearly so in real files: then the mean of each scale group is zero.
    if kind == "Q2_K":
        raw[:, :16] = (raw[:, :16] & 15) * 17
    if kind in ("Q4_K", "Q5_K"):
        raw[:, 8:12] = raw[:, 4:8]
        raw[:, 12:16] = (raw[:, 12:16] & 15) * 17
    return raw.reshape(n_out, -1)
