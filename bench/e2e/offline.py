"""`chunkllama batch`: the order of the input does not matter, and it is as fast as the server with as many clients as it has work for."""

import json
import random
import statistics
import subprocess
import time

import load
import systems
from output import Output


def requests(groups, n, shared, own, completion):
    """n requests in groups with a common prefix each, one group after the other."""
    draw = random.Random(groups * n)
    prefixes = [[draw.randrange(256, 16384) for _ in range(shared)] for _ in range(groups)]
    lines = []
    for i in range(n):
        prompt = prefixes[i * groups // n] + [draw.randrange(256, 16384) for _ in range(own)]
        body = {"prompt": prompt, "max_tokens": completion, "ignore_eos": True, "temperature": 0}
        lines.append({"custom_id": str(i), "url": "/v1/completions", "body": body})
    return lines


def write(args, name, lines):
    args.output.mkdir(parents=True, exist_ok=True)
    path = args.output / f"offline-{name}.jsonl.in"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run_batch(args, path):
    """The seconds of the whole program without its start, and the peak of K/V in MB."""
    summary = args.output / "offline-summary.json"
    command = [args.bin / "chunkllama", "batch", "-m", args.model, "-i", path, "-o", path.with_suffix(".out"), "--summary", summary]
    begun = time.monotonic()
    subprocess.run([*map(str, command), "--threads", str(args.threads), "--kv-budget", args.kv_budget], check=True, capture_output=True)
    whole = time.monotonic() - begun
    return whole, json.loads(summary.read_text())["kv_bytes_peak"] / 1e6


def start_s(args):
    """The seconds of a job of one short request: nearly all of it is the program's start."""
    path = write(args, "start", requests(1, 1, 2, 2, 1))
    return statistics.median(run_batch(args, path)[0] for _ in range(3))


def run_server(args, system, path, n, clients):
    begun = time.monotonic()
    result = load.run(args, system, input=path, completion_tokens=0, requests=n, warm_up=0, max_concurrency=clients)
    if result["requests"]["ok"] != n:
        raise RuntimeError(f"{system.name}: {result['errors']}")
    return time.monotonic() - begun, load.kv_megabytes(system, result)


def in_turn(i, measured, reference):
    """What both calls return; which is first changes from round to round."""
    if i % 2:
        first = measured()
        return first, reference()
    first = reference()
    return measured(), first


def add(out, figure, pairs, bar):
    """pairs: ((seconds, MB), (seconds, MB)) of the measured run and its reference."""
    rows = (("seconds", 0, bar), ("K/V MB", 1, 1.1)) if figure.startswith("random") else (("seconds", 0, bar),)
    for unit, k, limit in rows:
        measured, reference = ([pair[side][k] for pair in pairs] for side in (0, 1))
        ratio = statistics.median(a / b for a, b in zip(measured, reference))
        out.add(
            {
                "figure": f"{figure}: {unit}",
                "measured": statistics.median(measured),
                "reference": statistics.median(reference),
                "ratio": ratio,
                "bar": limit,
            }
        )


def offline(args, _):
    n, shared, own, completion = (40, 64, 8, 4) if args.quick else (10000, 512, 32, 16)
    n_served, clients = (16, 8) if args.quick else (1000, 64)
    ordered = requests(4 if args.quick else 20, n, shared, own, completion)
    shuffled = random.Random(1).sample(ordered, len(ordered))
    served = random.Random(2).sample(requests(1, n_served, 200, 62, 16), n_served)
    files = {name: write(args, name, lines) for name, lines in (("hand", ordered), ("random", shuffled), ("served", served))}
    out = Output(
        args,
        "offline",
        f"{n} requests in prefix groups, {shared} of {shared + own} tokens shared, {completion} completion tokens, in random order and "
        f"in the best order by hand; {n_served} requests of 262 tokens in `batch` and through `serve` with {clients} clients",
        [
            ("figure", "figure", None),
            ("measured", "measured", 2),
            ("reference", "reference", 2),
            ("ratio", "ratio", 3),
            ("bar", "at most", 2),
        ],
        [
            "A ratio is the median of the rounds' ratios; the runs of a pair follow each other, and which is first changes from round "
            "to round. Times of `batch` are of the whole program, without the time of a job of one short request."
        ],
    )
    with load.machine(args):
        start = start_s(args)
        order, server = [], []
        for i in range(args.rounds):
            pair = in_turn(i, lambda: run_batch(args, files["random"]), lambda: run_batch(args, files["hand"]))
            order.append([(seconds - start, megabytes) for seconds, megabytes in pair])
        add(out, "random order / by hand", order, 1.0)
        for i in range(args.rounds):
            with systems.chunkllama(args, "shared") as system:  # a new one, whose cache is empty
                batch, serve = in_turn(
                    i, lambda: run_batch(args, files["served"]), lambda: run_server(args, system, files["served"], n_served, clients)
                )
            server.append(((batch[0] - start, 0), (serve[0], 0)))
        add(out, "batch / serve", server, 1.0)
    out.close()
