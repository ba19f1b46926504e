"""Structured output through the server: answers match what the request says, streamed or not, alone or beside others."""
import concurrent.futures
import json
import re

import openai
import pytest

from test_grammar import ENDED
from test_server import serving

PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "role", "tags"],
          "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                         "role": {"enum": ["admin", "viewer"]},
                         "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3}}}
AS_PERSON = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
QUESTION = [{"role": "user", "content": "Describe a person as JSON."}]


@pytest.fixture(scope="module", params=[(), ("--sandbox", "--speculate", "off")])
def server(request, chunkllama_bin, model_path, grammar_library):
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library, *request.param) as running:
        yield running


def check_person(text):
    person = json.loads(text)
    assert sorted(person) == ["age", "name", "role", "tags"]
    assert 0 <= person["age"] <= 150 and person["role"] in ("admin", "viewer") and len(person["tags"]) <= 3


@pytest.mark.parametrize("temperature", [0, 1])
def test_schema(server, temperature):
    reply = server.chat(QUESTION, response_format=AS_PERSON, temperature=temperature, seed=7, max_tokens=1000, n=2, logprobs=True)
    for choice in reply.choices:
        assert choice.finish_reason == "stop"
        check_person(choice.message.content)
        assert all(token.logprob <= 0 for token in choice.logprobs.content)
    assert reply.usage.completion_tokens == sum(len(choice.logprobs.content) for choice in reply.choices)


def test_stream_is_the_same(server):
    more = {"response_format": AS_PERSON, "temperature": 1, "seed": 3, "max_tokens": 1000}
    whole = server.chat(QUESTION, **more).choices[0].message.content
    pieces = [chunk.choices[0].delta.content or "" for chunk in server.chat(QUESTION, stream=True, **more)]
    assert "".join(pieces) == whole
    check_person(whole)


def test_any_object(server):
    text = server.chat(QUESTION, response_format={"type": "json_object"}, temperature=0, max_tokens=400).choices[0].message.content
    assert text.lstrip().startswith("{")


OPEN = {"type": "object", "required": ["name", "age"],
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                       "city": {"type": "string", "maxLength": 20}}}
SUBJECTS = ["Bob, 31, from Oslo", "Ann (45)", "a cook of 50 years", "Eve, a pilot", "Tom, 7", "a nurse", "Mary Smith, 28", "a king of 80"]
TASKS = ["Extract the person as JSON: {}.", "Who is this? {}", "Tell me all that you know about {} as JSON."]


def keys_of(server, prompt, **more):
    """The keys of an answer that follows OPEN; None if it was cut off."""
    reply = server.chat([{"role": "user", "content": prompt}], temperature=0, max_tokens=120, **more).choices[0]
    return list(json.loads(reply.message.content)) if reply.finish_reason == "stop" else None


def test_objects_are_closed_unless_the_request_opens_them(server):
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"const": 1}}}}}
    for closed in (None, True, False):
        more = {} if closed is None else {"extra_body": {"structured_outputs": {"disable_additional_properties": closed}}}
        reply = server.chat(QUESTION, temperature=0, max_tokens=60, response_format=schema, **more).choices[0]
        assert (reply.finish_reason == "stop" and json.loads(reply.message.content) in ({}, {"a": 1})) == (closed is not False)


@pytest.mark.long
@pytest.mark.whole_model
def test_no_answer_has_keys_that_nobody_asked_for(server):
    format = {"type": "json_schema", "json_schema": {"name": "person", "schema": OPEN}}
    keys = [keys_of(server, task.format(subject), response_format=format) for task in TASKS for subject in SUBJECTS]
    assert all(k is not None and {*k} <= {"name", "age", "city"} for k in keys), keys


@pytest.mark.parametrize("body, pattern", [
    ({"guided_regex": r"\d{4}-\d\d-\d\d"}, "[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    ({"structured_outputs": {"regex": "[0-9]{4}-[0-9]{2}-[0-9]{2}"}}, r"\d{4}-\d\d-\d\d"),
    ({"structured_outputs": {"choice": ["red", "green", "light blue"]}}, "red|green|light blue"),
    ({"guided_regex": "(yes|no)!"}, "(yes|no)!"),
    ({"grammar": 'root ::= item item item\nitem ::= "- " [A-Z] [a-z]{1,9} "\\n"'}, r"(- [A-Z][a-z]{1,9}\n){3}"),
])
def test_other_ways(server, body, pattern):
    reply = server.complete("The answer is ", max_tokens=120, temperature=1, seed=5, extra_body=body)
    assert reply.choices[0].finish_reason == "stop"
    assert re.fullmatch(pattern, reply.choices[0].text)


def test_beside_others(server):
    """Constrained and plain requests together answer what each answers alone."""
    def ask(i):
        more = [{"response_format": AS_PERSON}, {}, {"extra_body": {"structured_outputs": {"regex": "[a-z ]{20,40}\\."}}}][i % 3]
        reply = server.chat(QUESTION, temperature=1, seed=i, max_tokens=100, logprobs=True, **more)
        return reply.choices[0].message.content, [token.logprob for token in reply.choices[0].logprobs.content]

    alone = [ask(i) for i in range(12)]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(12))) == alone


@pytest.mark.parametrize("body, says", [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}},
     "'response_format' cannot be compiled: Invalid type: thing"),
    ({"structured_outputs": {"regex": "(" * 100 + "a"}}, "regex"),
    ({"structured_outputs": {"regex": "a{1000000000}"}}, ENDED),
    ({"structured_outputs": {"grammar": 'start: T0\n' + "".join(f"T{i}: T{i + 1} T{i + 1}\n" for i in range(30)) + "T30: /.?/"}},
     "4096"),
])
def test_refused(server, body, says):
    with pytest.raises(openai.BadRequestError) as error:
        server.chat(QUESTION, max_tokens=5, extra_body=body)
    assert re.search(says, str(error.value))
