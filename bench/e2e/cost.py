"""What grammars, the server and its log add to a step in which many sequences decode, as ratios of times measured in pairs."""

import contextlib
import glob
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

import load
import systems
from memory import row_of, rounds
from output import Output

STREAMS = 32
COLUMNS = [
    ("figure", "figure", None), ("work", "work", None), ("measured", "measured", 3), ("reference", "reference", 3),
    ("unit", "unit", None), ("ratio", "ratio", 3), ("low", "95 % from", 3), ("high", "to", 3), ("bar", "bar", None),
    ("verdict", "verdict", None), ("rounds", "rounds", 0),
]  # fmt: skip
NOTES = (
    "measured, reference: medians; ratio: the median of the rounds' ratios; 95 %: the interval of the sign test. A bar is met if "
    "the whole interval keeps it, missed if none of it does, and undecided otherwise.",
    "Grammars: `chunkllama bench grammar`. Sequences of random text decode in one process, at temperature 1. The time of a token "
    "is that of a step, with its draws, by the tokens that the step gives. text: any text is allowed, so no draw is in vain; json: "
    "an array of any values; records: an array of objects with six properties; tools: an array of calls of two functions. In the "
    "last two, steps also compute tokens that the grammar forces, in rows beside the 32.",
    "The server: the median time between two tokens of a stream, as its client measures it on the same cores, over the time of a "
    "step of the same requests without a grammar in `chunkllama bench grammar`, which has no HTTP, no JSON and no client. A round "
    "has the medians of three loads and of four runs.",
    "The log: two servers, of which one writes a line for each request and for each second of load, under the same requests.",
)


def find_library():
    found = glob.glob(str(systems.ROOT / ".venv/lib/python3*/site-packages/llguidance/_lib*.so"))
    return os.environ.get("CHUNKLLAMA_GRAMMAR_LIBRARY") or (found[0] if found else None)


def lines(args, *command):
    """The lines of JSON that the program prints."""
    words = [str(word) for word in (args.bin / "chunkllama", *command, "--model", args.model, "--threads", args.threads, "--json")]
    with load.machine(args):
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def bench_grammar(args, library, n_rounds, n_tokens):
    return lines(args, "bench", "grammar", "--grammar-library", library, "--streams", STREAMS, "--rounds", n_rounds, "--tg",
                 n_tokens)  # fmt: skip


def grammars(args, library):
    """A row for each of the program's grammars."""
    n_rounds, n_tokens = (1, 8) if args.quick else (60, 32)
    for line in bench_grammar(args, library, n_rounds, n_tokens):
        per_step = line["tokens_per_step"]
        work = f"{line['grammar']}: {STREAMS} streams, {per_step:.1f} tokens a step"
        pairs = [(1e3 * step / per_step, 1e3 * without / STREAMS) for step, without in line["pairs_ms"]]
        yield row_of("time of a token, with a grammar / without", work, "us", ("at most", 1.02), pairs)


def served(args, library):
    """The time between tokens of the server's streams, over that of a step of the same requests in one process."""
    n_tokens = 8 if args.quick else 64
    system = systems.chunkllama(args, "shared", more=["--speculate", "off"])
    order = random.Random(1)  # of the two sides of a round

    def served_ms(requests):
        loads = [load.run(args, system, input=requests, requests=STREAMS, completion_tokens=n_tokens) for _ in range(3)]
        return statistics.median(result["itl_s"]["median"] for result in loads) * 1e3

    def step_ms(_):
        return statistics.median(without for line in bench_grammar(args, library, 1, n_tokens) for _, without in line["pairs_ms"])

    def measure(requests):
        times = {side: side(requests) for side in order.sample([served_ms, step_ms], 2)}
        return times[served_ms], times[step_ms]

    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for seed in range(STREAMS):
            file.write(json.dumps({"prompt": "Here is the list:\n", "seed": seed, "temperature": 1}) + "\n")
        file.flush()
        with system:
            pairs = rounds(args, lambda _: measure(file.name))
    work = f"server; {STREAMS} streams, {n_tokens} tokens"
    return row_of("time between two tokens, served / in one process", work, "ms", ("at most", 1.03), pairs)


def logged(args):
    """The time between tokens of 64 busy streams of a server that logs each request, and the load each second, over one without."""
    n_tokens = 8 if args.quick else 32
    options = {"debug": ["--log-level", "debug", "--log-load", 1], "error": ["--log-level", "error", "--log-load", 0]}
    order = random.Random(2)

    with contextlib.ExitStack() as running:
        servers = {level: running.enter_context(systems.chunkllama(args, "shared", max_seqs=64, more=more))
                   for level, more in options.items()}  # fmt: skip

        def measure(_):
            times = {}
            for level in order.sample(sorted(servers), 2):
                result = load.run(args, servers[level], requests=128, max_concurrency=64, completion_tokens=n_tokens,
                                  prompt_tokens=64, shared_tokens=48)  # fmt: skip
                times[level] = result["itl_s"]["median"] * 1e3
            return times["debug"], times["error"]

        pairs = rounds(args, measure)
    return row_of("time between two tokens, with a log / without", f"server; 64 streams, {n_tokens} tokens", "ms",
                  ("at most", 1.01), pairs)  # fmt: skip


def cost(args, _):
    out = Output(args, "cost", "What grammars and the server add to a step of 32 sequences", COLUMNS, NOTES)
    library = find_library()
    if not library:
        sys.exit("there is no llguidance: pip install llguidance, or set CHUNKLLAMA_GRAMMAR_LIBRARY")
    for row in grammars(args, library):
        out.add(row)
    out.add(served(args, library))
    out.add(logged(args))
    out.close()
