"""Calls of a model whose markers are special tokens: its grammar forces them, and its replies show them."""

import json

import gguf
import pytest
from write_gguf import Type, random_model, value_type

TEMPLATE = """\
{%- if tools %}{{ tools | tojson }} <tool_call>{% endif %}
{%- for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}assistant:"""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "parameters": {
                "type": "object",
                "properties": {"a": {"enum": [1, 2, 3]}, "b": {"type": "boolean"}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        },
    }
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of random weights, whose last two tokens are the markers."""
    path = tmp_path_factory.mktemp("special") / "model.gguf"
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + ["<tool_call>", "</tool_call>"]
    kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.CONTROL] * 2
    random_model(path, [Type.F32], 4, 2, 32, replace_fields={
        "tokenizer.ggml.tokens": (tokens, value_type.ARRAY, value_type.STRING),
        "tokenizer.ggml.token_type": ([int(k) for k in kinds], value_type.ARRAY, value_type.INT32),
    })  # fmt: skip
    return path


@pytest.mark.parametrize("choice", ["required", "auto"])
def test_calls(chunkllama, model, grammar_library, tmp_path, choice):
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    asked = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS, "return_token_ids": True, "temperature": 1}
    if choice == "required":
        asked.update(tool_choice="required", parallel_tool_calls=False)
        lines = [{**asked, "seed": seed, "max_tokens": 1000} for seed in range(8)]
    else:  # among text: the markers are likelier than anything else
        strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
        lines = [{**asked, "tools": strict, "logit_bias": {"259": 100}, "seed": seed, "max_tokens": 200} for seed in range(8)]
    done = chunkllama("batch", "-m", model, "-i", "-", "--grammar-library", grammar_library, "--chat-template", template,
                      stdin="".join(json.dumps(line) + "\n" for line in lines))  # fmt: skip
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(records) == 8
    for record in records:
        assert record["token_ids"][0] == 259
        assert record["text"] == "" or (choice == "auto" and record["text"].startswith("<tool_call>"))  # one that is cut
        for call in record["tool_calls"][: 1 if choice == "required" else -1]:  # the last one may be cut
            arguments = json.loads(call["function"]["arguments"])
            assert call["function"]["name"] == "add" and arguments["a"] in (1, 2, 3) and type(arguments["b"]) is bool
        if choice == "required":
            assert record["finish_reason"] == "tool_calls" and 260 in record["token_ids"]
        else:
            assert len(record["tool_calls"]) > 1
