"""The paper's Table 4 and Figure 5, real prompts, and the batch that a K/V budget holds."""

import itertools
import statistics
import zlib

import load
import systems
from output import Output

SEEDS = itertools.count(1000)  # each load has prompts of its own, so that it finds none of an earlier one in the cache

LATENCY_COLUMNS = [
    ("normalized_ms", "ms/token", 2),
    ("normalized_p99_ms", "p99", 2),
    ("ttft_ms", "TTFT ms", 0),
    ("tpot_ms", "TPOT ms", 2),
    ("kv_mb", "K/V MB", 1),
    ("batch", "batch", 0),
    ("failed", "failed", 0),
]


def seed_of(row):
    """The seed of a row's load: all systems get the same prompts at the same times."""
    return zlib.crc32(repr(sorted(row.items())).encode())


def attempt(args, output, row, system, seconds, **options):
    """Measure a load of the row's rate over some seconds on a running system; if it fails, a note says so."""
    options |= {"rate": row["rate"], "requests": max(4, round(row["rate"] * seconds)), "time_limit": limit_s(args)}
    try:
        with load.machine(args):
            result = load.run(args, system, seed=seed_of(row), **options)
    except RuntimeError as error:
        output.notes.append(f"{system.name}, {row}: {error}")
        output.add({**row, "system": system.name})
        return None
    row = {**row, **load.figures(system, result)}
    output.add(row)
    return row


def limit_s(args):
    """The time limit of a load; a quick one is small, but the machine may be busy."""
    return 120 if args.quick else 4 * args.seconds


def flags(running):
    return [f"{s.name}: `{s.about()}`" for s in running]


def table4(args, running):
    """The paper's Table 4: latency, K/V and batch by request rate, prompt length and shared length."""
    lengths = [(64, 4.0)] if args.quick else [(1024, 1.0), (2048, 0.6), (4096, 0.3)]
    completion, seconds = (4, 1) if args.quick else (128, args.seconds)
    all_systems = [s for s in running if s.name != "chunkllama shared_storage"]
    out = Output(
        args,
        "table4",
        f"Poisson arrivals over {seconds} s, {completion} completion tokens, batch at most 32",
        [("system", "system", None), ("rate", "requests/s", 1), ("prompt", "n_p", 0), ("shared", "n_s", 0), *LATENCY_COLUMNS],
        flags(all_systems),
    )
    for prompt, rate in lengths:
        for shared in (0, prompt):
            for system in all_systems:
                row = {"rate": rate, "prompt": prompt, "shared": shared}
                attempt(args, out, row, system, seconds, prompt_tokens=prompt, shared_tokens=shared, completion_tokens=completion)
    out.close()


def workloads(args, running):
    """The bundled workloads, rendered by the model's chat format."""
    files = sorted((systems.ROOT / "bench/workloads").glob("*.jsonl"))
    completion, seconds, rate = (4, 1, 4.0) if args.quick else (64, args.seconds, 2.0)
    all_systems = [s for s in running if s.name in ("chunkllama shared", "chunkllama private")]
    out = Output(
        args,
        "workloads",
        f"Bundled workloads: Poisson arrivals, {rate} requests a second over {seconds} s, {completion} completion tokens",
        [("system", "system", None), ("workload", "workload", None), ("rate", "requests/s", 1), *LATENCY_COLUMNS],
        flags(all_systems),
    )
    for file in files[:1] if args.quick else files:
        for system in all_systems:
            row = {"workload": file.stem, "rate": rate}
            attempt(args, out, row, system, seconds, input=file, completion_tokens=completion)
    out.close()


def idle_latency(args, system, **lengths):
    """The normalized latency of a single request in ms/token: the median of three, sent one after the other."""
    alone = []
    for _ in range(3):
        result = load.run(args, system, requests=1, seed=next(SEEDS), **lengths)
        if not result["normalized_latency_s"]:
            raise RuntimeError(f"{system.name}: {result['errors']}")
        alone.append(result["normalized_latency_s"]["mean"] * 1e3)
    return statistics.median(alone)


def against_peers(served):
    """A line for each n_s: the ratio of this project's rate to that of the best peer; served: (n_s, system, rate, limit)."""
    lines = []
    for shared in dict.fromkeys(s for s, *_ in served):
        rates = {name: rate for s, name, rate, _ in served if s == shared}
        peers = {name: rate for name, rate in rates.items() if not name.startswith("chunkllama") and rate}
        if peers:
            best = max(peers, key=peers.get)
            ours = rates["chunkllama shared"]
            lines.append(f"n_s = {shared}: {ours / peers[best]:.1f} times the rate of the best peer, {best}")
    return lines


def fig5(args, running):
    """The paper's Figure 5: the rate rises until the latency exceeds a limit, which is twice that of an idle `private`."""
    shared_lengths = [32] if args.quick else [1024, 2048]
    own, completion, seconds = (8, 4, 1) if args.quick else (32, 64, args.seconds)
    rates = [2, 8] if args.quick else [0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32]
    unshared = next(s for s in running if s.name == "chunkllama private")
    out = Output(
        args,
        "fig5",
        f"Normalized latency by request rate: {own} own tokens behind n_s shared, {completion} completion "
        f"tokens, {seconds} s of Poisson arrivals",
        [
            ("system", "system", None),
            ("shared", "n_s", 0),
            ("rate", "requests/s", 2),
            ("limit_ms", "limit", 2),
            *LATENCY_COLUMNS,
        ],
        flags(running),
        {
            "kind": "lines",
            "x": "rate",
            "y": "normalized_ms",
            "series": "system",
            "panel": "shared",
            "panel_label": "shared tokens: ",
            "x_label": "requests a second",
            "y_label": "normalized latency, ms/token",
            "accent": "chunkllama shared",
            "limit": "limit_ms",
            "log_y": True,
            "log_x": True,
        },
    )
    served = []
    for shared in shared_lengths:
        lengths = {"prompt_tokens": shared + own, "shared_tokens": shared, "completion_tokens": completion}
        with load.machine(args):
            limit = 2 * idle_latency(args, unshared, **lengths)
        for system in running:
            best = 0
            for rate in rates:
                row = {"shared": shared, "rate": rate, "limit_ms": limit}
                row = attempt(args, out, row, system, seconds, warm_prefixes=True, **lengths)
                if not row or row["failed"] or not row["normalized_ms"] or row["normalized_ms"] > limit:
                    break
                best = rate
            served.append((shared, system.name, best, limit))
    out.notes = against_peers(served) + [
        f"n_s = {s}: {name} serves {best or f'less than {rates[0]}'} requests/s within {limit:.1f} ms a token"
        for s, name, best, limit in served
    ] + out.notes
    out.close()


def budget(args, _):
    """The peak batch that fits into a K/V budget, by the sharing ratio."""
    total, completion, mib = (256, 16, 32) if args.quick else (512, 32, 128)
    ratios = [0, 0.5] if args.quick else [0, 0.25, 0.5, 0.75, 0.875]
    out = Output(
        args,
        "budget",
        f"Most sequences at once with {mib} MiB for K/V: n_p + n_c = {total}, n_c = {completion}, all requests at once",
        [
            ("system", "system", None),
            ("ratio", "r", 3),
            ("batch", "batch", 0),
            ("times", "times r = 0", 2),
            ("formula", "1 / (1 - r)", 2),
            ("kv_mb", "K/V MB", 1),
            ("failed", "failed", 0),
        ],
        plot={
            "kind": "lines",
            "x": "ratio",
            "y": "batch",
            "series": "system",
            "x_label": "shared part r of a request's tokens",
            "y_label": "sequences at once",
            "accent": "chunkllama shared",
            "from_zero": True,
        },
    )
    for sharing in ("shared", "shared_storage", "private"):
        none = None
        for ratio in ratios:
            system = systems.chunkllama(args, sharing, max_seqs=256, kv_budget=f"{mib}M", context=total)
            row = {"ratio": ratio, "formula": 1 / (1 - ratio)}
            with load.machine(args), system:
                result = load.run(
                    args,
                    system,
                    requests=24 if args.quick else 120,
                    prompt_tokens=total - completion,
                    shared_tokens=min(round(ratio * total), total - completion),
                    completion_tokens=completion,
                    warm_up=0,
                )
            row |= load.figures(system, result)
            none = none or row["batch"]
            out.add({**row, "times": row["batch"] / none})
    out.close()
