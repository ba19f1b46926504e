"""Weights of small models that follow from their names alone, so that files need only keep shapes and results."""

import zlib

import numpy as np

PROMPTS = [1, 63, 64, 65, 1000]  # lengths of prompts that begin alike
N_VOCAB = 261  # write_gguf.random_model's


def tokens():
    return np.random.default_rng(5).integers(0, N_VOCAB, max(PROMPTS)).tolist()


def weights(name, shape, around_zero=False):
    """float32. Norms are around 1, or around 0 where a model adds 1 to them."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith(".bias"):
        return rng.normal(0, 0.3, shape).astype(np.float32)
    if "norm" in name:
        return (rng.uniform(-0.4, 0.4, shape) + (0 if around_zero else 1)).astype(np.float32)
    return rng.normal(0, 1.3 / np.sqrt(shape[-1]), shape).astype(np.float32)
