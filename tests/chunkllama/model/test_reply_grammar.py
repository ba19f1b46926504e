"""The grammars of replies with calls, through PyPI `llguidance`: they accept calls that follow the schemas and no others, and whatever
they accept is split into such calls."""

import json
import random
import subprocess

import gguf
import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

SEED = 27
WALKS = 60  # random replies of each grammar

TEMPLATES = {
    "hermes": "<tool_call> <think> </think>",
    "llama3": '<|start_header_id|> "parameters"',
    "mistral": "[TOOL_CALLS][ARGS]",
    "mistral_array": "[TOOL_CALLS]",
    "gemma": "<start_function_call>",
    "pythonic": "[func_name1(",
    "function": "<function=x>{}</function>",
    "recipient": ">>>all",
    "apriel": "<tool_calls>[",
    "llama3_thinks": '<|start_header_id|> "parameters" <think> </think>',
    "harmony": "<|channel|>analysis <|channel|>commentary",
    "kimi": "<|im_middle|>",
    "deepseek": "<｜tool▁calls▁begin｜> ```json",
    "deepseek_31": "<｜tool▁calls▁begin｜>",
    "gemma4": "<|tool_call> <channel|>",
    "lfm2": "<|tool_call_start|>",
    "command": "<|START_ACTION|> <|END_RESPONSE|>",
    "glm": "<tool_call> <arg_key>",
    "minimax": "<minimax:tool_call>",
    "seed": "<seed:tool_call>",
    "qwen_coder": "<tool_call> <function= <parameter=",
}
TAGGED = ["glm", "minimax", "seed", "qwen_coder"]
MARKERS = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "<start_function_call>",
    "<end_function_call>", "<escape>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|start|>", "<|end|>", "<|return|>",
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
    "<|tool_call_end|>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>", "<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>", "<|tool_call_start|>", "<|tool_call_end|>",
    "<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<arg_key>", "</arg_key>", "<arg_value>",
    "</arg_value>", "<minimax:tool_call>", "</minimax:tool_call>", "<seed:tool_call>", "</seed:tool_call>",
]  # fmt: skip

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "strict": True,
        "parameters": {
            "type": "object",
            "description": "A sum",
            "properties": {"a": {"type": "integer", "description": "A number"}, "unit": {"enum": ["m", "km"]}, "description": {"type": "string", "maxLength": 5}},
            "required": ["a", "unit"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [ADD, NOW]

CALLS = [("add", '{"a": 3, "unit": "km"}'), ("now", "{}")]
WRONG = [("add", '{"a": "3", "unit": "km"}'), ("add", '{"a": 3}'), ("add", '{"a": 3, "unit": "mile"}'), ("sub", "{}"), ("now", '{"x": 1}')]


def written(family, calls):
    """Calls as a model of the family writes them."""
    if family == "hermes":
        return "\n".join(f'<tool_call>\n{{"name": "{n}", "arguments": {a}}}\n</tool_call>' for n, a in calls)
    if family in ("llama3", "llama3_thinks"):
        return "; ".join(f'{{"name": "{n}", "parameters": {a}}}' for n, a in calls)
    if family == "mistral":
        return "".join(f"[TOOL_CALLS]{n}[ARGS]{a}" for n, a in calls)
    if family == "mistral_array":
        return "[TOOL_CALLS] [" + ", ".join(f'{{"name": "{n}", "arguments": {a}}}' for n, a in calls) + "]"
    if family == "apriel":
        return "<tool_calls>[" + ", ".join(f'{{"name": "{n}", "arguments": {a}}}' for n, a in calls) + "]</tool_calls>"
    if family == "function":
        return "".join(f"<function={n}>{a}</function>" for n, a in calls)
    if family == "recipient":
        return ">>>".join(f"{n}\n{a}" for n, a in calls)
    if family == "harmony":
        return "<|start|>assistant".join(f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{a}<|call|>" for n, a in calls)
    if family == "kimi":
        texts = [f"<|tool_call_begin|>functions.{n}:{i}<|tool_call_argument_begin|>{a}<|tool_call_end|>" for i, (n, a) in enumerate(calls)]
        return "<|tool_calls_section_begin|>" + "".join(texts) + "<|tool_calls_section_end|>"
    if family.startswith("deepseek"):
        before, between, after = ("", "<｜tool▁sep｜>", "") if family == "deepseek_31" else ("function<｜tool▁sep｜>", "\n```json\n", "\n```")
        texts = [f"<｜tool▁call▁begin｜>{before}{n}{between}{a}{after}<｜tool▁call▁end｜>" for n, a in calls]
        return "<｜tool▁calls▁begin｜>" + "\n".join(texts) + "<｜tool▁calls▁end｜>"
    if family == "command":
        texts = [f'    {{"tool_call_id": "{i}", "tool_name": "{n}", "parameters": {a}}}' for i, (n, a) in enumerate(calls)]
        return "<|START_ACTION|>[\n" + ",\n".join(texts) + "\n]<|END_ACTION|>"
    values = [(n, json.loads(a)) for n, a in calls]
    if family in TAGGED:
        return "\n".join(tagged(family, n, a) for n, a in values)
    if family == "gemma4":
        texts = [f"call:{n}{{" + ",".join(f"{k}:{literal(v, '<|' + chr(34) + '|>')}" for k, v in a.items()) + "}" for n, a in values]
        return "".join(f"<|tool_call>{text}<tool_call|>" for text in texts)
    if family == "lfm2":
        return "<|tool_call_start|>" + written("pythonic", calls) + "<|tool_call_end|>"
    if family == "gemma":
        texts = [f"call:{n}{{" + ",".join(f"{k}:{literal(v, '<escape>')}" for k, v in a.items()) + "}" for n, a in values]
        return "".join(f"<start_function_call>{text}<end_function_call>" for text in texts)
    return "[" + ", ".join(f"{n}(" + ", ".join(f"{k}={literal(v, chr(34))}" for k, v in a.items()) + ")" for n, a in values) + "]"


def in_tags(value):
    """A value between tags: strings have no quotes there, but one of digits keeps them, to be no number."""
    return value if isinstance(value, str) and not value.isdigit() else json.dumps(value)


def tagged(family, name, arguments):
    """A call with tags around each argument."""
    values = [(k, in_tags(v)) for k, v in arguments.items()]
    if family == "glm":
        return f"<tool_call>{name}\n" + "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n" for k, v in values) + "</tool_call>"
    if family == "minimax":
        inner = "".join(f'<parameter name="{k}">{v}</parameter>\n' for k, v in values)
        return f'<minimax:tool_call>\n<invoke name="{name}">\n{inner}</invoke>\n</minimax:tool_call>'
    marker, end = ("seed:", "") if family == "seed" else ("", "\n")
    inner = "".join(f"<parameter={k}>{end}{v}{end}</parameter>\n" for k, v in values)
    return f"<{marker}tool_call>\n<function={name}>\n{inner}</function>\n</{marker}tool_call>"


def in_other_forms(name, arguments):
    """A call in all forms in which a reader may look for it, among text and as a whole reply."""
    json_call = f'{{"name": "{name}", "arguments": {arguments}}}'
    values = "".join(f"<parameter={k}>{in_tags(v)}</parameter>" for k, v in json.loads(arguments).items())
    forms = [f"<tool_call>{json_call}</tool_call>", f"<tool_calls>[{json_call}]</tool_calls>", f"<function={name}>{values}</function>",
             f"<function={name}>{arguments}</function>", f"<tool_call><function={name}>{values}</function></tool_call>",
             f"<|python_tag|>{json_call}", f">>>{name}\n{arguments}", f">>> {name}\n{arguments}", f"<think>x</think>{json_call}",
             f"[TOOL_CALLS]{name}[ARGS]{arguments}", f"[TOOL_CALLS][{json_call}]", written("gemma", [(name, arguments)])]
    return forms + [f"{begin}{form}" for form in forms for begin in ("I add.\n", "all\n", "all\nI add.\n")]


def literal(value, quote):
    return f"{quote}{value}{quote}" if isinstance(value, str) else str(value)


class Vocabulary:
    """Every byte is a token; the markers are tokens of their own, which are special or not there at all."""

    def __init__(self, special):
        self.names = MARKERS if special else []
        self.tokens = [b"<unk>", b"<s>", b"</s>"] + [bytes([i]) for i in range(256)] + [m.encode() for m in self.names]
        self.bos_token_id, self.eos_token_id = 1, 2
        self.special_token_ids = [0, 1, 2] + list(range(259, len(self.tokens)))

    def __call__(self, text):
        return [3 + b for b in (text if isinstance(text, bytes) else text.encode())]

    def encode(self, text):
        ids = []
        while text:
            marker = next((i for i, m in enumerate(self.names) if text.startswith(m)), None)
            ids += self(text[0]) if marker is None else [259 + marker]
            text = text[1 if marker is None else len(self.names[marker]) :]
        return ids

    def decode(self, ids):
        return b"".join(self.tokens[i] for i in ids).decode(errors="replace")

    def write(self, path):
        kinds = [2, 3, 3] + [6] * 256 + [3] * len(self.names)
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tokenizer_model("llama")
        writer.add_token_list(["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + self.names)
        writer.add_token_scores([0.0] * len(self.tokens))
        writer.add_token_types(kinds)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()


class Replies:
    """Grammars and their words, with markers that are special tokens or text."""

    def __init__(self, bin_dir, path, special):
        self.vocabulary = Vocabulary(special)
        self.vocabulary.write(path)
        self.tokenizer = LLTokenizer(TokenizerWrapper(self.vocabulary))
        self.program = [bin_dir / "reply_dump", path]

    def dump(self, lines):
        done = subprocess.run(self.program, input="".join(json.dumps(x) + "\n" for x in lines), capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def matcher(self, family, **flags):
        grammar = self.dump([{"template": TEMPLATES[family], "tools": TOOLS, **flags}])[0]
        matcher = LLMatcher(self.tokenizer, grammar)
        assert not matcher.is_error(), f"{matcher.get_error()}\n{grammar}"
        assert "A sum" not in grammar and "A number" not in grammar  # which only describe
        return matcher

    def accepts(self, matcher, text, spelled=False):
        """Whether the text is a whole word of the grammar. spelled: its markers are bytes like others."""
        ids = self.vocabulary(text) if spelled else self.vocabulary.encode(text)
        matcher.reset()
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    def split(self, family, texts, **flags):
        return self.dump([{"template": TEMPLATES[family], "tools": TOOLS, "text": text, **flags} for text in texts])


@pytest.fixture(scope="module", params=[True, False], ids=["special", "text"])
def replies(request, bin_dir, tmp_path_factory):
    return Replies(bin_dir, tmp_path_factory.mktemp("vocabulary") / "model.gguf", request.param)


@pytest.mark.parametrize("family", TEMPLATES)
def test_required_calls(replies, family):
    several, one = (replies.matcher(family, required=True, parallel=parallel) for parallel in (True, False))
    for call in CALLS:
        assert replies.accepts(one, written(family, [call])), call
    assert replies.accepts(several, written(family, CALLS)) == (family != "harmony")  # which writes one call in a reply
    assert not replies.accepts(one, written(family, CALLS))
    for call in WRONG:
        assert not replies.accepts(several, written(family, [call])), call
    for text in ("", "I add.", written(family, CALLS)[:-1], written(family, CALLS) + " Done."):
        assert not replies.accepts(several, text), text


@pytest.mark.parametrize("family", TEMPLATES)
def test_optional_calls(replies, family):
    several = replies.matcher(family, parallel=True)
    content = "all\n" if family == "recipient" else ""
    calls = CALLS[:1] if family == "harmony" else CALLS
    assert replies.accepts(several, written(family, calls))
    for text in ("", "I add.", "a { b\n"):
        assert replies.accepts(several, content + text), text
    if family == "recipient":
        assert replies.accepts(several, "all\nI add.\n>>>" + written(family, CALLS))
        assert replies.accepts(several, "all\n>>> 1 + 2\n3")
    elif family not in ("llama3", "llama3_thinks", "pythonic"):
        assert replies.accepts(several, "I add.\n" + written(family, calls))
    if family in ("hermes", "mistral", "gemma"):
        assert replies.accepts(several, written(family, CALLS) + "\nDone.")
    for call in WRONG:
        assert not replies.accepts(several, written(family, [call])), call


@pytest.mark.parametrize("family", TEMPLATES)
def test_no_other_form_begins_a_call(replies, family):
    """A wrong call is refused or is text, however it is written, also if its markers are spelled out."""
    for parallel in (True, False):
        matcher = replies.matcher(family, parallel=parallel)
        texts = [text for call in WRONG for text in in_other_forms(*call)]
        texts = [t for t in texts if replies.accepts(matcher, t) or replies.accepts(matcher, t, spelled=True)]
        assert len(texts) > len(WRONG)
        for text, parts in zip(texts, replies.split(family, texts, constrained=True)):
            assert parts["calls"] == [], text


def test_reasoning_comes_first(replies):
    call = written("hermes", CALLS[:1])
    may_think = replies.matcher("hermes", required=True, reasons=True)
    assert replies.accepts(may_think, call)
    assert replies.accepts(may_think, "<think>\nhm\n</think>\n\n" + call)
    assert not replies.accepts(may_think, "<think>\nhm\n" + call)
    thinks = replies.matcher("hermes", required=True, reasons=True, in_reasoning=True)
    assert replies.accepts(thinks, "hm\n</think>\n\n" + call)
    assert not replies.accepts(thinks, call)


def test_reasoning_of_harmony_is_in_a_channel(replies):
    begin, end, call = "<|channel|>analysis<|message|>", "<|end|><|start|>assistant", written("harmony", CALLS[:1])
    required = replies.matcher("harmony", required=True, reasons=True)
    assert replies.accepts(required, call)
    assert replies.accepts(required, begin + "hm" + end + call)
    assert not replies.accepts(required, begin + "hm" + call)
    assert not replies.accepts(required, begin + "hm" + end + "<|channel|>final<|message|>yes")
    optional = replies.matcher("harmony", reasons=True)
    for text in ("<|channel|>final<|message|>yes", "<|channel|>commentary<|message|>I add." + end + call, begin + "more" + end + call):
        assert replies.accepts(optional, begin + "hm" + end + text), text
    answer = replies.matcher("harmony", tools=None, reasons=True, answer='{"type": "integer"}')
    assert replies.accepts(answer, begin + "hm" + end + "<|channel|>final<|message|>12")
    assert not replies.accepts(answer, begin + "hm" + end + "<|channel|>final<|message|>x")


def test_values_in_tags_follow_their_schemas(replies):
    properties = {"count": {"$ref": "#/$defs/Count"}, "list": {"type": "array", "items": {"type": "boolean"}}, "mode": {"enum": ["on", 5]},
                  "any": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}  # fmt: skip
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": properties, "$defs": {"Count": {"type": "integer"}}}}}
    for family in TAGGED:
        matcher = replies.matcher(family, tools=[tool], required=True)
        for key, value in [("count", 3), ("list", [True, False]), ("mode", "on"), ("mode", 5), ("any", "x y\nz"), ("any", "true")]:
            text = tagged(family, "f", {key: value})
            assert replies.accepts(matcher, text), text
            assert replies.split(family, [text], tools=[tool], constrained=True)[0]["calls"] == [["f", json.dumps({key: value})]]
        for key, value in [("count", 3.5), ("count", "x"), ("list", [1]), ("mode", "off"), ("other", "x")]:
            assert not replies.accepts(matcher, tagged(family, "f", {key: value})), (family, key, value)


def test_a_schema_for_what_is_no_call(replies):
    matcher = replies.matcher("hermes", parallel=True, answer='{"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}')
    assert replies.accepts(matcher, '{"x": 1}')
    assert replies.accepts(matcher, written("hermes", CALLS))
    assert not replies.accepts(matcher, "I add.")
    thinks = replies.matcher("hermes", tools=None, reasons=True, in_reasoning=True, answer='{"type": "integer"}')
    assert replies.accepts(thinks, "hm </think>\n\n12")
    assert not replies.accepts(thinks, "12")


@pytest.mark.parametrize("kind, answer, right, wrong", [
    ("regex", r"a/b\/c\\/[/x]+|é", [r"a/b/c\\/x/".replace("\\\\", "\\"), "é"], ["a/b/c/x", ""]),
    ("regex", "(|yes|no)", ["", "yes", "no"], ["maybe", "yesno"]),
    ("lark", 'start: thought TEXT // }\nthought: "yes" | "{"\nTEXT: /[0-9]{2}/', ["yes12", "{12"], ["12", "yes1", "yes"]),
    ("lark", 'start: "(" start ")" | A\n%ignore / /\nA: "a"', ["((a))", "( a)"], ["(a"]),
])
def test_other_grammars_hold_behind_reasoning(replies, kind, answer, right, wrong):
    thinks, may_think = (replies.matcher("hermes", tools=None, reasons=True, in_reasoning=begun, answer=answer, kind=kind) for begun in (True, False))
    for text in right:
        assert replies.accepts(thinks, "hm\n</think>\n\n" + text), text
        assert replies.accepts(may_think, "<think>hm</think>" + text), text
        assert replies.accepts(may_think, text), text
    for text in wrong:
        assert not replies.accepts(thinks, "hm</think>" + text), text
        assert not replies.accepts(may_think, text), text
    assert not replies.accepts(thinks, right[-1])


def check(name, arguments, family):
    """That a call is one of the tools', and follows its schema."""
    values = json.loads(arguments)
    assert name in ("add", "now")
    if name == "now":
        assert values == {}
        return
    assert type(values["a"]) is int and values["unit"] in ("m", "km") and set(values) <= {"a", "unit", "description"}
    assert len(values.get("description", "")) <= 5 or family in ["gemma", "gemma4", "pythonic", "lfm2", *TAGGED]  # which know no lengths


def walk(replies, matcher, rng, begin=""):
    """A random word of the grammar, of printable bytes that may follow, more often than not such that end something; None: it got
    too long."""
    matcher.reset()
    ids = replies.vocabulary.encode(begin)
    assert matcher.try_consume_tokens(ids) == len(ids)
    eager = set(replies.vocabulary('"},]\n<')) | set(range(259, len(replies.vocabulary.tokens)))
    while len(ids) < 600:
        mask = matcher.compute_bitmask()
        allowed = [i for i in range(len(replies.vocabulary.tokens)) if mask[i // 8] >> i % 8 & 1]
        if 2 in allowed and (len(allowed) == 1 or rng.random() < 0.3):
            return replies.vocabulary.decode(ids)
        allowed = [i for i in allowed if i == 3 + 10 or 3 + 32 <= i < 3 + 127 or i >= 259] or allowed  # of which markers consist
        quick = [i for i in allowed if i in eager]
        ids.append(rng.choice(quick if quick and rng.random() < 0.5 else allowed))
        assert matcher.consume_token(ids[-1])
    return None


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("parallel", [True, False])
def test_every_word_is_split_into_calls(replies, family, parallel):
    rng = random.Random(SEED)
    matcher = replies.matcher(family, required=True, parallel=parallel)
    words = [walk(replies, matcher, rng) for _ in range(WALKS)]
    words = [w for w in words if w is not None]
    assert len(words) > WALKS // 4
    for word, parts in zip(words, replies.split(family, words, constrained=True)):
        assert parts["content"] == "" and parts["reasoning"] == "", word
        assert len(parts["calls"]) == 1 or (parallel and family != "harmony" and len(parts["calls"]) > 1), word
        for name, arguments in parts["calls"]:
            check(name, arguments, family)


@pytest.mark.parametrize("family", ["hermes", "mistral", "mistral_array", "gemma"])
def test_a_marker_among_text_begins_a_call(replies, family):
    rng = random.Random(SEED)
    marker = {"hermes": "<tool_call>", "gemma": "<start_function_call>"}.get(family, "[TOOL_CALLS]")
    matcher = replies.matcher(family, parallel=False)
    words = [walk(replies, matcher, rng, "I add.\n" + marker) for _ in range(WALKS // 3)]
    words = [w for w in words if w is not None]
    assert len(words) > WALKS // 12
    for word, parts in zip(words, replies.split(family, words, constrained=True)):
        assert parts["content"].startswith("I add.") and len(parts["calls"]) >= 1, word
        check(*parts["calls"][0], family)
