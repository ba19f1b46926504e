"""The model's file may change under a running server: all that answers need of it was read when the server started."""
import os
import shutil

import pytest

from test_server import serving

# Each has tokens that the others lack, so that each looks up embeddings that were not used before.
PROMPTS = ["Once upon a time there was a lighthouse keeper who", "Quantum chromodynamics describes", "SELECT name FROM users WHERE",
           "Schöne Grüße aus Köln und"]


def truncate(path):
    os.truncate(path, os.path.getsize(path) // 2)


def truncate_to_nothing(path):
    os.truncate(path, 0)


def overwrite(path):
    """As `cp other.gguf model.gguf` does: the file stays the same, its contents do not."""
    with open(path, "r+b") as file:
        file.write(os.urandom(os.path.getsize(path)))


@pytest.mark.parametrize("change", [truncate, truncate_to_nothing, overwrite])
def test_answers_do_not_depend_on_the_file(chunkllama_bin, model_path, tmp_path, change):
    with serving(chunkllama_bin, model_path) as server:
        expected = [server.complete(prompt, max_tokens=12, temperature=0, logprobs=3).choices[0] for prompt in PROMPTS]
        chat = server.chat(max_tokens=12, temperature=0).choices[0]
    copy = tmp_path / "model.gguf"
    shutil.copyfile(model_path, copy)
    with serving(chunkllama_bin, copy) as server:
        change(copy)
        assert [server.complete(prompt, max_tokens=12, temperature=0, logprobs=3).choices[0] for prompt in PROMPTS] == expected
        assert server.chat(max_tokens=12, temperature=0).choices[0] == chat
        assert server.process.poll() is None
