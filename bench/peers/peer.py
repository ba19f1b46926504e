"""The common part of the peers' processes: the K/V of a shape, the forms that a peer offers, and the loop that times them.

A peer sets up its forms, prints a line about itself, then measures once for each line that it reads. In between it sleeps, so that
run.py can measure the peers alternately.
"""
import json
import statistics
import sys
import time

import numpy as np

TOLERANCE = 2e-2  # |V| <= 1 and scores of about one: K, V and p rounded to bf16 (2^-9 each) come out as less than 1e-2


class Shape:
    """A decode step: each of `batch` sequences has one row, which sees `shared` common tokens and `own` of its own."""

    def __init__(self, batch, prefix, shared, heads, head_dim, threads, cold_bytes, steps):
        self.batch, self.shared, self.own = batch, shared, prefix - shared + 1
        self.heads, self.head_dim, self.threads, self.cold_bytes, self.steps = heads, head_dim, threads, cold_bytes, steps

    @classmethod
    def from_argv(cls):
        return cls(**json.loads(sys.argv[1]))

    def tokens(self):
        """Random q [batch][heads][dim], shared K and V [heads][shared][dim], own K and V [batch][heads][own][dim]."""
        rng = np.random.default_rng(1)

        def draw(*shape):
            return rng.random(shape, dtype=np.float32) * 2 - 1

        h, d = self.heads, self.head_dim
        q = draw(self.batch, h, d)
        return q, [draw(h, self.shared, d) for _ in "kv"], [draw(self.batch, h, self.own, d) for _ in "kv"]

    def n_layers(self, layer_bytes):
        """The number of copies for which a layer has left the caches before it comes again."""
        return 1 + int(self.cold_bytes // layer_bytes)

    def own_tokens_mask(self):
        """[batch][shared + batch * own]: which tokens each row sees if all sequences are stored in one run of K/V."""
        sees = np.zeros((self.batch, self.shared + self.batch * self.own), dtype=bool)
        sees[:, :self.shared] = True
        for i in range(self.batch):
            sees[i, self.shared + i * self.own:self.shared + (i + 1) * self.own] = True
        return sees


def reference(tokens):
    """[batch][heads][dim] in float64."""
    q, (k, v), (own_k, own_v) = tokens
    out = np.empty(q.shape)
    for i in range(len(q)):
        for h in range(q.shape[1]):
            keys = np.concatenate([k[h], own_k[i, h]]).astype(np.float64)
            scores = keys @ q[i, h] / np.sqrt(q.shape[2])
            p = np.exp(scores - scores.max())
            out[i, h] = p @ np.concatenate([v[h], own_v[i, h]]).astype(np.float64) / p.sum()
    return out


class Form:
    """One way to compute the step: after run(layer), result() returns the result as [batch][heads][dim]."""

    def __init__(self, name, kv_type, n_layers, run, result):
        self.name, self.kv_type, self.n_layers, self.run, self.result = name, kv_type, n_layers, run, result
        self.next_layer = 0

    def time(self):
        layer = self.next_layer
        self.next_layer = (layer + 1) % self.n_layers
        start = time.perf_counter()
        self.run(layer)
        return (time.perf_counter() - start) * 1e6


def check(forms, expected):
    """Check the results, since the time of a wrong result means nothing."""
    for form in forms:
        form.run(0)
        worst = np.abs(form.result() - expected).max()
        if not worst < TOLERANCE:
            sys.exit(f"{form.name} with {form.kv_type} is wrong by {worst}")


def serve(about, shape, tokens, forms):
    """Check the forms, then measure: `steps` steps of each, in turn, whenever a line comes."""
    check(forms, reference(tokens))
    print(json.dumps({"about": about}), flush=True)
    for _ in sys.stdin:
        times = [[] for _ in forms]
        for _ in range(shape.steps):
            for taken, form in zip(times, forms):
                taken.append(form.time())
        print(json.dumps([{"form": f.name, "kv_type": f.kv_type, "step_us": statistics.median(t)}
                          for f, t in zip(forms, times)]), flush=True)
