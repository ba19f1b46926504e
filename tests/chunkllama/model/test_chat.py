"""Prompts of chats: token ids equal those of the file's own template, rendered by Jinja and encoded by `tokenizers`."""

import random

import gguf
import jinja2
import pytest
from test_tokenizer import SEED, assert_same, texts
from tokenizers_by_hand import from_gguf, tokenize_dump


def chats(n):
    """Random conversations whose texts begin and end with characters that might merge with the template."""
    rng = random.Random(SEED)
    pool = [t for t in texts(4000) if "<|im" not in t and "</s>" not in t]
    edges = ["", "", "\n", " ", "\n\n", "\r\n", "\t", "<", "<|", "|>", "user"]
    out = []
    for _ in range(n):
        roles = ["system"] * rng.randint(0, 1) + [rng.choice(["user", "assistant", "user", "system"]) for _ in range(rng.randint(1, 4))]
        out.append([{"role": r, "content": rng.choice(edges) + rng.choice(pool) + rng.choice(edges)} for r in roles])
    return out


@pytest.mark.long
@pytest.mark.parametrize("how", [["--chat"], ["--chat-format", "chatml"]])
def test_smollm2_template(bin_dir, model_path, how):
    """The file's own template, and the built-in ChatML template, write the same."""
    fields = gguf.GGUFReader(model_path).fields
    template = jinja2.Environment().from_string(fields["tokenizer.chat_template"].contents())
    lines = chats(2000)
    rendered = [template.render(messages=chat, add_generation_prompt=True) for chat in lines]
    assert any("named SmolLM" in text for text in rendered) and any("named SmolLM" not in text for text in rendered)
    theirs = [e.ids for e in from_gguf(model_path, special=True).encode_batch(rendered)]
    assert_same(lines, tokenize_dump(bin_dir, model_path, lines, *how), theirs)
