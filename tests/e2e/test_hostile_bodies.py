"""Bodies of agents with wrong values in them: each is answered or refused in its API's form, by the API's own names of fields."""
import copy
import json
import random
import re
import urllib.error
import urllib.request

import pytest
from waiting import LIMIT_S

import agent_bodies
from test_server import server, serving  # noqa: F401, the fixture

VALUES = [None, True, False, 0, -1, 1, 2**63 - 1, 1e300, "", "\0", "x" * 300, [], {}, [[]], {"type": "x"}, ["a"], "<|im_end|>"]
CODEX = {**agent_bodies.codex(*agent_bodies.CODEX_TURNS), "max_output_tokens": 2}
CLAUDE = {**agent_bodies.claude_code("fa690", *agent_bodies.CLAUDE_CODE_TURNS), "max_tokens": 2}
CASES = {"/v1/responses": (CODEX, "max_output_tokens"), "/v1/messages": (CLAUDE, "max_tokens"),
         "/v1/messages/count_tokens": (CLAUDE, "max_tokens")}
# Names of a chat's fields that the two APIs do not have.
FOREIGN = r"'(response_format|max_completion_tokens|stop|tools\[\d+\]\.function)[.'\[]"


def places(value, path=()):
    """The paths to all values within a value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, member in members for place in [(*path, key), *places(member, (*path, key))]]


def spoiled(rng, body, limit):
    """The body with one to three values replaced, removed or doubled, but not with the limit of tokens, so that it ends soon."""
    body = copy.deepcopy(body)
    for _ in range(rng.choice([1, 1, 2, 3])):
        *path, key = rng.choice([place for place in places(body) if place != (limit,)])
        holder = body
        for step in path:
            holder = holder[step]
        action = rng.random()
        if action < 0.7:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
        elif action < 0.9 or isinstance(holder, dict):
            del holder[key]
        else:
            holder.insert(key, copy.deepcopy(holder[key]))
    return body


def check_refusal(path, error):
    assert error.code == 400
    answer = json.load(error)
    message = answer["error"]["message"]
    assert message and not re.search(FOREIGN, message), message
    if path != "/v1/responses":
        assert answer["type"] == "error" and answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", CASES)
def test_hostile_bodies(server, path):
    rng, refused = random.Random(7), 0
    for _ in range(150):
        body = spoiled(rng, *CASES[path])
        request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
                text = reply.read().decode()
        except urllib.error.HTTPError as error:
            check_refusal(path, error)
            refused += 1
            continue
        data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")] or [text]
        kinds = {json.loads(line).get("type") for line in data}
        assert not kinds & {"error", "response.failed"}, body
    assert 30 < refused < 120
