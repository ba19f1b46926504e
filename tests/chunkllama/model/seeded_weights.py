"""Weights of small models that follow from their names alone, so that files need only keep shapes and results."""

import zlib

import numpy as np

PROMPTS = [1, 63, 64, 65, 1000]  # lengths of prompts that begin alike
N_VOCAB = 261  # write_gguf.random_model's
AROUND_ZERO = {"gemma", "gemma2", "gemma3"}  # models whose norms multiply by 1 + w
UNSCALED = ("gemma3n", "gemma4")  # begin the names of models whose scores are q.k as it is, so that norms make K small


def tokens():
    return np.random.default_rng(5).integers(0, N_VOCAB, max(PROMPTS)).tolist()


def weights(model, name, shape):
    """float32. Norms are around 1, or around 0 where a model adds 1 to them."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith(".bias"):
        return rng.normal(0, 0.3, shape).astype(np.float32)
    if name.endswith("layer_scalar"):
        return rng.uniform(0.7, 1.1, shape).astype(np.float32)
    if "altup.router_norm" in name:  # behind it, states are divided by their number of values
        return rng.uniform(0.6, 1.4, shape).astype(np.float32) * shape[-1]
    if name.endswith("correct_output_scale"):
        return rng.uniform(0.6, 1.4, shape).astype(np.float32)
    if name.endswith("scale"):  # of a router, whose input is divided by its root, and of its experts
        return (rng.uniform(0.6, 1.4, shape) * (1 if "expert" in name else np.sqrt(shape[-1]))).astype(np.float32)
    if "norm" in name:
        values = rng.uniform(-0.4, 0.4, shape) + (0 if model in AROUND_ZERO else 1)
        return (values / 8 if "k_norm" in name and model.startswith(UNSCALED) else values).astype(np.float32)
    return rng.normal(0, 1.3 / np.sqrt(shape[-1]), shape).astype(np.float32)
