"""An engine where K/V memory is short: the rows of `cattn-bench memory`, and those that need a server.

Each figure compares two ways, in rounds; a row has the medians, the median of the rounds' ratios and its 95 % interval, and says
whether the interval keeps the figure's bar.
"""

import contextlib
import http.client
import json
import random
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.parse

import load
import systems
from never_worse import fill_memory, interval, serve_pairs
from output import lines_of

ENGINE_FIGURES = ("chats", "itl", "overhead", "flood", "branches")  # of cattn-bench memory
EARLIER = "4ab2a3c"  # the last commit before retention by use, preemption and tenants
VOCABULARY = 16384  # ids of random tokens are from 256 to this


def verdict(bar, low, high):
    """As cattn-bench memory judges its rows; bar: ("at least" or "at most", the number)."""
    least, number = bar[0] == "at least", bar[1]
    if low >= number if least else high <= number:
        return "met"
    return "missed" if (high < number if least else low > number) else "undecided"


def row_of(figure, work, unit, bar, pairs):
    """pairs: [(measured, reference)] of the rounds."""
    ratios = [measured / reference for measured, reference in pairs]
    low, high = interval(ratios)
    measured, reference = (statistics.median(values) for values in zip(*pairs))
    return {"figure": figure, "work": work, "measured": measured, "reference": reference, "unit": unit,
            "ratio": statistics.median(ratios), "low": low, "high": high, "bar": f"{bar[0]} {bar[1]:g}",
            "verdict": verdict(bar, low, high), "rounds": len(ratios)}  # fmt: skip


# ---- Requests


def tokens(n, seed):
    """A prompt of random tokens."""
    draw = random.Random(repr(seed))
    return [draw.randrange(256, VOCABULARY) for _ in range(n)]


def ttft_ms(system, prompt, key=None):
    """Milliseconds until the first token of a streamed answer."""
    url = urllib.parse.urlsplit(system.url)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=600)
    body = json.dumps({"prompt": prompt, "max_tokens": 1, "temperature": 0, "stream": True})
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    with contextlib.closing(connection):
        start = time.monotonic()
        connection.request("POST", "/v1/completions", body, headers)
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{system.name}: {reply.status} {reply.read()[:500]}")
        reply.readline()
        seconds = time.monotonic() - start
        reply.read()
    return seconds * 1e3


def rounds(args, measure):
    """[(measured, reference)] of rounds, until the time of a row is over; measure(round) is one of them."""
    pairs, start = [], time.monotonic()
    while not pairs or not args.quick and (len(pairs) < 6 or time.monotonic() - start < args.row_seconds):
        pairs.append(measure(len(pairs)))
    return pairs


# ---- The figures


@contextlib.contextmanager
def flood(args, system, key, n_requests):
    """Requests of one key, all at once, which are in flight inside the context."""
    command = [args.bin / "chunkllama", "bench", "serve", "--url", system.url, "--api-key", key, "--requests", n_requests,
               "--prompt-tokens", 256, "--completion-tokens", 64, "--warm-up", 0, "--seed", random.randrange(1 << 30)]  # fmt: skip
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.2 if args.quick else 3)
        if not args.quick and process.poll() is not None:
            raise RuntimeError("the flood ended before it was measured")
        yield
    finally:
        process.kill()
        process.wait()


def served_flood(args):
    """TTFT of a tenant, while another floods the server and on an idle server."""
    prompt, requests = (32, 20) if args.quick else (512, 1000)
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("quiet key-of-quiet\nloud key-of-loud\n")
        keys.flush()
        system = systems.chunkllama(args, "shared", more=["--api-keys", keys.name])
        system.key = "key-of-quiet"
        order = random.Random(1)  # of the two sides of a round

        def median_ttft(n_round, side):
            times = []
            for i in range(5):
                time.sleep(random.uniform(0, 0.25))  # so that requests arrive at any time of a step
                times.append(ttft_ms(system, tokens(prompt, (n_round, side, i)), system.key))
            return statistics.median(times)

        def ttft(n_round, flooded):
            with flood(args, system, "key-of-loud", requests) if flooded else contextlib.nullcontext():
                value = median_ttft(n_round, flooded)
            if flooded:
                time.sleep(0.5)  # until the flood's requests are cancelled
            return value

        def measure(n_round):
            sides = {flooded: ttft(n_round, flooded) for flooded in order.sample([True, False], 2)}
            return sides[True], sides[False]

        with load.machine(args), system, system.awake():
            pairs = rounds(args, measure)
    work = f"server; {prompt}-token prompts beside {requests} requests of 256 tokens, 64 decoded"
    return row_of("median TTFT of a tenant, another floods / idle", work, "ms", ("at most", 3), pairs)


def restart(args):
    """TTFT of a prompt after a restart, from the file tier and computed again."""
    n = 128 if args.quick else 2048
    folder = tempfile.mkdtemp(prefix="chunkllama-tier-")

    def ttft_after_start(prompt):
        system = systems.chunkllama(args, "shared", more=["--kv-tier", folder])
        with system, system.awake():
            ttft_ms(system, tokens(16, random.random()))  # the first request loads pages of the weights
            return ttft_ms(system, prompt)

    def measure(n_round):
        prompt = tokens(n, n_round)
        computed = ttft_after_start(prompt)
        return computed, ttft_after_start(prompt)

    try:
        with load.machine(args):
            pairs = rounds(args, measure)
    finally:
        shutil.rmtree(folder)
    return row_of("TTFT after a restart, computed / from the file tier", f"server; a prompt of {n} tokens", "ms",
                  ("at least", 10), pairs)  # fmt: skip


def earlier(args):
    """The time of requests without hits on this server, over that on the server of an earlier commit."""
    options = {"requests": 16, "prompt_tokens": 128, "completion_tokens": 32}
    now = systems.chunkllama(args, "shared")
    before = systems.chunkllama(args, "shared", programs=args.bin if args.quick else systems.programs_of(EARLIER))
    before.name += f" of {EARLIER}"
    with contextlib.ExitStack() as stack:
        with load.machine(args):
            pair = [stack.enter_context(system) for system in (now, before)]
        if not args.quick:
            fill_memory(args, pair)
        pairs = serve_pairs(args, pair, "earlier", options, precision=0.005)
    work = "server; 16 requests at once, 128 tokens, 32 decoded"
    return row_of(f"time without hits, now / commit {EARLIER}", work, "ms", ("at most", 1.01),
                  [(a * 1e3, b * 1e3) for a, b in pairs])  # fmt: skip


SERVED = {"served_flood": served_flood, "restart": restart, "earlier": earlier}
FIGURES = (*ENGINE_FIGURES, *SERVED)


def measure_engine(args, names):
    """The head and the rows of `cattn-bench memory`, which has no rows where names is empty."""
    args.output.mkdir(parents=True, exist_ok=True)
    command = [args.bin / "cattn-bench", "memory", "-o", args.output, "--model", args.model, "--threads", args.threads,
               "--seconds", args.row_seconds, "--only", ",".join(names) or "none"]  # fmt: skip
    with load.machine(args):
        subprocess.run([str(word) for word in command] + (["--quick"] if args.quick else []), check=True)
    head, *rows = map(json.loads, (args.output / "memory.jsonl").read_text().splitlines())
    return head, rows


def memory(args, _):
    names = args.figures.split(",")
    head, rows = measure_engine(args, [name for name in names if name in ENGINE_FIGURES])
    head["command"] = args.command("memory")
    head["note"] += "\nRows that begin with \"server\" are of `chunkllama serve`, with its defaults.\n"
    path = args.output / "memory.jsonl"
    for name in names:
        if name not in SERVED:
            continue
        row = SERVED[name](args)
        rows.append(row)
        shown = ("figure", "measured", "reference", "ratio", "low", "high", "verdict")
        print(*(f"{key} {row[key]}" for key in shown), flush=True)
        path.write_text(lines_of(head, rows))
    path.write_text(lines_of(head, rows))
