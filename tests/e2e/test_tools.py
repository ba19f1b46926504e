"""Tools and reasoning with a real model and OpenAI's Python client: calls that are required, and replies whose text a grammar fixes."""
import concurrent.futures
import json

import openai
import pydantic
import pytest
from test_server import serving

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time", "description": "Get the time of day"}}
TOOLS = [WEATHER, CLOCK]
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "unit": "C"}}\n</tool_call>'

# A template that knows reasoning, begins it if it should think, and takes it out of earlier replies.
THINKING = """\
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content.split('</think>')[-1] }}<|im_end|>
{% endfor %}<|im_start|>assistant
{% if think %}<think>
{% endif %}"""


@pytest.fixture(scope="module")
def server(chunkllama_bin, model_path, grammar_library):
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library) as running:
        yield running


def check(call):
    """That a call is one of the tools', with arguments that follow its schema."""
    arguments = json.loads(call.function.arguments)
    assert call.type == "function" and call.id.startswith("call_")
    if call.function.name == "get_time":
        assert arguments == {}
    else:
        assert call.function.name == "get_weather" and set(arguments) == {"city", "unit"} and arguments["unit"] in "CF"


def test_required_calls(server):
    """A reply of several calls may be cut in the last one."""
    asked = dict(tools=TOOLS, tool_choice="required", n=4, temperature=1, seed=5)
    answer = server.chat(QUESTION, max_tokens=300, **asked).choices
    for choice in answer:
        assert choice.message.tool_calls and choice.message.content is None
        for call in choice.message.tool_calls[:None if choice.finish_reason == "tool_calls" else -1]:
            check(call)
    for choice in server.chat(QUESTION, max_tokens=1000, parallel_tool_calls=False, **asked).choices:
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        [call] = choice.message.tool_calls
        check(call)
    assert len({call.id for choice in answer for call in choice.message.tool_calls}) == sum(len(c.message.tool_calls) for c in answer)


def test_a_named_function_is_called_once(server):
    for seed in range(4):
        choice = server.chat(
            QUESTION, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "get_time"}}, seed=seed, temperature=1
        ).choices[0]
        assert choice.finish_reason == "tool_calls"
        [call] = choice.message.tool_calls
        assert call.function.name == "get_time" and json.loads(call.function.arguments) == {}


def test_streams_have_the_same_calls(server):
    asked = dict(tools=TOOLS, tool_choice="required", parallel_tool_calls=False, temperature=0)
    [call] = server.chat(QUESTION, **asked).choices[0].message.tool_calls
    chunks = [chunk.choices[0] for chunk in server.chat(QUESTION, stream=True, **asked)]
    first = chunks[0].delta
    assert first.role == "assistant" and first.content is None
    assert [(c.index, c.type, c.function.name, c.function.arguments) for c in first.tool_calls] == [
        (0, "function", call.function.name, "")
    ]
    more = [c for chunk in chunks[1:] for c in chunk.delta.tool_calls or []]
    assert len(more) > 1 and all(c.id is None and c.function.name is None for c in more)
    assert "".join(c.function.arguments for c in more) == call.function.arguments
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["tool_calls"]


def test_calls_are_the_same_alone_and_together(server):
    def ask(seed):
        choice = server.chat(QUESTION, tools=TOOLS, tool_choice="required", seed=seed, temperature=1, max_tokens=60, logprobs=True).choices[0]
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
        return calls, choice.message.content, [token.logprob for token in choice.logprobs.content]

    alone = [ask(seed) for seed in range(6)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, range(6))) == alone
    assert len({str(answer) for answer in alone}) > 1


def test_the_clients_stream_helper(server):
    with server.client.chat.completions.stream(
        model=server.model, messages=QUESTION, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, temperature=0
    ) as stream:
        events = [event.type for event in stream]
        [call] = stream.get_final_completion().choices[0].message.tool_calls
    assert "tool_calls.function.arguments.delta" in events and "tool_calls.function.arguments.done" in events
    check(call)


class GetWeather(pydantic.BaseModel):
    """Get the current weather of a city"""

    city: str
    days: int


@pytest.mark.whole_model
def test_parsed_arguments(server):
    answer = server.client.chat.completions.parse(
        model=server.model, messages=QUESTION, tools=[openai.pydantic_function_tool(GetWeather)], tool_choice="required", temperature=0,
        parallel_tool_calls=False,
    )  # fmt: skip
    [call] = answer.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, GetWeather)


def test_calls_among_text(server):
    """Without constraint: a reply of a fixed text."""
    asked = dict(tools=TOOLS, extra_body={"structured_outputs": {"choice": ["I look.\n" + CALL]}})
    choice = server.chat(QUESTION, **asked).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("I look.", "tool_calls")
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris", "unit": "C"})

    asked["tool_choice"] = "none"
    choice = server.chat(QUESTION, **asked).choices[0]
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("I look.\n" + CALL, None, "stop")


def test_a_conversation_with_results(server):
    first = server.chat(QUESTION, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, temperature=0).choices[0].message
    [call] = first.tool_calls
    messages = QUESTION + [first, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    answer = server.chat(messages, tools=TOOLS, extra_body={"structured_outputs": {"choice": ["Sunny."]}})
    assert answer.choices[0].message.content == "Sunny."
    assert answer.usage.prompt_tokens_details.cached_tokens > 100  # the tools and the question


def test_strict_tools_and_a_schema(server):
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {
        "answer": {"type": "string", "maxLength": 10}}, "required": ["answer"], "additionalProperties": False}}}  # fmt: skip
    asked = dict(response_format=schema, parallel_tool_calls=False, temperature=0, max_tokens=1000)
    choice = server.chat(QUESTION, tools=TOOLS, **asked).choices[0]
    if choice.message.tool_calls:
        check(choice.message.tool_calls[0])
    else:
        assert set(json.loads(choice.message.content)) == {"answer"}
    strict = [{**CLOCK, "function": {**CLOCK["function"], "strict": True}}]
    answer = server.chat(QUESTION, tools=strict, max_tokens=8, temperature=0)
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls") and answer.usage.completion_tokens > 0


def test_a_schema_that_cannot_be_compiled_is_refused(server):
    schema = {"type": "object", "properties": {"a": {"not": {"pattern": "a"}}}}
    with pytest.raises(openai.BadRequestError) as refused:
        server.chat(QUESTION, tools=[{"type": "function", "function": {**WEATHER["function"], "strict": True, "parameters": schema}}])
    assert refused.value.param == "tools" and "'not' at #/a cannot be enforced by a grammar" in refused.value.message
    server.wait_until_idle()


def test_without_the_library(chunkllama_bin, model_path, monkeypatch):
    monkeypatch.delenv("CHUNKLLAMA_GRAMMAR_LIBRARY", raising=False)
    with serving(chunkllama_bin, model_path) as server:
        with pytest.raises(openai.BadRequestError, match="--grammar-library") as refused:
            server.chat(QUESTION, tools=TOOLS, tool_choice="required")
        assert refused.value.param == "tool_choice"
        assert server.chat(QUESTION, tools=TOOLS, max_tokens=4).choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_reasoning(chunkllama_bin, model_path, grammar_library, tmp_path):
    template = tmp_path / "thinking.jinja"
    template.write_text(THINKING)
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library, "--chat-template", str(template)) as server:
        fields = {"structured_outputs": {"choice": ["Yes."]}, "thinking_token_budget": 5, "chat_template_kwargs": {"think": True}}

        def ask(**more):
            return server.chat(QUESTION, temperature=0, extra_body={**fields, **more})

        answer = ask()
        message, reasoning = answer.choices[0].message, answer.choices[0].message.reasoning_content
        assert reasoning and message.reasoning == reasoning and message.content == "Yes."
        assert 2 <= answer.usage.completion_tokens_details.reasoning_tokens < answer.usage.completion_tokens
        message = ask(include_reasoning=False).choices[0].message
        assert (getattr(message, "reasoning_content", None), message.content) == (None, "Yes.")
        message = ask(separate_reasoning=False).choices[0].message
        assert reasoning in message.content and "</think>" in message.content and message.content.endswith("Yes.")
        deltas = [chunk.choices[0].delta for chunk in server.chat(QUESTION, temperature=0, stream=True, extra_body=fields)]
        assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == reasoning
        assert "".join(d.content or "" for d in deltas) == "Yes."

        schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [12]}}}
        message = server.chat(
            QUESTION, response_format=schema, temperature=0, max_tokens=400, extra_body={"chat_template_kwargs": {"think": True}}
        ).choices[0].message
        assert message.content in ("12", "") and (message.content or message.reasoning_content)  # it may think to the end


def test_a_batch(chunkllama, grammar_library):
    asked = {"messages": QUESTION, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    lines = [{"id": 1, **asked}, {"custom_id": "a", "url": "/v1/chat/completions", "body": asked}]
    done = chunkllama("batch", "-i", "-", "--grammar-library", grammar_library, "--temperature", 0,
                      stdin="".join(json.dumps(line) + "\n" for line in lines))
    short, whole = (json.loads(line) for line in done.stdout.splitlines())
    message = whole["response"]["body"]["choices"][0]["message"]
    assert message["content"] is None and short["text"] == ""
    assert short["tool_calls"][0]["function"] == message["tool_calls"][0]["function"]
    assert short["finish_reason"] == "tool_calls"
