"""/v1/responses with a real model, OpenAI's Python client, and requests as Codex sends them."""
import json
import urllib.request

import openai
import pydantic
import pytest

import agent_bodies
from test_server import QUESTION, server, serving  # noqa: F401, the fixture
from waiting import LIMIT_S

GREEDY = {"temperature": 0, "max_output_tokens": 24}
LONG = {"extra_body": {"ignore_eos": True}}  # as long as it may be
STATUS = {"stop": "completed", "length": "incomplete"}  # by a chat's finish_reason
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather of a city.", "strict": False,
           "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"],
                          "additionalProperties": False}}


def respond(server, input=QUESTION, **more):
    return server.client.responses.create(model=server.model, input=input, **{**GREEDY, **more})


def test_an_answer_equals_the_chats(server):
    chat = server.chat(temperature=0, max_tokens=24)
    response = respond(server)
    assert response.object == "response" and response.id.startswith("resp_")
    assert response.status == STATUS[chat.choices[0].finish_reason]
    assert (response.incomplete_details is None) == (response.status == "completed")
    assert response.output_text == chat.choices[0].message.content != ""
    assert [item.type for item in response.output] == ["message"]
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens) == (chat.usage.prompt_tokens, chat.usage.completion_tokens)
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens and usage.output_tokens_details.reasoning_tokens == 0
    assert response.temperature == 0 and response.max_output_tokens == 24 and response.tool_choice == "auto"
    assert response.error is None


def test_instructions_and_parts(server):
    system = {"role": "system", "content": "Answer with one word."}
    chat = server.chat([system, *QUESTION], temperature=0, max_tokens=24)
    as_item = respond(server, [system, {"type": "message", "role": "user",
                                        "content": [{"type": "input_text", "text": QUESTION[0]["content"]}]}])
    response = respond(server, QUESTION[0]["content"], instructions=system["content"], metadata={"a": "b"}, user="someone")
    assert response.output_text == as_item.output_text == chat.choices[0].message.content
    assert response.instructions == system["content"] and response.metadata == {"a": "b"} and response.user == "someone"


def test_a_cut_answer_is_incomplete(server):
    response = respond(server, max_output_tokens=3, **LONG)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 3 and response.output[0].status == "incomplete"


def test_a_stream_equals_the_whole_answer(server):
    whole = respond(server, **LONG)
    events = list(respond(server, stream=True, **LONG))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert kinds == (["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"] +
                     ["response.output_text.delta"] * len(deltas) +
                     ["response.output_text.done", "response.content_part.done", "response.output_item.done"] +
                     ["response.incomplete"])
    assert "".join(event.delta for event in deltas) == whole.output_text and len(deltas) > 1
    assert events[0].response.status == "in_progress" and events[-1].response.output_text == whole.output_text
    assert len({event.response.id for event in (events[0], events[1], events[-1])}) == 1
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens


def test_the_clients_stream_helper(server):
    """The answer ends at a stop string, so that it is whole."""
    end = {"extra_body": {"ignore_eos": True, "stop": [respond(server, **LONG).output_text[8:12]]}}
    whole = respond(server, **end)
    with server.client.responses.stream(model=server.model, input=QUESTION, **GREEDY, **end) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text == whole.output_text and final.status == whole.status == "completed"


def test_a_cut_stream_is_incomplete(server):
    events = list(respond(server, max_output_tokens=3, stream=True, **LONG))
    assert events[-1].type == "response.incomplete" and events[-1].response.incomplete_details.reason == "max_output_tokens"


def test_several_turns_are_computed_once(server):
    first = respond(server, "Tell me about the lighthouse of Alexandria, please, and take your time.")
    turns = [{"role": "user", "content": "Tell me about the lighthouse of Alexandria, please, and take your time."},
             *[item.model_dump(exclude_none=True) for item in first.output], {"role": "user", "content": "And of Pharos?"}]
    second = respond(server, turns, **LONG)
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 2
    assert second.output_text


def test_what_is_not_kept(server):
    response = respond(server, store=True)
    assert response.store is False
    with pytest.raises(openai.BadRequestError) as refusal:
        respond(server, previous_response_id=response.id)
    assert refusal.value.param == "previous_response_id" and "whole conversation" in refusal.value.message
    with pytest.raises(openai.NotFoundError):
        server.client.responses.retrieve(response.id)


@pytest.mark.parametrize("param, fields", [
    ("input[0]", {"input": [{"type": "item_reference", "id": "msg_1"}]}),  # by the API's own rules
    ("tools[0].name", {"tools": [{"type": "function", "name": "a b"}]}),  # by those of a chat, whose field is tools[0].function.name
    ("top_p", {"top_p": 9}),  # by the engine's
])
def test_errors_name_the_field(server, param, fields):
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as refusal:
            respond(server, **{"input": "x", "stream": stream, **fields})
        assert refusal.value.param == param and f"'{param}'" in refusal.value.message
        assert refusal.value.type == "invalid_request_error"


def test_a_prompt_that_is_too_long(server):
    with pytest.raises(openai.BadRequestError) as refusal:
        respond(server, "word " * 20000)
    assert refusal.value.code == "context_length_exceeded"


def test_a_tool_loop(server):
    """A call that the assistant is said to have made, and its output; another tool that this server does not know."""
    turns = [*QUESTION, {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"},
             {"type": "function_call_output", "call_id": "call_1", "output": "Rain."}]
    response = respond(server, turns, tools=[WEATHER, {"type": "web_search"}], parallel_tool_calls=False, **LONG)
    assert response.status == "incomplete" and response.output
    assert [tool.name for tool in response.tools] == ["get_weather"] and response.parallel_tool_calls is False
    more = respond(server, [*turns, *[item.model_dump(exclude_none=True) for item in response.output],
                            {"role": "user", "content": "Thanks."}], tools=[WEATHER])
    assert more.usage.input_tokens_details.cached_tokens >= response.usage.input_tokens - 2


class Color(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    is_primary: bool


@pytest.fixture(scope="module")
def constrained(chunkllama_bin, model_path, grammar_library):
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library) as running:
        yield running


def test_a_tool_that_is_called(constrained):
    """The call and its output go back, and the answer's prefix is in the cache."""
    tools = {"tools": [{**WEATHER, "strict": True}], "max_output_tokens": 1000}
    choice = {"type": "function", "name": "get_weather"}
    first = respond(constrained, "The weather of Oslo?", tool_choice=choice, **tools)
    call = first.output[0]
    assert first.status == "completed" and [item.type for item in first.output] == ["function_call"]
    assert call.name == "get_weather" and set(json.loads(call.arguments)) == {"city"} and first.tool_choice.name == "get_weather"
    with constrained.client.responses.stream(model="any", input="The weather of Oslo?", tool_choice=choice, temperature=0,
                                             **tools) as stream:
        deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output[0].arguments == call.arguments and len(deltas) > 1
    assert final.output[0].parsed_arguments == json.loads(call.arguments)
    turns = [{"role": "user", "content": "The weather of Oslo?"}, call.model_dump(exclude_none=True),
             {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}]
    second = respond(constrained, turns, **{**tools, "max_output_tokens": 24})
    assert second.status in STATUS.values() and second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens - 2


def test_a_schema_that_is_wrong(constrained):
    """The engine finds out, and the message names the field of this API."""
    wrong = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "thing"}}}
    with pytest.raises(openai.BadRequestError, match="'text.format' cannot be compiled: Invalid type: thing"):
        constrained.client.responses.create(model="any", input="Hi.", text=wrong)


def test_the_clients_parse_helper(constrained):
    answer = constrained.client.responses.parse(model="any", input="Describe the color red.", text_format=Color, temperature=0,
                                                max_output_tokens=1000)
    assert isinstance(answer.output_parsed, Color) and answer.text.format.type == "json_schema"
    with constrained.client.responses.stream(model="any", input="Describe the color red.", text_format=Color, temperature=0,
                                             max_output_tokens=1000) as stream:
        stream.until_done()
        assert stream.get_final_response().output_parsed == answer.output_parsed


def test_reasoning(chunkllama_bin, model_path, tmp_path):
    """With a template that begins the reply with thinking, all that the model writes is reasoning: it may not write "</"."""
    brief = {"max_output_tokens": 12, "extra_body": {"ignore_eos": True, "logit_bias": {"9617": -100}}}
    with serving(chunkllama_bin, model_path, "--chat-template", agent_bodies.thinking_template(tmp_path)) as running:
        whole = respond(running, **brief)
        assert [item.type for item in whole.output] == ["reasoning"] and whole.output[0].summary == []
        text = whole.output[0].content[0].text
        assert text and whole.usage.output_tokens_details.reasoning_tokens == 12
        events = list(respond(running, stream=True, **brief))
        assert "".join(event.delta for event in events if event.type == "response.reasoning_text.delta") == text
        summary = {"reasoning": {"summary": "auto"}, **brief}
        events = list(respond(running, stream=True, **summary))
        assert "".join(event.delta for event in events if event.type == "response.reasoning_summary_text.delta") == text
        again = respond(running, **summary)
        assert again.output[0].summary[0].text == text and not again.output[0].content
        off = respond(running, reasoning={"effort": "none"}, **brief)
        assert [item.type for item in off.output] == ["message"] and off.usage.output_tokens_details.reasoning_tokens == 0
        for response in (whole, again):  # both forms come back as reasoning
            turns = [*QUESTION, *[item.model_dump(exclude_none=True) for item in response.output],
                     {"role": "assistant", "content": "Red."}, {"role": "user", "content": "And?"}]
            more = respond(running, turns, max_output_tokens=4)
            assert more.usage.input_tokens_details.cached_tokens >= whole.usage.input_tokens


def codex_turn(server, body):
    """The events of a turn, read as Codex reads them: by the type in the data."""
    request = urllib.request.Request(server.url + "/v1/responses", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Accept": "text/event-stream", "session_id": "0198f0a5",
                                      "originator": "codex_cli_rs"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        assert reply.headers["Content-Type"].startswith("text/event-stream")
        text = reply.read().decode()
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    assert [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")] == [e["type"] for e in events]
    return events


def test_codex(server):
    few = {"max_output_tokens": 32, "temperature": 0, "ignore_eos": True}
    first = codex_turn(server, {**agent_bodies.codex(), **few})
    assert first[0]["type"] == "response.created" and first[-1]["type"] in ("response.completed", "response.incomplete")
    done = [event["item"] for event in first if event["type"] == "response.output_item.done"]
    assert done == first[-1]["response"]["output"] != []
    # the next turn repeats all of the first one, and its own items
    second = codex_turn(server, {**agent_bodies.codex(*done, *agent_bodies.CODEX_TURNS), **few})
    usage = second[-1]["response"]["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] >= first[-1]["response"]["usage"]["input_tokens"] - 2
    assert second[-1]["response"]["output"]
