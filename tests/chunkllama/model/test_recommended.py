"""How tokens are drawn where nobody says it: as the model's file recommends, in every command."""
import json
import subprocess

import pytest
import write_gguf
from waiting import LIMIT_S
from write_gguf import Type, value_type

SHAPE = dict(types=[Type.F32], n_heads=2, n_kv_heads=1, head_dim=64, n_layers=1)
RECOMMENDED = {"general.sampling.temp": (0.75, value_type.FLOAT32), "general.sampling.top_k": (1, value_type.INT32)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model that recommends its likeliest token, which others than the likeliest surround at temperature 1."""
    path = tmp_path_factory.mktemp("recommended") / "model.gguf"
    write_gguf.random_model(path, **SHAPE, replace_fields=RECOMMENDED)
    return path


def run(chunkllama, model, seed, *more):
    return chunkllama("run", "-m", model, "--raw", "--ignore-eos", "--max-tokens", 16, "--seed", seed, *more, "abab").stdout


def chat(chunkllama, model, seed, *more):
    options = "--chat-format", "chatml", "--max-tokens", 16, "--seed", seed
    return chunkllama("chat", "-m", model, *options, *more, stdin="abab\n").stdout


def batch(chunkllama, model, seed, *more):
    body = {"prompt": "abab", "max_tokens": 16, "seed": seed, "ignore_eos": True, "return_token_ids": True}
    return json.loads(chunkllama("batch", "-m", model, "-i", "-", *more, stdin=json.dumps(body) + "\n").stdout)["token_ids"]


@pytest.mark.parametrize("draw", [run, chat, batch])
def test_every_command_draws_as_the_model_recommends(chunkllama, model, draw):
    assert draw(chunkllama, model, 1) == draw(chunkllama, model, 2)
    other = "--sampling-defaults", "openai"
    assert draw(chunkllama, model, 1, *other) != draw(chunkllama, model, 2, *other)


def test_the_log_says_what_is_recommended(chunkllama_bin, model):
    with subprocess.Popen([chunkllama_bin, "serve", model, "--port", "0", "--kv-budget", "64M"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as server:  # fmt: skip
        try:
            assert server.stdout.readline().startswith("chunkllama serves")
            server.terminate()
            log = server.communicate(timeout=LIMIT_S)[1]
        finally:
            server.kill()
    for whose in "requests", "the page":
        assert f" info  sampling of {whose} defaults=model temperature=0.75 top_k=1 top_p=1 " in log
