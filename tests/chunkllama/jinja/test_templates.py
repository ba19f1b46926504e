"""Published chat templates give the texts that Jinja gives, and what users write is never the template's own."""
import copy

import conversations
import gguf
import python_jinja
import pytest

TEMPLATES = sorted(p.stem for p in (python_jinja.FOLDER / "templates").glob("*.jinja"))


def read(name):
    return (python_jinja.FOLDER / "templates" / f"{name}.jinja").read_text(encoding="utf-8")


def test_there_are_enough_families():
    assert len({name.split("_")[0] for name in TEMPLATES}) >= 16


@pytest.mark.parametrize("name", TEMPLATES)
def test_same_text(bin_dir, name):
    cases = [(read(name), v, conversations.OWN) for v in conversations.variables()]
    assert python_jinja.compare(bin_dir, cases) > 40


def test_template_of_the_model(bin_dir, model_path):
    template = gguf.GGUFReader(model_path).fields["tokenizer.chat_template"].contents()
    assert python_jinja.compare(bin_dir, [(template, v, conversations.OWN) for v in conversations.variables()]) > 40


GREEK = "αβγ ΔΣς"


def in_greek(value, keys=("role", "type")):
    """The value with all strings in Greek, but for those that templates compare with literals."""
    if isinstance(value, str):
        return GREEK
    if isinstance(value, list):
        return [in_greek(v) for v in value]
    if isinstance(value, dict):
        return {k: v if k in keys else in_greek(v) for k, v in value.items()}
    return value


def greek_in_own(answer):
    return [part for part in python_jinja.own_text(answer) if any("\u0370" <= c <= "\u03ff" for c in part)]


@pytest.mark.parametrize("name", TEMPLATES)
def test_text_of_users_is_not_own(bin_dir, name):
    cases = [(read(name), in_greek(copy.deepcopy(v)), conversations.OWN) for v in conversations.variables()]
    answers = [a for a in python_jinja.render(bin_dir, cases) if "text" in a]
    assert sum("α" in a["text"] for a in answers) > 10 and not any(greek_in_own(a) for a in answers)
    assert all(a["own"] for a in answers if a["text"].isascii() and a["text"])


def test_literals_are_own(bin_dir):
    """The markers of a template are its own as a whole, beside any text and with any role."""
    template = "{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ m.content ~ eos_token }}{% endfor %}<|assistant|>"
    messages = [{"role": "user", "content": "<|user|></s>"}, {"role": "assistant", "content": "user"}, {"role": "<|x|>", "content": ""}]
    answer, = python_jinja.render(bin_dir, [(template, {"messages": messages}, conversations.OWN)])
    assert answer["text"] == "<|user|><|user|></s></s><|assistant|>user</s><|<|x|>|></s><|assistant|>"
    assert python_jinja.own_text(answer) == ["<|user|>", "</s><|assistant|>", "</s><|", "|></s><|assistant|>"]
