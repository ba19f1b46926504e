"""What sharing costs where nothing is shared: the rows of `cattn-bench never_worse`, and those of two servers."""

import json
import math
import random
import statistics
import subprocess
import time

import load
import studies
from output import lines_of

PRECISION = 0.01  # of the interval's ends around the ratio
MIN_ROUNDS, MAX_SECONDS = 30, 90  # of a row

# What the client sends: a description, then its options.
LOADS = [
    ("16 requests at once, 128 tokens, 32 decoded", {"requests": 16, "prompt_tokens": 128, "completion_tokens": 32}),
    ("4 requests one by one, 128 tokens, 32 decoded",
     {"requests": 4, "prompt_tokens": 128, "completion_tokens": 32, "max_concurrency": 1}),
]  # fmt: skip


def interval(ratios):
    """The 95 % interval of the median by the sign test, as bench/shared/statistics.c computes it."""
    n, ordered = len(ratios), sorted(ratios)
    i = max(0, math.floor((n - 1.96 * math.sqrt(n)) / 2) - 1)
    return ordered[i], ordered[n - 1 - i]


def is_precise(ratios, precision=PRECISION):
    if len(ratios) < MIN_ROUNDS:
        return False
    low, high = interval(ratios)
    ratio = statistics.median(ratios)
    return high - ratio <= precision and ratio - low <= precision


def flag_of(n_rounds, ratio, low, high):
    """As cattn-bench never_worse flags its rows."""
    if n_rounds < 6:
        return "too few rounds"
    if low > 1 + PRECISION:
        return "worse"
    return "interval too wide" if max(high - ratio, ratio - low) > PRECISION else ""


def row_of(work, seconds, n_requests):
    """seconds: [(shared, private)] of the rounds, for n_requests requests."""
    ratios = [shared / private for shared, private in seconds]
    ratio, (low, high) = statistics.median(ratios), interval(ratios)
    shared_ms, private_ms = (statistics.median(times) * 1e3 / n_requests for times in zip(*seconds))
    return {"level": "served", "work": work, "label": f"served: {work}", "shared_ms": shared_ms, "private_ms": private_ms,
            "ratio": ratio, "low": low, "high": high, "rounds": len(ratios), "flag": flag_of(len(ratios), ratio, low, high)}  # fmt: skip


def fill_memory(args, pair):
    """Send loads until both servers have used their K/V budget once. Until then, each retained prefix takes new memory, which the
    system clears at the first write; a server without sharing retains nothing and takes less."""
    before = 0
    while (memory := sum(system.resident_bytes() for system in pair)) > 1.01 * before:
        before = memory
        for system in pair:
            with load.machine(args):
                load.run(args, system, seed=next(studies.SEEDS), requests=64, prompt_tokens=256, completion_tokens=8)


def serve_pairs(args, pair, work, options, precision=PRECISION):
    """The seconds of one load, sent to both servers of the pair in random order, round after round: [(first, second)]."""
    order = random.Random(work)
    seconds, start = [], time.monotonic()
    while not is_precise([a / b for a, b in seconds], precision):
        seed, times = next(studies.SEEDS), {}
        for system in order.sample(pair, 2):
            with load.machine(args):
                times[system.name] = load.run(args, system, seed=seed, **options)["seconds"]
        seconds.append(tuple(times[s.name] for s in pair))
        if args.quick or time.monotonic() - start > MAX_SECONDS:
            break
    return seconds


def serve_rounds(args, pair, work, options):
    """A row of one load."""
    return row_of(work, serve_pairs(args, pair, work, options), options["requests"])


def measure_kernels_and_model(args):
    """The head and the rows of `cattn-bench never_worse`."""
    args.output.mkdir(parents=True, exist_ok=True)
    command = [args.bin / "cattn-bench", "never_worse", "-o", args.output, "--model", args.model, "--threads", str(args.threads)]
    with load.machine(args):
        subprocess.run(command + (["--quick"] if args.quick else []), check=True)
    head, *rows = map(json.loads, (args.output / "never_worse.jsonl").read_text().splitlines())
    return head, rows


def never_worse(args, running):
    pair = [next(s for s in running if s.name == f"chunkllama {mode}") for mode in ("shared", "private")]
    head, rows = measure_kernels_and_model(args)
    if not args.quick:
        fill_memory(args, pair)
    for work, options in LOADS:
        rows.append(serve_rounds(args, pair, work, options))
        print("served", work, *(f"{key} {rows[-1][key]}" for key in ("ratio", "low", "high", "rounds", "flag")), flush=True)
    head["command"] = args.command("never_worse")
    head["note"] += "\nserved: milliseconds for each request of the load. " + "; ".join(studies.flags(pair)) + "\n"
    (args.output / "never_worse.jsonl").write_text(lines_of(head, rows))
