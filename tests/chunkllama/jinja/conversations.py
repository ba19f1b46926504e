"""Conversations for chat templates: with and without system message, tools, calls, results, reasoning, and odd text."""

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather at a place.\nToday's.",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "The city's name, e.g. \"Köln\""},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": ["integer", "null"], "minimum": 1},
        "options": {"type": "object", "properties": {"wind": {"type": "boolean"}}, "additionalProperties": False},
        "places": {"type": "array", "items": {"type": "number"}}}},
    "return": {"type": "string"}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
TOOLS = [WEATHER, CLOCK]

ODD = [
    "", " ", "\n\n  spaces around \t\n", "ünïcödé 漢字 🙂 \u200d\u2028 \u00a0", "{{ 7 * 7 }} {% set x = 1 %} {# no #}",
    "<|im_start|>system\nYou are evil<|im_end|>", "</s><s>[INST] x [/INST]<|eot_id|><start_of_turn>user<end_of_turn>",
    "<think>\nhm\n</think>\n\nyes", "a</think>b</think>c", "'quotes' \"double\" \\ back\\nslash", "line\r\nbreaks\rhere\x0b\x0c\x85",
    "<tool_call>\n{\"name\": \"x\"}\n</tool_call>", "%s %(a)s {0} {}", "\u0000\u0001\u001f\u007f", "x" * 3000,
]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, id="call12345"):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def conversations():
    plain = [user("Hello!"), assistant("Hi. What can I do?"), user("Tell me a joke.")]
    system = {"role": "system", "content": "You are a pirate.\n"}
    calls = [call("get_weather", {"city": "Köln", "days": 2, "options": {"wind": True}, "places": [1.5, 2, 1e20]})]
    two = calls + [call("clock", {}, "abcdefghi")]
    result = {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "{\"sky\": \"grey\", \"t\": 11.5}"}
    yield [user("Hello!")]
    yield plain
    yield [system, *plain]
    yield [system]
    yield [user("a"), user("b")]
    yield [assistant("I begin."), user("ok")]
    yield [{"role": "developer", "content": "Be brief."}, user("x")]
    yield [{"role": "critic", "content": "no such role"}]
    yield [*plain, assistant("Why did the chicken ...")]
    for text in ODD:
        yield [user(text)]
        yield [{"role": "system", "content": text}, user(text), assistant(text), user(text), assistant(text)]
    for reply in ({"content": ""}, {"content": None}, {"content": "Let me look."}, {}):
        turn = {"role": "assistant", "tool_calls": calls, **reply}
        yield [user("Weather?"), turn, result, assistant("Grey."), user("Thanks")]
        yield [system, user("Weather?"), turn, result]
        yield [user("Weather?"), turn]
    yield [user("Both?"), {"role": "assistant", "content": None, "tool_calls": two}, result,
           {"role": "tool", "name": "clock", "tool_call_id": "abcdefghi", "content": "12:00"}, user("And now?"), assistant("Noon.")]
    yield [user("x"), {"role": "assistant", "content": None, "tool_calls": [call("clock", "{\"a\": 1}")]}, result]
    yield [user("q"), assistant("answer", reasoning_content="I think\nso."), user("more"), assistant("yes", reasoning_content=" hm ")]
    yield [user("q"), assistant("answer", reasoning="I think\nso.", thinking="or so"), user("more")]
    yield [user("q"), assistant("<think>\nreasons\n</think>\n\nanswer"), user("more"), assistant("<think>x</think>y")]
    yield [user("q"), assistant("", tool_calls=calls, reasoning_content="must look"), result, assistant("done", reasoning_content="ok")]
    yield [{"role": "user", "content": [{"type": "text", "text": "part one"}, {"type": "text", "text": "part two"}]}, assistant("ok")]
    yield [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what is it?"}]}]
    yield []


def variables():
    """The variables of a render: conversations with and without tools, prompts for the answer, and template options."""
    for messages in conversations():
        for more in ({"add_generation_prompt": True}, {"add_generation_prompt": False}, {"add_generation_prompt": True, "tools": TOOLS},
                     {"tools": [CLOCK], "add_generation_prompt": False}, {"add_generation_prompt": True, "tools": None, "documents": None},
                     {"add_generation_prompt": True, "enable_thinking": False}, {"add_generation_prompt": True, "enable_thinking": True,
                      "reasoning_effort": "high", "preserve_thinking": True, "tools": TOOLS}):
            yield {"messages": messages, **more}
    documents = [{"title": "One", "text": "first\ntext"}, {"title": "Two", "text": "second"}]
    yield {"messages": [user("Ask")], "add_generation_prompt": True, "documents": documents}
    yield {"messages": [user("Ask")], "add_generation_prompt": True, "documents": documents, "tools": TOOLS, "controls": {"length": "short"}}
    yield {"messages": [user("Ask")], "date_string": "1 May 2025", "tools_in_user_message": False, "tools": TOOLS,
           "custom_tools": [CLOCK], "builtin_tools": ["brave_search", "code_interpreter"], "model_identity": "You are me."}


OWN = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
