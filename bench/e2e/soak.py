"""Half an hour of requests that need four times the K/V memory, with cancels and restarts: errors, wrong answers, and memory.

Clients send prompts at random from a fixed set, of which some begin alike. The answer to each was computed before by a server with
memory for all, one request at a time; every answer that is complete must be the same. A client that gets status 429 waits and
sends its request again. Some clients close the connection in the middle of an answer. The server ends at SIGTERM and starts again
several times; requests that were in flight then may fail.
"""

import contextlib
import http.client
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
import urllib.parse

import load
import systems
from memory import tokens
from output import Output

CHUNK = 64  # tokens
TOKEN_BYTES = 23040  # K/V of a token of SmolLM2-135M in bf16


class Plan:
    """Sizes, and the prompts with what is requested of each."""

    def __init__(self, quick):
        self.clients, self.lives = (8, 2) if quick else (32, 5)
        self.prompt, self.completion = (48, 16) if quick else (512, 128)
        n_prompts = 16 if quick else 96
        trunks = [tokens(self.prompt // 2, f"trunk {i}") for i in range(4)]
        self.bodies = []
        for i in range(n_prompts):
            own = tokens(random.Random(i).randrange(self.prompt // 4, self.prompt), f"own {i}")
            prompt = trunks[i % 4] + own[: self.prompt // 2] if i % 2 else own
            self.bodies.append(
                {"prompt": prompt, "max_tokens": self.completion, "temperature": 0.8, "seed": i, "ignore_eos": True, "stream": True}
            )

    def budget_bytes(self):
        """A quarter of what the clients' requests need at once, without an eighth that is kept for workspace."""
        lengths = [len(body["prompt"]) + self.completion for body in self.bodies]
        mean = statistics.mean((n + CHUNK - 1) // CHUNK * CHUNK for n in lengths)
        most = max(lengths) + 4 * CHUNK
        return int(max(self.clients * mean / 4, most) * TOKEN_BYTES * 8 / 7)


class Refused(Exception):
    """Status 429; the argument is Retry-After in seconds."""


def answer(url, body, stop_after=None):
    """The text of a streamed answer; None if the connection was closed after stop_after events."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=600)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status == 429:
            raise Refused(float(reply.getheader("Retry-After", 1)))
        if reply.status != 200:
            raise RuntimeError(f"status {reply.status}: {reply.read()[:300]!r}")
        text, n_events = "", 0
        for line in reply:
            if line.startswith(b"data: [DONE]"):
                return text
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    raise RuntimeError(f"error event: {event['error']}")
                text += event["choices"][0]["text"]
                n_events += 1
                if stop_after is not None and n_events >= stop_after:
                    return None
        raise RuntimeError("the answer ended without [DONE]")


class Soak:
    """What clients and the sampler of memory share. life: the number of the server's start; odd while it is down."""

    def __init__(self, plan, expected):
        self.plan, self.expected = plan, expected
        self.lock = threading.Lock()
        self.counts = dict.fromkeys(("exact", "wrong", "cancelled", "refused", "cut off", "errors"), 0)
        self.messages = []
        self.life, self.url, self.ended = 1, None, False

    def count(self, what, message=None):
        with self.lock:
            self.counts[what] += 1
            if message and len(self.messages) < 10:
                self.messages.append(message)

    def request(self, draw):
        i = draw.randrange(len(self.plan.bodies))
        stop_after = draw.randrange(1, self.plan.completion) if draw.random() < 0.2 else None
        life = self.life
        try:
            text = answer(self.url, self.plan.bodies[i], stop_after)
        except Refused as refused:
            self.count("refused")
            time.sleep(min(float(refused.args[0]), 2))
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            if self.life == life:
                self.count("errors", f"{type(error).__name__}: {error}")
            else:
                self.count("cut off")
        else:
            if text is None:
                self.count("cancelled")
            elif text == self.expected[i]:
                self.count("exact")
            else:
                self.count("wrong", f"prompt {i}: {text[:60]!r}, not {self.expected[i][:60]!r}")

    def client(self, seed):
        draw = random.Random(seed)
        while not self.ended:
            if self.life % 2:
                time.sleep(0.01)
            else:
                self.request(draw)


def sample_memory(system, seconds, quick):
    """Megabytes that the server had in use, sampled during some seconds."""
    samples, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.05 if quick else 0.5)
        if system.process.poll() is not None:
            raise RuntimeError(f"the server ended: {system.tail()}")
        samples.append(system.resident_bytes() / 1e6)
    return samples


def run_lives(args, soak, options, add):
    """Start the server, and end it again, as often as planned; add() gets the number of each life and its samples."""
    seconds = 4 if args.quick else args.soak_minutes * 60
    for life in range(soak.plan.lives):
        system = systems.chunkllama(args, "shared", kv_budget=soak.plan.budget_bytes(), max_seqs=soak.plan.clients, more=options)
        with system, system.awake():
            soak.url = system.url
            soak.life += 1
            samples = sample_memory(system, seconds / soak.plan.lives, args.quick)
            soak.life += 1
        if system.process.returncode != 0:
            raise RuntimeError(f"the server ended with status {system.process.returncode}")
        add(life, samples)


def expected_answers(args, plan):
    with systems.chunkllama(args, "shared", max_seqs=1, kv_budget="1G") as system, system.awake():
        return [answer(system.url, body) for body in plan.bodies]


def soak(args, _):
    plan = Plan(args.quick)
    folder = tempfile.mkdtemp(prefix="chunkllama-tier-")
    options = ["--kv-tier", folder, "--max-queued-requests", plan.clients // 2]
    out = Output(
        args,
        "soak",
        f"{plan.clients} clients that need four times the K/V memory, with cancels and restarts",
        [("life", "start", 0), ("minutes", "minutes", 1), ("exact", "exact", 0), ("wrong", "wrong", 0),
         ("cancelled", "cancelled", 0), ("refused", "429", 0), ("cut off", "cut off", 0),
         ("errors", "other errors", 0), ("early_mb", "MB, 2nd quarter", 1),
         ("late_mb", "MB, 4th quarter", 1), ("growth", "ratio", 3), ("verdict", "verdict", None)],
        [f"Prompts of {plan.prompt // 4} to {plan.prompt} tokens, {plan.completion} tokens each, a fifth of them cancelled. "
         "exact: answers that are those of a server with memory for all, one request at a time. cut off: in flight when the server "
         "ended. MB: medians of the server's resident memory. Met: nothing wrong, no other errors, a ratio of at most 1.02."],
    )  # fmt: skip
    with load.machine(args):
        soak_state = Soak(plan, expected_answers(args, plan))
        clients = [threading.Thread(target=soak_state.client, args=(i,)) for i in range(plan.clients)]
        for client in clients:
            client.start()
        before = dict(soak_state.counts)

        def add(life, samples):
            quarter = max(1, len(samples) // 4)
            early, late = (statistics.median(samples[i * quarter : (i + 1) * quarter]) for i in (1, 3))
            counts = {key: n - before[key] for key, n in soak_state.counts.items()}
            before.update(soak_state.counts)
            good = counts["wrong"] == 0 and counts["errors"] == 0 and late <= 1.02 * early
            minutes = (4 / 60 if args.quick else args.soak_minutes) / plan.lives
            out.add({"life": life + 1, "minutes": minutes, **counts, "early_mb": early, "late_mb": late, "growth": late / early,
                     "verdict": "met" if good else "missed"})  # fmt: skip

        try:
            run_lives(args, soak_state, options, add)
        finally:
            soak_state.ended = True
            for client in clients:
                client.join()
            shutil.rmtree(folder)
    out.notes += [f"chunkllama serve {' '.join(str(o) for o in options if o != folder)}"]
    out.notes += soak_state.messages
    out.close()
