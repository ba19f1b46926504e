"""Perplexity of a text by `chunkllama perplexity`, beside the float64 oracle's on the same weights, tokens and passages.

    PYTHONPATH=bench/tools:tests python3 tests/chunkllama/model/perplexity.py [--text FILE] [--passages 4] MODEL.gguf...

A table row for each model. Exact: weights as PyPI's gguf dequantises them, everything else in float64. Rounded activations: the
same, but what a quantised matrix multiplies is rounded to int8, and what a BF16 matrix multiplies to bf16, as the kernels do it
(bf16: those from the level avx512_bf16 on). ChunkLlama's K/V are f32. Without --text: the messages of the bundled workloads. A passage
of 512 tokens takes the oracle about 3 s on one core, twice.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import tempfile

import numpy as np
import oracle
from waiting import LIMIT_S

ROOT = pathlib.Path(__file__).resolve().parents[3]


def bundled_text():
    """The messages of the bundled workloads, each once per file."""
    texts = []
    for path in sorted((ROOT / "bench/workloads").glob("*.jsonl")):
        with open(path) as lines:
            texts += dict.fromkeys(m["content"] for line in lines for m in json.loads(line).get("messages", []))
    return "\n\n".join(texts) + "\n"


def ask(chunkllama, command, model, *options):
    """The JSON that a command prints."""
    done = subprocess.run([chunkllama, command, "-m", model, *options], capture_output=True, text=True, check=True, timeout=4 * LIMIT_S)
    return json.loads(done.stdout)


def of_program(chunkllama, model, text, n_ctx, n_passages):
    sizes = ["--ctx", str(n_ctx), "--passages", str(n_passages)]
    return ask(chunkllama, "perplexity", model, "-f", text, *sizes, "--kv-type", "f32", "--json")


def cut(chunkllama, model, text, n_ctx, n_passages):
    """The text's first passages of n_ctx tokens, cut as llama.cpp does: each begins with BOS if the model has one."""
    bos, tokens = ask(chunkllama, "tokenize", model, "--bos", ""), ask(chunkllama, "tokenize", model, "--bos", "-f", text)
    passages = [tokens[at : at + n_ctx] for at in range(0, min(len(tokens) - n_ctx + 1, n_passages * n_ctx), n_ctx)]
    return [bos + passage[len(bos) :] for passage in passages]


def losses(model, passages, rounds=False):
    """Negative logarithms of the oracle's probabilities, of each passage's second half."""
    out = []
    for passage, logits in zip(passages, oracle.logits(model, passages, quantise=rounds, bf16=rounds)):
        at = np.arange(len(passage) // 2, len(passage) - 1)
        most = logits[at].max(-1)
        total = np.exp(logits[at] - most[:, None]).sum(-1)
        out.append(most + np.log(total) - logits[at, np.asarray(passage)[at + 1]])
    return np.concatenate(out)


def row(chunkllama, path, text, n_ctx, n_passages):
    got = of_program(chunkllama, path, text, n_ctx, n_passages)
    model, passages = oracle.load(path), cut(chunkllama, path, text, n_ctx, n_passages)
    cells = [path.stem, f"{got['perplexity']:.3f} +/- {got['uncertainty']:.3f}"]
    for rounds in (False, True):
        expected = math.exp(losses(model, passages, rounds).mean())
        cells += [f"{expected:.3f}", f"{100 * (got['perplexity'] / expected - 1):+.2g} %"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    bin_dir = pathlib.Path(os.environ.get("CHUNKLLAMA_BIN_DIR", ROOT / "build/release/bin"))
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--passages", type=int, default=4)
    parser.add_argument("--ctx", type=int, default=512, help="tokens of a passage (default %(default)s)")
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    print("| weights | ChunkLlama | exact | off by | rounded activations | off by |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        text = args.text or pathlib.Path(folder, "text")
        if not args.text:
            text.write_text(bundled_text())
        for path in args.models:
            print(row(bin_dir / "chunkllama", path, text, args.ctx, args.passages), flush=True)


if __name__ == "__main__":
    main()
