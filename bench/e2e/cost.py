"""What grammars and the server add to a step in which 32 sequences decode, as ratios of times measured in pairs."""

import glob
import json
import os
import random
import subprocess

import load
import studies
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
    "Grammars: `chunkllama bench grammar`. Sequences of random text decode in one process, at temperature 1; the time is that of a "
    "step, with its draws. text: any text is allowed, so a mask is computed and changes nothing; json: an array of any values; "
    "records: an array of objects with six properties; tools: an array of calls of two functions. A step with a grammar also "
    "computes tokens that the grammar forces, which another step would compute otherwise.",
    "The server: the median time between two tokens of a stream, at temperature 0 and without drafts, as its client measures it "
    "on the same cores. The reference is a forward pass over the same numbers of tokens without engine, draws, text and HTTP "
    "(`chunkllama bench`).",
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


def grammars(args):
    """A row for each of the program's grammars; none without llguidance."""
    library = find_library()
    if not library:
        return
    n_rounds, n_tokens = (1, 8) if args.quick else (9, 128)
    for line in lines(args, "bench", "grammar", "--grammar-library", library, "--streams", STREAMS, "--rounds", n_rounds,
                      "--tg", n_tokens):  # fmt: skip
        work = f"{line['grammar']}: {STREAMS} streams, {n_tokens} tokens, {line['tokens_per_step']:.1f} a step"
        yield row_of("time of a step, with a grammar / without", work, "ms", ("at most", 1.02), line["pairs_ms"])


def served(args):
    """The time between tokens of the server's streams, over that of forward passes alone."""
    prompt, completion = (16, 8) if args.quick else (128, 128)
    system = systems.chunkllama(args, "shared", more=["--speculate", "off"])
    order = random.Random(1)  # of the two sides of a round

    def itl_ms(seed):
        result = load.run(args, system, requests=STREAMS, prompt_tokens=prompt, completion_tokens=completion, seed=seed)
        return result["itl_s"]["median"] * 1e3

    def forward_ms(_):
        (line,) = lines(args, "bench", "--pp", prompt, "--tg", completion, "--batch", STREAMS)
        return line["T_TG"] / line["TG"] * 1e3

    def measure(_):
        seed = next(studies.SEEDS)
        times = {side: side(seed) for side in order.sample([itl_ms, forward_ms], 2)}
        return times[itl_ms], times[forward_ms]

    with system:
        pairs = rounds(args, measure)
    work = f"{STREAMS} streams, {prompt} tokens each, {completion} decoded"
    return row_of("time between tokens, served / forward passes alone", work, "ms", ("at most", 1.03), pairs)


def cost(args, _):
    out = Output(args, "cost", "What grammars and the server add to a step of 32 sequences", COLUMNS, NOTES)
    for row in grammars(args):
        out.add(row)
    out.add(served(args))
    out.close()
