"""Decoding in a layer shape whose K/V are larger than its weights: Llama-2-7B's, with random weights and as many layers as fit."""

import subprocess
import sys

import load
import systems
from bars import json_lines
from output import Output

LAYER_BYTES = 250 << 20  # of 4-bit weights: in the file, and in the layout of the kernels
KV_BYTES_A_TOKEN = 2 * 4096 * 2  # of one layer, 16-bit


def layers_that_fit(n_tokens):
    return max(1, min(32, int(0.6 * systems.memory_available() / (LAYER_BYTES + KV_BYTES_A_TOKEN * n_tokens))))


def make_model(args, name, shape):
    """A model with random weights, where the output is, unless it is there; shape: arguments of bench/tools/make_model."""
    path = args.output / f"{name}.gguf"
    if not path.exists():
        python = systems.ROOT / ".venv/bin/python"
        args.output.mkdir(parents=True, exist_ok=True)
        command = [python if python.exists() else sys.executable, systems.ROOT / "bench/tools/make_model", *shape, "-o", path]
        subprocess.run(command, check=True)
    return path


def big(args, _):
    prompt, decoded, batch = (64, 4, 4) if args.quick else (2048, 64, 32)
    n_tokens = batch * (prompt + decoded)
    n_layers = args.big_layers or layers_that_fit(n_tokens)
    shape = ["tiny"] if args.quick else ["llama2-7b", "--layers", str(n_layers)]
    model = make_model(args, f"llama2-7b-{n_layers}l", [*shape, "--type", "Q4_0"])
    kv_budget = f"{(KV_BYTES_A_TOKEN * n_layers * n_tokens * 5 // 4 >> 20) + 64}M"
    command = [
        args.bin / "chunkllama",
        "bench",
        "--model",
        model,
        "--threads",
        args.threads,
        "--kv-budget",
        kv_budget,
        "--json",
        "--shared",
        "--pp",
        prompt,
        "--tg",
        decoded,
        "--batch",
        batch,
    ]
    out = Output(
        args,
        "big",
        f"llama2-7b shape, {n_layers} layers, Q4_0: {batch} sequences, {prompt} shared tokens, {decoded} decoded",
        [
            ("figure", "figure", None),
            ("shared", "shared", 2),
            ("private", "private", 2),
            ("ratio", "shared / private", 3),
            ("bar", "bar", 2),
        ],
        [f"`chunkllama {' '.join(str(c) for c in command[1:] if c != model)} --sharing MODE`"],
    )
    with load.machine(args):
        speed = {mode: json_lines([*command, "--sharing", mode])[-1]["S_TG"] for mode in ("shared", "private")}
    out.add({"figure": "decode, tokens/s", **speed, "ratio": speed["shared"] / speed["private"], "bar": 1.6})
    with systems.chunkllama(args, "shared", model=model, kv_budget=kv_budget) as system, load.machine(args):
        peak = load.run(
            args,
            system,
            requests=batch,
            prompt_tokens=prompt,
            shared_tokens=prompt,
            completion_tokens=decoded,
            vocab=512,
            warm_prefixes=True,
        )["peak"]
    shared, private = peak["kv_bytes"] / 1e6, peak["kv_bytes_unshared"] / 1e6
    ratio = shared / private if private else None
    out.add({"figure": "K/V at most, MB", "shared": shared, "private": private, "ratio": ratio, "bar": 0.2})
    out.close()
