"""Chats have the text that Transformers' apply_chat_template returns, where a template writes all that they have."""
import copy
import json
import subprocess

import conversations
import gguf
import python_jinja
import pytest

# That of hermes writes chats with tools alone, and not those of conversations.py.
TEMPLATES = sorted(p.stem for p in (python_jinja.FOLDER / "templates").glob("*.jinja") if p.stem != "hermes")
TAG = "CONTINUE_FINAL_MESSAGE_TAG "
# These write tools, and calls from objects.
WITH_CALLS = ["gemma4_v5", "lfm2_v2", "llama3_1", "llama3_2", "mistral_v3", "nemotron_3_nano", "qwen2_5", "qwen3", "qwen3_5_think",
              "qwen3_instruct_2507", "qwen3_vl"]


def read(name):
    return (python_jinja.FOLDER / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def own(model_path):
    fields = gguf.GGUFReader(model_path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: fields.get(f"tokenizer.ggml.{key}_token_id") for name, key in names.items()}
    return {name: tokens[field.contents()] for name, field in ids.items() if field}


def theirs(template, chat, own):
    """What apply_chat_template does: None if it raises an exception."""
    messages = copy.deepcopy(chat["messages"])
    if ".thinking" in template and "reasoning_content" not in template:  # that is where the template looks for reasoning
        for message in messages:
            if "reasoning_content" in message:
                message["thinking"] = message["reasoning_content"]
    if chat.get("continue_final_message"):
        messages[-1]["content"] += TAG
    variables = {"messages": messages, "tools": chat.get("tools"), "documents": None,
                 "add_generation_prompt": not chat.get("continue_final_message"), **chat.get("kwargs", {})}
    text = python_jinja.expected(template, variables, own)
    if isinstance(text, Exception):
        return None
    if all(m["role"] == "system" and m["content"].strip() not in text for m in messages):
        return None  # nothing of the chat is left
    if chat.get("continue_final_message"):
        if TAG.strip() not in text:
            return None
        at = text.rindex(TAG.strip())
        text = text[:at] if text[at:at + len(TAG)] == TAG else text[:at].rstrip()
    return text


def run(bin_dir, model_path, lines, *options):
    done = subprocess.run([bin_dir / "tokenize_dump", model_path, *options], input="".join(json.dumps(line) + "\n" for line in lines),
                          capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def ours(bin_dir, model_path, template, chats):
    """The texts, and None for chats that are refused."""
    answers = run(bin_dir, model_path, [{"template": template, "now": python_jinja.NOW, **chat} for chat in chats], "--chat")
    texts = iter(run(bin_dir, model_path, [a for a in answers if isinstance(a, list)], "--decode"))
    return [next(texts) if isinstance(a, list) else None for a in answers]


def compare(bin_dir, model_path, name, chats, own):
    """Texts are equal wherever Transformers has one. Returns how many it has."""
    template = read(name)
    expected = [theirs(template, chat, own) for chat in chats]
    for chat, got, wanted in zip(chats, ours(bin_dir, model_path, template, chats), expected, strict=True):
        assert wanted is None or got == wanted, chat
    return sum(text is not None for text in expected)


def is_plain(messages):
    return messages and all(isinstance(m.get("content"), str) and not m.get("tool_calls") and m["role"] in ("system", "user", "assistant")
                            for m in messages)


PLAIN = [m for m in conversations.conversations() if is_plain(m)]


@pytest.mark.parametrize("name", TEMPLATES)
def test_plain_chats(bin_dir, model_path, own, name):
    if name == "smolvlm":  # it writes parts only, which Transformers does not make of strings
        chats = [{"messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in ("one", "two")]}]}]
        assert compare(bin_dir, model_path, name, chats, own) == 1
    else:
        assert compare(bin_dir, model_path, name, [{"messages": m} for m in PLAIN], own) >= 15


@pytest.mark.parametrize("name", WITH_CALLS)
def test_chats_with_tools(bin_dir, model_path, own, name):
    """Content beside calls is null or empty here, which templates treat alike."""
    chats = [{"messages": m, "tools": tools} for m in conversations.conversations() for tools in (None, conversations.TOOLS)
             if m and all(isinstance(x.get("content"), str) or (x.get("tool_calls") and "content" in x) for x in m)
             and all(isinstance(c["function"]["arguments"], dict) for x in m for c in x.get("tool_calls", []))
             and all(x["role"] != "developer" for x in m)]
    assert compare(bin_dir, model_path, name, chats, own) >= 30


@pytest.mark.parametrize("name", [t for t in TEMPLATES if t != "smolvlm"])
def test_final_messages_are_continued(bin_dir, model_path, own, name):
    ends = ["It is", "It is ", " It is\n\n", "", "<|im_end|> ", "<think>\nx\n</think>\n\nyes, "]
    chats = [{"messages": [conversations.user("What is it?"), conversations.assistant(end)], "continue_final_message": True} for end in ends]
    assert compare(bin_dir, model_path, name, chats, own) >= (0 if name in ("deepseekv3",) else 4)
