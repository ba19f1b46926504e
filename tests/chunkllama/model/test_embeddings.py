"""Embeddings of SmolLM2 through the server against the float64 model in oracle.py, and their sharing.

The bound is that of test_logits.py: twice what quantised activations cost the oracle itself.
"""
import contextlib
import json
import re
import subprocess
import urllib.request

import numpy as np
import oracle
import pytest
from waiting import LIMIT_S

TEXTS = ["A cat sat on the mat.", "The kitten sat on a rug, and then it slept until the evening came.", "Bonds fell sharply on Monday."]


@pytest.fixture(scope="module")
def serve(chunkllama_bin, model_path):
    """Starts a server, and returns a function that sends a body to one of its endpoints."""
    with contextlib.ExitStack() as servers:

        def start(*args):
            command = [chunkllama_bin, "serve", "-m", model_path, "--port", "0", "--kv-type", "f32", *args]
            server = servers.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            servers.callback(server.terminate)
            url = re.search(r"at (http://\S+)", server.stdout.readline())[1]

            def call(path, **body):
                with urllib.request.urlopen(url + path, json.dumps(body).encode(), timeout=LIMIT_S) as reply:
                    return json.load(reply)

            return call

        yield start


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def pooled(states, pooling):
    return unit(np.array([s[-1] if pooling == "last" else s.mean(0) for s in states]))


@pytest.fixture(scope="module")
def call(serve):
    return serve()


@pytest.fixture(scope="module")
def tokens(call):
    return [call("/tokenize", prompt=text)["tokens"] for text in TEXTS]


@pytest.fixture(scope="module")
def expected(model_path, tokens):
    """The oracle's exact and quantised states."""
    model = oracle.load(model_path)
    return oracle.logits(model, tokens, states=True), oracle.logits(model, tokens, states=True, quantise=True)


def vectors(answer):
    assert [d["index"] for d in answer["data"]] == list(range(len(answer["data"])))
    return np.array([d["embedding"] for d in answer["data"]])


@pytest.mark.long
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_oracle(call, tokens, expected, pooling):
    exact, quantised = expected
    got = vectors(call("/v1/embeddings", input=tokens, pooling=pooling))
    error = np.linalg.norm(got - pooled(exact, pooling), axis=-1)
    bound = 2 * np.linalg.norm(pooled(quantised, pooling) - pooled(exact, pooling), axis=-1).max()
    print(f"{pooling}: difference {error.max():.3g}, bound {bound:.3g}, of vectors of length 1")
    assert bound < 0.2 and error.max() <= bound
    assert np.allclose(np.linalg.norm(got, axis=-1), 1, atol=1e-6)
    other = vectors(call("/v1/embeddings", input=tokens, pooling="mean" if pooling == "last" else "last"))
    assert np.linalg.norm(got - other, axis=-1).min() > 2 * bound  # so the test would notice the other pooling
