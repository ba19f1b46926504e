"""Random blocks of GGUF's quantised types: all patterns of codes and factors, with scales that give weights of a given size."""

from typing import NamedTuple

import gguf
import numpy as np
from gguf import quants


class Block(NamedTuple):
    d_at: int  # byte offset of the f16 scale; of the power of two in MXFP4; unused in IQ1_M, which has the scale in four pieces
    deviation: float  # of the weights with random codes and factors, in units of the scale
    m_at: int = -1  # byte offset of the f16 minimum; -1: the type has none
    minimum: float = 0  # in units of the scale, so that the mean of the weights is zero


def deviation(n):
    """Standard deviation of the uniform distribution on n consecutive integers."""
    return ((n * n - 1) / 12) ** 0.5


def rms(values):
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def book(kind):
    """Root mean square of a codebook's numbers."""
    kind.init_grid()
    return rms(kind.grid)


def odd(n):
    """Root mean square of the first n odd numbers."""
    return rms(range(1, 2 * n, 2))


# The mean square of a factor is 63 * 127 / 6 with 6 bits and 15 * 31 / 6 with 4 bits; that of a signed one is about its variance.
BLOCKS = {
    "Q4_0": Block(0, deviation(16)),
    "Q4_1": Block(0, deviation(16), 2, -7.5),
    "Q5_0": Block(0, deviation(32)),
    "Q5_1": Block(0, deviation(32), 2, -15.5),
    "Q8_0": Block(0, deviation(256)),
    "IQ4_NL": Block(0, rms(quants.IQ4_NL.kvalues)),
    "Q2_K": Block(80, (15 * 31 / 6) ** 0.5 * deviation(4), 82, 1.5),
    "Q3_K": Block(108, deviation(64) * deviation(8)),
    "Q4_K": Block(0, (63 * 127 / 6) ** 0.5 * deviation(16), 2, 7.5),
    "Q5_K": Block(0, (63 * 127 / 6) ** 0.5 * deviation(32), 2, 15.5),
    "Q6_K": Block(208, deviation(256) * deviation(64)),
    "IQ4_XS": Block(0, deviation(64) * rms(quants.IQ4_NL.kvalues)),
    "IQ3_S": Block(0, odd(16) * book(quants.IQ3_S)),
    "IQ3_XXS": Block(0, odd(16) * book(quants.IQ3_XXS) / 4),
    "IQ2_S": Block(0, odd(16) * book(quants.IQ2_S) / 8),
    "IQ2_XS": Block(0, odd(16) * book(quants.IQ2_XS) / 8),
    "IQ2_XXS": Block(0, odd(16) * book(quants.IQ2_XXS) / 8),
    "IQ1_S": Block(0, odd(8) * book(quants.IQ1_S)),
    "IQ1_M": Block(0, odd(8) * book(quants.IQ1_S)),
    "TQ1_0": Block(52, deviation(3)),
    "TQ2_0": Block(64, deviation(3)),
    "MXFP4": Block(0, rms(quants.MXFP4.kvalues)),
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
    if kind == "MXFP4":
        below = np.floor(np.log2(np.abs(scales)))
        doubles = rng.random(n) < ((scales / 2**below) ** 2 - 1) / 3  # so that the mean square is that of the scales
        raw[:, block.d_at] = (below + doubles).astype(np.int32) + 128
        return raw.reshape(n_out, -1)
    if kind == "IQ1_M":
        quarters = column(scales)[:, [0, 0, 1, 1]] >> np.array([0, 4, 0, 4], np.uint8)
        raw[:, 49:56:2] = (raw[:, 49:56:2] & 15) | quarters << 4
        return raw.reshape(n_out, -1)
    raw[:, block.d_at : block.d_at + 2] = column(scales)
    if kind == "TQ2_0":  # files have no code 3
        raw[:, :64] = sum(rng.integers(0, 3, (n, 64), np.uint8) << 2 * i for i in range(4))
    # Minimum and scale get the same factor, as is nearly so in real files: then the mean of each scale group is zero.
    if kind == "Q2_K":
        raw[:, :16] = (raw[:, :16] & 15) * 17
    if kind in ("Q4_K", "Q5_K"):
        raw[:, 8:12] = raw[:, 4:8]
        raw[:, 12:16] = (raw[:, 12:16] & 15) * 17
    return raw.reshape(n_out, -1)
