"""Chat templates of the user: in the server, in `batch`, `run` and `chat`, with variables, tools and their errors."""
import datetime
import json
import pathlib
import urllib.error
import urllib.request
import zoneinfo

import pytest

from test_server import serving
from waiting import LIMIT_S, wait_until

TEMPLATE = """\
{%- for m in messages %}
{%- if m.role == 'nobody' %}{{ raise_exception('nobody may not speak') }}{% endif %}
<|im_start|>{{ m.role }}: {{ m.content }}
{%- for call in m.tool_calls or [] %} {{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}<|im_end|>
{%- endfor %}
{%- if tools %} Tools: {% for t in tools %}{{ t.function.name }} {% endfor %}{% endif %}
{%- if mood is defined %} Mood: {{ mood }}{% endif %}
{%- if reasoning_effort is defined %} Effort: {{ reasoning_effort }}{% endif %}
{%- for d in documents or [] %} Document: {{ d.text }}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant:{% endif %}
"""
QUESTION = {"role": "user", "content": "What is <|im_end|>?"}
TOOL = {"type": "function", "function": {"name": "find_it", "description": "d",
                                         "parameters": {"type": "object", "properties": {}}}}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "find_it", "arguments": '{"what": "<|im_end|>"}'}}]}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("templates") / "own.jinja"
    path.write_text(TEMPLATE)
    return str(path)


@pytest.fixture(scope="module")
def url(chunkllama_bin, model_path, template):
    with serving(chunkllama_bin, model_path, "--chat-template", template) as running:
        yield running.url


def post(url, **body):
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        return json.load(reply)


def prompt_ids(url, **body):
    body = {"messages": [QUESTION], "max_tokens": 1, "return_token_ids": True, **body}
    answer = post(url, **body)
    return answer.get("prompt_token_ids") or answer["choices"][0]["prompt_token_ids"]


def ids_of(chunkllama, *parts):
    """The tokens of a text of parts, of which every second one is a caller's, whose special tokens are text."""
    ids = []
    for i, part in enumerate(parts):
        ids += json.loads(chunkllama("tokenize", "--jsonl", *(["--special"] if i % 2 == 0 else []), stdin=json.dumps(part) + "\n").stdout)
    return ids


def test_the_template_writes_chats(chunkllama, url):
    head = "<|im_start|>"
    assert prompt_ids(url) == ids_of(chunkllama, head, "user: What is <|im_end|>?", "<|im_end|><|im_start|>assistant:")
    assert prompt_ids(url, add_generation_prompt=False) == ids_of(chunkllama, head, "user: What is <|im_end|>?", "<|im_end|>")
    more = {"chat_template_kwargs": {"mood": "<|im_end|>"}, "reasoning_effort": "low", "documents": [{"text": "<|im_end|>"}]}
    assert prompt_ids(url, **more) == ids_of(
        chunkllama, head, "user: What is <|im_end|>?", "<|im_end|>", " Mood: <|im_end|> Effort: low Document: <|im_end|>",
        "<|im_start|>assistant:")


def test_tools_and_calls(chunkllama, url):
    call = "<|im_start|>", "user: What is <|im_end|>?", "<|im_end|><|im_start|>", \
           'assistant:  find_it{"what": "<|im_end|>"}', "<|im_end|><|im_start|>", "tool: none", "<|im_end|>"
    result = {"role": "tool", "tool_call_id": "call_1", "content": "none"}
    messages = [QUESTION, CALL, result]
    end = "<|im_start|>assistant:"
    assert prompt_ids(url, messages=messages) == ids_of(chunkllama, *call[:-1], call[-1] + end)
    assert prompt_ids(url, messages=messages, tools=[TOOL]) == ids_of(chunkllama, *call, " Tools: find_it ", end)
    assert prompt_ids(url, messages=messages, tools=[TOOL], tool_choice="none") == prompt_ids(url, messages=messages)


def test_the_last_message_is_continued(chunkllama, url):
    messages = [QUESTION, {"role": "assistant", "content": "It is "}]
    ids = prompt_ids(url, messages=messages, continue_final_message=True)
    assert ids == ids_of(chunkllama, "<|im_start|>", "user: What is <|im_end|>?", "<|im_end|><|im_start|>", "assistant: It is ")


def test_what_the_template_refuses(url):
    with pytest.raises(urllib.error.HTTPError) as caught:
        post(url, messages=[{"role": "nobody", "content": "x"}])
    assert caught.value.code == 400
    error = json.load(caught.value)["error"]
    assert error["param"] == "messages" and "nobody may not speak" in error["message"] and error["type"] == "invalid_request_error"


def test_all_commands_use_it(chunkllama, chunkllama_bin, model_path, template, url, tmp_path):
    body = {"messages": [QUESTION], "max_tokens": 8, "temperature": 0}
    answer = post(url, **body)["choices"][0]["message"]["content"]
    (tmp_path / "in.jsonl").write_text(json.dumps(body) + "\n")
    chunkllama("batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--chat-template", template)
    assert json.loads((tmp_path / "out.jsonl").read_text())["text"] == answer
    greedy = ["--temperature", "0", "--max-tokens", "8", "--chat-template", template]
    assert chunkllama("run", *greedy, QUESTION["content"]).stdout.rstrip("\n") == answer.rstrip("\n")
    assert chunkllama("chat", *greedy, stdin=QUESTION["content"] + "\n").stdout.rstrip("\n") == answer.rstrip("\n")
    assert chunkllama("run", *greedy[:4], QUESTION["content"]).stdout.rstrip("\n") != answer.rstrip("\n")
    pinned = tmp_path / "pinned.jsonl"
    pinned.write_text(json.dumps({"messages": [QUESTION]}) + "\n")
    options = ["--chat-template", template, "--pin", str(pinned)]
    with serving(chunkllama_bin, model_path, *options) as other:
        usage = post(other.url, **body)["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 3


def test_variables_of_the_server(chunkllama, chunkllama_bin, model_path, template):
    """They apply where a request has none of that name, in all commands."""
    options = ["--chat-template", template, "--chat-template-kwargs", '{"mood": "good"}']
    begin = "<|im_start|>", "user: What is <|im_end|>?"
    with serving(chunkllama_bin, model_path, *options) as other:
        for mood, fields in (("good", {}), ("bad", {"chat_template_kwargs": {"mood": "bad"}})):
            assert prompt_ids(other.url, **fields) == ids_of(
                chunkllama, *begin, "<|im_end|>", f" Mood: {mood}", "<|im_start|>assistant:")
        answer = post(other.url, messages=[QUESTION], max_tokens=8, temperature=0)["choices"][0]["message"]["content"]
    assert chunkllama("run", *options, "--temperature", "0", "-n", "8", QUESTION["content"]).stdout.rstrip("\n") == answer.rstrip("\n")


def test_bad_templates(chunkllama, template, tmp_path):
    for wrong, part in (("{", "not valid JSON"), ("[]", "must be a JSON object")):
        assert part in chunkllama("run", "x", "--chat-template-kwargs", wrong, status=1).stderr
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% for m in messages %}\n{{ m.content ")
    error = chunkllama("run", "x", "--chat-template", broken, status=1).stderr
    assert "--chat-template: the chat template: line 2" in error
    assert "--chat-template: cannot open" in chunkllama("run", "x", "--chat-template", tmp_path / "none", status=1).stderr
    both = chunkllama("run", "x", "--chat-template", template, "--chat-format", "chatml", status=1).stderr
    assert "--chat-template with --chat-format" in both


@pytest.mark.skipif(not pathlib.Path("/usr/share/zoneinfo/Asia/Kathmandu").exists(), reason="no files of time zones")
def test_the_date_is_local_time(chunkllama, chunkllama_bin, model_path, tmp_path, monkeypatch):
    """Also in the sandbox, where the file of the time zone cannot be read."""
    path = tmp_path / "clock.jinja"
    path.write_text("{{ messages[0].content }} {{ clock if clock is defined else strftime_now('%H:%M') }}")
    monkeypatch.setenv("TZ", "Asia/Kathmandu")  # 5:45 hours ahead of UTC
    zone = zoneinfo.ZoneInfo("Asia/Kathmandu")
    with serving(chunkllama_bin, model_path, "--chat-template", str(path), "--sandbox") as sandboxed:

        def ask():
            before, ids, after = datetime.datetime.now(zone), prompt_ids(sandboxed.url), datetime.datetime.now(zone)
            return before.minute == after.minute and (f"{after:%H:%M}", ids)

        clock, ids = wait_until(ask, "an answer within a minute of the clock")
        assert ids == ids_of(chunkllama, "", "What is <|im_end|>? " + clock)
        assert prompt_ids(sandboxed.url, chat_template_kwargs={"clock": "now"}) == ids_of(chunkllama, "", "What is <|im_end|>? now")
