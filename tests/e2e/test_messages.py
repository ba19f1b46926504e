"""/v1/messages with a real model, Anthropic's Python client, and requests as Claude Code sends them."""
import json
import urllib.request

import anthropic
import pytest
from waiting import LIMIT_S

import agent_bodies
from test_server import QUESTION, server, serving  # noqa: F401, the fixture

WEATHER = {"name": "get_weather", "description": "The weather of a city.",
           "input_schema": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"],
                            "additionalProperties": False}}


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=LIMIT_S)


def ask(client, messages=QUESTION, extra=None, **more):
    """The newest client has no argument `temperature`."""
    extra_body = {"temperature": 0, **(extra or {})}
    return client.messages.create(model="any", messages=messages, extra_body=extra_body, **{"max_tokens": 24, **more})


def prompt_tokens(message):
    usage = message.usage
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def test_an_answer_equals_the_chats(server, client):
    chat = server.chat(temperature=0, max_tokens=24)
    message = ask(client)
    assert message.type == "message" and message.role == "assistant" and message.model == server.model
    assert [block.type for block in message.content] == ["text"]
    assert message.content[0].text == chat.choices[0].message.content != ""
    assert message.stop_reason == {"stop": "end_turn", "length": "max_tokens"}[chat.choices[0].finish_reason]
    assert message.stop_sequence is None
    assert prompt_tokens(message) == chat.usage.prompt_tokens and message.usage.output_tokens == chat.usage.completion_tokens


def test_system_and_blocks(server, client):
    system = "Answer with one word."
    chat = server.chat([{"role": "system", "content": system}, *QUESTION], temperature=0, max_tokens=24)
    blocks = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
    as_blocks = ask(client, blocks, system=[{"type": "text", "text": system, "cache_control": {"type": "ephemeral", "ttl": "5m"}}])
    assert ask(client, system=system).content[0].text == as_blocks.content[0].text == chat.choices[0].message.content


def test_ends(client):
    end = {"extra": {"logit_bias": {"2": 100}}}  # of the turn
    assert ask(client, max_tokens=100000, **end).stop_reason == "end_turn"  # as agents send it, whatever the context holds
    cut = ask(client, max_tokens=3, extra={"min_tokens": 3})
    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 3
    whole = ask(client).content[0].text
    stop = whole[len(whole) // 2:][:5]
    stopped = ask(client, stop_sequences=["never said", stop])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == stop
    assert stopped.content[0].text == whole[:whole.index(stop)]
    with client.messages.stream(model="any", messages=QUESTION, max_tokens=24, stop_sequences=["never said", stop],
                                extra_body={"temperature": 0}) as stream:
        final = stream.get_final_message()
    assert final.content[0].text == stopped.content[0].text and final.stop_sequence == stop


def test_an_answer_continues_the_assistants_message(server, client):
    begun = [*QUESTION, {"role": "assistant", "content": "Of course! They are"}]
    chat = server.chat(begun, temperature=0, max_tokens=12,
                       extra_body={"continue_final_message": True, "add_generation_prompt": False})
    assert ask(client, begun, max_tokens=12).content[0].text == chat.choices[0].message.content


def test_usage_counts_cached_tokens_apart(client):
    text = [{"role": "user", "content": "The tale of a keeper, a lamp, and the storm that came in from the sea at night."}]
    first, again = ask(client, text), ask(client, text)
    assert again.usage.cache_read_input_tokens >= prompt_tokens(first) - 2
    assert 1 <= again.usage.input_tokens <= 2 and prompt_tokens(again) == prompt_tokens(first)


def test_a_stream_equals_the_whole_answer(client):
    whole = ask(client)
    events = list(ask(client, stream=True))
    kinds = [event.type for event in events]
    n_deltas = kinds.count("content_block_delta")
    assert kinds == (["message_start", "content_block_start"] + ["content_block_delta"] * n_deltas +
                     ["content_block_stop", "message_delta", "message_stop"]) and n_deltas > 0
    assert "".join(event.delta.text for event in events if event.type == "content_block_delta") == whole.content[0].text
    assert events[-2].delta.stop_reason == whole.stop_reason and events[-2].usage.output_tokens == whole.usage.output_tokens
    with client.messages.stream(model="any", messages=QUESTION, max_tokens=24, extra_body={"temperature": 0}) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text and prompt_tokens(final) == prompt_tokens(whole)


def test_tokens_are_counted(client):
    body = {"messages": QUESTION, "system": "Answer with one word.", "tools": [WEATHER]}
    count = client.messages.count_tokens(model="any", **body)
    assert count.input_tokens == prompt_tokens(ask(client, **body))


@pytest.mark.parametrize("name, fields", [
    ("messages[0].content[1]", {"messages": [{"role": "user", "content": [
        {"type": "text", "text": "x"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}]}),
    ("stop_sequences[1]", {"stop_sequences": ["a", ""]}),
])
def test_errors_name_the_field(client, name, fields):
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError) as refusal:
            ask(client, **{"stream": stream, **fields})
        error = refusal.value.body
        assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
        assert f"'{name}'" in error["error"]["message"]


def test_a_prompt_that_is_too_long(client):
    with pytest.raises(anthropic.BadRequestError) as refusal:
        ask(client, [{"role": "user", "content": "word " * 20000}])
    assert refusal.value.body["error"]["message"].startswith("prompt is too long: ")


def test_keys(chunkllama_bin, model_path):
    with serving(chunkllama_bin, model_path, "--api-key", "secret", key="secret") as running:
        for key in ({"api_key": "secret"}, {"auth_token": "secret"}):
            client = anthropic.Anthropic(base_url=running.url, max_retries=0, timeout=LIMIT_S, **key)
            assert ask(client, max_tokens=1).usage.output_tokens == 1
        client = anthropic.Anthropic(base_url=running.url, api_key="wrong", max_retries=0, timeout=LIMIT_S)
        with pytest.raises(anthropic.AuthenticationError) as refusal:
            ask(client, max_tokens=1)
        assert refusal.value.body["error"]["type"] == "authentication_error"


def test_a_tool_loop(client):
    """A call that the assistant is said to have made, and its result."""
    turns = [*QUESTION,
             {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "get_weather",
                                                "input": {"city": "Oslo"}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True,
                                           "content": [{"type": "text", "text": "no network"}]}]}]
    message = ask(client, turns, tools=[WEATHER, {"type": "web_search_20250305", "name": "web_search"}], extra={"min_tokens": 8})
    assert message.content and message.stop_reason in ("end_turn", "max_tokens")
    more = ask(client, [*turns, {"role": "assistant", "content": message.content}, {"role": "user", "content": "Thanks."}],
               tools=[WEATHER])
    assert more.usage.cache_read_input_tokens >= prompt_tokens(message) - 2


def test_a_tool_that_is_called(chunkllama_bin, model_path, grammar_library):
    """The call and its result go back, and the answer's prefix is in the cache."""
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library) as running:
        client = anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0, timeout=LIMIT_S)
        question = [{"role": "user", "content": "The weather of Oslo?"}]
        choice = {"type": "tool", "name": "get_weather"}
        first = ask(client, question, tools=[WEATHER], tool_choice=choice, max_tokens=200)
        call = first.content[0]
        assert first.stop_reason == "tool_use" and [block.type for block in first.content] == ["tool_use"]
        assert first.content[0].id.startswith("toolu_") and first._request_id
        assert call.name == "get_weather" and set(call.input) == {"city"}
        with client.messages.stream(model="any", messages=question, tools=[WEATHER], tool_choice=choice, max_tokens=200,
                                    extra_body={"temperature": 0}) as stream:
            final = stream.get_final_message()
        assert final.content[0].input == call.input and final.stop_reason == "tool_use"
        turns = [*question, {"role": "assistant", "content": first.content},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}]}]
        second = ask(client, turns, tools=[WEATHER], max_tokens=20, extra={"min_tokens": 8})
        assert second.content and second.usage.cache_read_input_tokens >= prompt_tokens(first) - 2
        schema = {"type": "object", "properties": {"color": {"enum": ["red", "green"]}}, "required": ["color"],
                  "additionalProperties": False}
        answer = ask(client, output_config={"format": {"type": "json_schema", "schema": schema}}, max_tokens=100)
        assert json.loads(answer.content[0].text)["color"] in ("red", "green")


def test_thinking(chunkllama_bin, model_path, tmp_path):
    """With a template that begins the reply with thinking, all that the model writes is thinking."""
    with serving(chunkllama_bin, model_path, "--chat-template", agent_bodies.thinking_template(tmp_path)) as running:
        client = anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0, timeout=LIMIT_S)
        whole = ask(client, max_tokens=12)
        assert [block.type for block in whole.content] == ["thinking"] and whole.content[0].thinking
        with client.messages.stream(model="any", messages=QUESTION, max_tokens=12, extra_body={"temperature": 0}) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_message()
        assert final.content[0].thinking == whole.content[0].thinking and final.content[0].signature
        assert "thinking" in events and "signature" in events
        off = ask(client, max_tokens=12, thinking={"type": "disabled"})
        assert [block.type for block in off.content] == ["text"]
        more = ask(client, [*QUESTION, {"role": "assistant", "content": [*whole.content, {"type": "text", "text": "Red."}]},
                            {"role": "user", "content": "And?"}], max_tokens=4)
        assert more.usage.cache_read_input_tokens >= prompt_tokens(whole)


def claude_code_turn(server, body):
    """The message that a stream makes, and its events."""
    request = urllib.request.Request(server.url + "/v1/messages?beta=true", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "anthropic-beta": "interleaved-thinking-2025-05-14",
                                      "x-app": "cli"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        lines = reply.read().decode().splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert [event["type"] for event in events[:2]] == ["message_start", "ping"] and events[-1]["type"] == "message_stop"
    return events


def test_claude_code(server):
    """The header's nonce changes, and yet the second turn finds all of the first one in the cache."""
    first = claude_code_turn(server, agent_bodies.claude_code("fa690"))[-2]["usage"]
    assert first["output_tokens"] > 0
    second = claude_code_turn(server, agent_bodies.claude_code("0aaa9", *agent_bodies.CLAUDE_CODE_TURNS))[-2]["usage"]
    length = first["input_tokens"] + first["cache_read_input_tokens"]
    assert second["cache_read_input_tokens"] >= length - 8


# ---- cache_control ----

CACHED = {"type": "ephemeral"}
LONG = " ".join(f"Rule {i}: say nothing about the number {i}." for i in range(12))


@pytest.fixture
def pinning(chunkllama_bin, model_path):
    """A server whose cache holds some 1,400 tokens, of which 5 chunks of 64 tokens may be pinned."""
    with serving(chunkllama_bin, model_path, "--kv-budget", "32M", "--pin-budget", "8M") as running:
        yield running


def client_of(running):
    return anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0, timeout=LIMIT_S)


def system(text, **mark):
    return [{"type": "text", "text": text, "cache_control": {**CACHED, **mark}}]


def call(running, path, body=None):
    with urllib.request.urlopen(running.url + path, body and json.dumps(body).encode(), timeout=LIMIT_S) as reply:
        return json.load(reply)


def flood(running):
    """Fills the cache with what no other request shares."""
    for i in range(8):
        call(running, "/v1/completions", {"prompt": [1000 + 300 * i + k for k in range(300)], "max_tokens": 1})


def pins(running):
    return [pin["tokens"] for pin in call(running, "/cache")["pins"]]


@pytest.mark.whole_model
def test_a_marked_system_stays_in_the_cache(pinning):
    client = client_of(pinning)
    plain = ask(client, system=LONG, max_tokens=8)
    flood(pinning)
    assert ask(client, system=LONG, max_tokens=8).usage.cache_read_input_tokens == 0
    flood(pinning)
    marked = ask(client, system=system(LONG), max_tokens=8)
    assert marked.content[0].text == plain.content[0].text and prompt_tokens(marked) == prompt_tokens(plain)
    created = marked.usage.cache_creation_input_tokens
    assert 150 < created < prompt_tokens(marked) and pins(pinning) == [created]
    assert marked.usage.cache_creation.ephemeral_5m_input_tokens == created
    assert marked.usage.cache_creation.ephemeral_1h_input_tokens == 0
    pin = call(pinning, "/cache")["pins"][0]
    assert pin["tenant"] == "default" and 200 < pin["expires_at"] - pin["created"] <= 301
    flood(pinning)
    other = [{"role": "user", "content": "Name a colour."}]
    again = ask(client, other, system=system(LONG, ttl="1h"), max_tokens=8)
    assert again.usage.cache_read_input_tokens >= created and again.usage.cache_creation_input_tokens == 0
    pin = call(pinning, "/cache")["pins"][0]
    assert pins(pinning) == [created] and 3500 < pin["expires_at"] - pin["created"]
    assert again.content[0].text == ask(client, other, system=LONG, max_tokens=8).content[0].text


def test_a_conversation_has_one_pin(pinning):
    """Each turn marks its last message, as agents do; what it pins takes the place of what the turn before has pinned."""
    client = client_of(pinning)
    messages, lengths = [], []
    for text in ("Name a colour.", "Another one.", "A third one."):
        messages.append({"role": "user", "content": [{"type": "text", "text": text, "cache_control": CACHED}]})
        turn = ask(client, messages, system=system("Answer with one word."), max_tokens=8, extra={"min_tokens": 2})
        assert turn.usage.cache_creation_input_tokens > 0
        lengths.append(pins(pinning))
        messages[-1] = {"role": "user", "content": text}
        messages.append({"role": "assistant", "content": turn.content[0].text})
    assert [len(tokens) for tokens in lengths] == [1, 1, 1] and lengths == sorted(lengths) and lengths[0] < lengths[2]


def test_a_pin_needs_room_only_for_what_it_has_more(pinning):
    """The pins of two turns, each of more than half of the room, would not fit beside each other."""
    client = client_of(pinning)
    ask(client, system=system(LONG), max_tokens=2)
    [shorter] = pins(pinning)
    turns = [{"role": "user", "content": [{"type": "text", "text": LONG[:120], "cache_control": CACHED}]}]
    longer = ask(client, turns, system=system(LONG), max_tokens=2)
    assert shorter > 2 * 64 and pins(pinning) == [longer.usage.cache_creation_input_tokens + longer.usage.cache_read_input_tokens]


@pytest.mark.whole_model
def test_marks_without_room_change_nothing(pinning, client):
    """Neither where pins are full, nor where there are none."""
    marked = system(LONG * 3)
    expected = ask(client, system=marked, max_tokens=8)  # of a server without --pin-budget
    assert expected.usage.cache_creation_input_tokens == 0
    full = ask(client_of(pinning), system=marked, max_tokens=8)
    assert full.content[0].text == expected.content[0].text and pins(pinning) == []
    assert full.usage.cache_creation_input_tokens == 0 and prompt_tokens(full) == prompt_tokens(expected)
    for control in ({"type": "forever"}, {**CACHED, "ttl": "2h"}):
        with pytest.raises(anthropic.BadRequestError, match="cache_control"):
            ask(client, cache_control=control)
