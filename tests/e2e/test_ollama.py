"""Ollama's API with a real model: by plain requests, and by Ollama's own Python library."""
import json
import urllib.error
import urllib.request

import pytest
from waiting import LIMIT_S

from test_server import QUESTION, server, serving  # noqa: F401, the fixture

SETTINGS = {"temperature": 0, "num_predict": 24}
WEATHER = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}


def post(url, path, **body):
    """The objects of the answer, one on each line."""
    request = urllib.request.Request(url + path, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        return [json.loads(line) for line in reply.read().splitlines()]


def test_an_answer_equals_the_chats(server):
    chat = server.chat(temperature=0, max_tokens=24)
    [whole] = post(server.url, "/api/chat", messages=QUESTION, options=SETTINGS, stream=False)
    assert whole["message"] == {"role": "assistant", "content": chat.choices[0].message.content}
    assert whole["done"] and whole["done_reason"] == chat.choices[0].finish_reason
    assert whole["prompt_eval_count"] == chat.usage.prompt_tokens and whole["eval_count"] == chat.usage.completion_tokens
    assert all(whole[f"{name}_duration"] > 0 for name in ("total", "prompt_eval", "eval"))
    *parts, last = post(server.url, "/api/chat", messages=QUESTION, options=SETTINGS)
    assert len(parts) > 3 and not any(part["done"] for part in parts) and last["done"] and last["message"]["content"] == ""
    assert "".join(part["message"]["content"] for part in parts) == whole["message"]["content"]


def test_a_conversation_goes_on_by_its_context(server):
    """The tokens are those of the first prompt, its answer and the second prompt."""
    question = QUESTION[0]["content"]
    first = post(server.url, "/api/generate", prompt=question, options=SETTINGS)[-1]
    assert len(first["context"]) == first["prompt_eval_count"] + first["eval_count"]
    second = post(server.url, "/api/generate", prompt="Why?", context=first["context"], options=SETTINGS)[-1]
    alone = post(server.url, "/api/generate", prompt="Why?", options=SETTINGS)[-1]
    assert second["context"][:len(first["context"])] == first["context"]
    assert second["prompt_eval_count"] == len(first["context"]) + alone["prompt_eval_count"]


def test_the_context_that_clients_read_is_one_that_they_may_ask_for(server):
    [facts] = post(server.url, "/api/show", model="any")
    name = facts["model_info"]["general.architecture"]
    n_ctx = facts["model_info"][f"{name}.context_length"]
    [answer] = post(server.url, "/api/generate", prompt="x", raw=True, stream=False, options={"num_ctx": n_ctx, "num_predict": 1})
    assert answer["done_reason"] == "length" and "context" not in answer
    more = post(server.url, "/api/generate", prompt="x", raw=True, stream=False, options={"num_ctx": n_ctx + 1, "num_predict": 1})
    assert more[0]["done_reason"] == "length"
    assert facts["details"]["format"] == "gguf" and facts["details"]["parameter_size"].endswith("M")


# ---- Ollama's library ----


@pytest.fixture(scope="module")
def library(chunkllama_bin, model_path, grammar_library):
    ollama = pytest.importorskip("ollama")
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library) as running:
        yield ollama, ollama.Client(host=running.url)


@pytest.mark.long
def test_library(library):
    ollama, client = library
    whole = client.chat("any", QUESTION, options=SETTINGS)
    assert whole.message.content and whole.done and whole.eval_count > 0 and whole.total_duration > 0
    parts = list(client.chat("any", QUESTION, options=SETTINGS, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert parts[-1].done_reason == whole.done_reason
    assert client.generate("any", QUESTION[0]["content"], options=SETTINGS).response == whole.message.content
    text = "".join(part.response for part in client.generate("any", QUESTION[0]["content"], options=SETTINGS, stream=True))
    assert text == whole.message.content
    assert client.generate("any").done_reason == "load"
    assert client.list().models[0].details.format == "gguf" and client.ps().models[0].context_length > 0
    assert "completion" in client.show("any").capabilities
    vectors = client.embed("any", ["a", "b"]).embeddings
    assert len(vectors) == 2 and len(vectors[0]) == len(client.embeddings("any", "a").embedding)
    with pytest.raises(ollama.ResponseError) as refusal:
        client.chat("any", [{"role": "user", "content": "x", "images": [b"aaaa"]}])
    assert refusal.value.status_code == 400 and "'messages[0].images'" in refusal.value.error


@pytest.mark.long
def test_library_calls_and_formats(library):
    """A call comes as an object, whole and in a stream, and its result goes on; a schema is followed."""
    _, client = library

    def get_weather(city: str) -> str:
        """The weather of a city."""
        return "sunny"

    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER, "strict": True}}]
    assert client.chat("any", messages, tools=[get_weather], options=SETTINGS).done
    request = {"model": "any", "messages": messages, "tools": tools, "tool_choice": "required", "options": {"temperature": 0}}
    whole = client._request(dict, "POST", "/api/chat", json={**request, "stream": False})
    [call] = whole["message"]["tool_calls"][:1]
    assert call["function"]["name"] == "get_weather" and call["function"]["arguments"]["city"] in ("Oslo", "Rome")
    streamed = [part for part in client._request(dict, "POST", "/api/chat", json=request, stream=True)]
    calls = [call for part in streamed for call in part["message"].get("tool_calls", [])]
    assert [c["function"] for c in calls] == [c["function"] for c in whole["message"]["tool_calls"]]
    after = client.chat("any", [*messages, whole["message"], {"role": "tool", "tool_name": "get_weather", "content": "sunny"}],
                        options=SETTINGS)
    assert after.prompt_eval_count > whole["prompt_eval_count"] / 2 and after.done
    answer = client.chat("any", messages, format=WEATHER, options={"temperature": 0})
    assert json.loads(answer.message.content)["city"] in ("Oslo", "Rome")
