"""Fields of vLLM's and llama-server's requests, sent by OpenAI's client as their users send them."""
import concurrent.futures
import json
import re
import urllib.request

import openai
import pytest

from test_server import LONG, serving
from waiting import LIMIT_S


@pytest.fixture(scope="module")
def server(chunkllama_bin, model_path):
    with serving(chunkllama_bin, model_path, "--temperature", "0", "-c", "1024") as running:
        yield running


def complete(server, prompt=LONG, **fields):
    return server.complete(prompt, extra_body={"return_token_ids": True, "max_tokens": 24, **fields})


def ids_of(answer):
    return answer.choices[0].token_ids


def test_logit_bias(server):
    plain = ids_of(complete(server))
    banned = {str(token): -100 for token in set(plain)}
    assert not set(ids_of(complete(server, logit_bias=banned))) & set(plain)
    assert set(ids_of(complete(server, logit_bias={"260": 100, " a": False}, max_tokens=5))) == {260}
    assert set(ids_of(complete(server, logit_bias=[[260, 100], [" a", False]], max_tokens=5))) == {260}


def test_allowed_tokens(server):
    allowed = [260, 282, 284]
    assert set(ids_of(complete(server, allowed_token_ids=allowed))) <= set(allowed)


def test_bad_words(server):
    """A word of one token is never said, with or without a blank before it."""
    plain = complete(server, ignore_eos=True, logprobs=0).choices[0]
    pieces = zip(plain.token_ids, plain.logprobs.tokens)
    token, word = next((token, piece[1:]) for token, piece in pieces if re.fullmatch(" [a-z]+", piece))
    assert token not in ids_of(complete(server, bad_words=[word], ignore_eos=True))


def test_min_tokens(server):
    """An answer that would end early, at a token or at a string, goes on if it must."""
    plain = complete(server, ignore_eos=True).choices[0]
    end = {"stop_token_ids": [plain.token_ids[5]]}
    short, long = (complete(server, min_tokens=n, ignore_eos=True, **end) for n in (0, 20))
    n_tokens = [answer.usage.completion_tokens for answer in (short, long)]
    assert n_tokens[0] <= 6 < 20 <= n_tokens[1]
    assert ids_of(short)[:-1] == ids_of(long)[:n_tokens[0] - 1]
    stop = plain.text[8:14]
    assert complete(server, stop=stop, ignore_eos=True).usage.completion_tokens < 20
    assert complete(server, stop=stop, min_tokens=20, ignore_eos=True).usage.completion_tokens >= 20


def test_stop_strings_and_special_tokens_are_shown(server):
    stop = complete(server, ignore_eos=True).choices[0].text[20:26]
    without, included = (complete(server, stop=stop, ignore_eos=True, include_stop_str_in_output=value).choices[0].text
                         for value in (False, True))
    assert included == without + stop
    # <|im_start|> is a special token, which has no text by default.
    fields = {"logit_bias": {"1": 100}, "max_tokens": 2}
    assert complete(server, **fields).choices[0].text == ""
    shown = complete(server, skip_special_tokens=False, **fields).choices[0].text
    assert shown == "<|im_start|>" * 2
    streamed = server.complete(extra_body={"skip_special_tokens": False, **fields}, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == shown


def test_salts_separate(server):
    prompt = list(range(2000, 2100))

    def cached(**fields):
        return complete(server, prompt, max_tokens=1, **fields).usage.prompt_tokens_details.cached_tokens

    assert [cached(cache_salt=salt) for salt in ("a", "b", "aa")] == [0, 0, 0]
    assert cached() == 0
    assert all(cached(cache_salt=salt) > 90 for salt in ("a", "b", "aa"))
    assert cached() > 90
    assert cached(prompt_cache_key="another", user="u", cache_prompt=False, store=True) > 90


def test_prompt_logprobs(server):
    """vLLM's shape; the values are those of echo with logprobs."""
    fields = {"max_tokens": 1, "logprobs": 1}
    answer = complete(server, prompt_logprobs=3, **fields)
    choice, echoed = answer.choices[0], complete(server, echo=True, **fields).choices[0]
    entries = choice.prompt_logprobs
    assert entries[0] is None and len(entries) == len(choice.prompt_token_ids) == answer.usage.prompt_tokens
    for token, entry, logprob in zip(choice.prompt_token_ids[1:], entries[1:], echoed.logprobs.token_logprobs[1:]):
        own = entry[str(token)]
        assert own["logprob"] == logprob and own["decoded_token"]
        ranks = sorted(e["rank"] for e in entry.values())
        assert ranks[:3] == [1, 2, 3] and len(entry) == (3 if own["rank"] <= 3 else 4)
        likelier = [e for e in entry.values() if e["rank"] < own["rank"]]
        assert all(e["logprob"] >= logprob for e in likelier)
    assert len(choice.logprobs.top_logprobs[0]) <= 2
    chat = server.chat(max_tokens=1, extra_body={"prompt_logprobs": 0})
    assert chat.prompt_logprobs[0] is None and len(chat.prompt_logprobs) == chat.usage.prompt_tokens


def test_logprobs_of_continuations(server):
    """One context is computed once for all of its continuations, whose logprobs are those of the whole computation, to the bit."""
    fields = {"max_tokens": 0, "echo": True, "logprobs": 1}
    context, *more = [complete(server, f"{n}: " + LONG * 12, max_tokens=1, cache_salt="s").choices[0].prompt_token_ids[:n]
                      for n in (90, 5, 6, 7)]
    prompts = [context + continuation for continuation in more]
    whole = complete(server, prompts, **fields)
    assert whole.usage.prompt_tokens_details.cached_tokens == 0
    part = complete(server, prompts, logprob_start_len=len(context) - 1, **fields)
    assert part.usage.prompt_tokens_details.cached_tokens == (len(prompts) - 1) * (len(context) - 2)
    for expected, choice in zip(whole.choices, part.choices):
        logprobs = choice.logprobs.token_logprobs
        assert logprobs[:len(context)] == [None] * len(context) and len(logprobs) == len(expected.logprobs.token_logprobs)
        assert logprobs[len(context):] == expected.logprobs.token_logprobs[len(context):]
        assert choice.logprobs.tokens == expected.logprobs.tokens


def test_truncated_prompts(server):
    words = "one two three four five six seven eight nine ten " * 300
    whole = complete(server, "one two three four", max_tokens=1).choices[0].prompt_token_ids
    assert complete(server, "one two three four", max_tokens=1, truncate_prompt_tokens=2).choices[0].prompt_token_ids == whole[-2:]
    fitted = complete(server, words, max_tokens=4, truncate_prompt_tokens=-1)
    n_ctx = server.client.models.list().data[0].max_model_len
    assert fitted.usage.prompt_tokens == n_ctx - 4
    with pytest.raises(openai.BadRequestError):
        complete(server, words, max_tokens=4)


def test_names_of_answers_and_tokens(server):
    assert complete(server, request_id="mine", max_tokens=1).id == "cmpl-mine"
    assert server.chat(max_tokens=1, extra_body={"request_id": "mine"}).id == "chatcmpl-mine"
    named = server.client.with_options(default_headers={"X-Request-Id": "header"})
    answer = named.completions.create(model="any", prompt="x", max_tokens=1, extra_body={"request_id": "mine"})
    assert answer.id == "cmpl-header" and answer._request_id == "header"
    unnamed = server.client.completions.create(model="any", prompt="x", max_tokens=1)
    assert unnamed.id == f"cmpl-{unnamed._request_id}"
    choice = complete(server, logprobs=0, return_tokens_as_token_ids=True, max_tokens=3).choices[0]
    assert choice.logprobs.tokens == [f"token_id:{token}" for token in choice.token_ids]


def test_timings(server):
    """They are those of the tokens, also in an answer that is written when the last token has come."""
    name = "vllm:request_decode_time_seconds_sum"
    before = server.metrics()[name]
    t = complete(server, max_tokens=48, ignore_eos=True, timings=True).model_extra["timings"]
    decode_ms = (server.metrics()[name] - before) * 1e3  # which the engine's thread measures, token by token
    assert t["predicted_n"] == 48 and decode_ms / 2 < t["predicted_ms"] < 2 * decode_ms and t["prompt_ms"] > 0
    assert t["predicted_per_second"] == pytest.approx(48 / t["predicted_ms"] * 1e3)


# ---- llama-server's penalties ----


def test_penalties_count_a_window(server):
    """llama-server's penalty counts the last 64 tokens, unless the request says another number, and vLLM's counts all."""
    there, elsewhere, other = 500, 600, 700
    bias = {str(there): 100, str(elsewhere): 70}  # the first one is drawn, unless it is penalised

    def draws(**fields):
        return ids_of(complete(server, [there] + [other] * 80, max_tokens=1, logit_bias=bias, **fields))

    assert draws() == draws(repeat_penalty=3.0) == [there]
    assert draws(repetition_penalty=3.0) == [elsewhere]
    assert draws(repetition_penalty=3.0, samplers=["temperature"]) == [there]
    for n, drawn in [(0, there), (80, there), (81, elsewhere), (-1, elsewhere)]:
        assert draws(repeat_penalty=3.0, repeat_last_n=n) == [drawn]


# ---- Budgets of reasoning ----

THINKING = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}{% if never %}</think>{% endif %}"""


@pytest.fixture(scope="module")
def thinker(chunkllama_bin, model_path, grammar_library, tmp_path_factory):
    """A server whose model believes that it reasons, and never ends that."""
    template = tmp_path_factory.mktemp("thinker") / "template.jinja"
    template.write_text(THINKING)
    args = "--temperature", "0", "-c", "1024", "--chat-template", template, "--grammar-library", grammar_library
    with serving(chunkllama_bin, model_path, *args) as running:
        yield running


def think(server, **fields):
    answer = server.chat(max_tokens=60, extra_body={"ignore_eos": True, **fields})
    message = answer.choices[0].message
    return getattr(message, "reasoning_content", None), message.content, answer.usage


def test_lines_are_indented(thinker):
    """The answer ends in the first line that has too few blanks."""
    text = "    a\n  b\nc"
    for more, said in ({}, text), ({"n_indent": 4}, "    a\n  "):
        assert thinker.complete("def f(x):\n", max_tokens=60, extra_body={"guided_regex": text, **more}).choices[0].text == said


def test_reasoning_ends_with_its_budget(thinker):
    reasoning, content, usage = think(thinker)
    assert not content and usage.completion_tokens == 60
    for name in "thinking_token_budget", "reasoning_budget_tokens", "thinking_budget_tokens":
        short, content, usage = think(thinker, **{name: 7})
        assert short and len(short) < len(reasoning) and reasoning.startswith(short.rstrip()) and content
        assert usage.completion_tokens == 60
    assert not think(thinker, thinking_token_budget=0)[0]
    assert think(thinker, thinking_token_budget=-1)[0] == reasoning
    alone = think(thinker, thinking_token_budget=20)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        together = list(pool.map(lambda n: think(thinker, thinking_token_budget=n), [20, 3, 20, 11]))
    assert together[0][:2] == together[2][:2] == alone[:2]


def test_reasoning_ends_before_an_answer_with_a_schema(thinker):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    response_format = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    reasoning, content, _ = think(thinker, thinking_token_budget=6, response_format=response_format)
    assert reasoning and json.loads(content)["ok"] in (True, False)


@pytest.mark.parametrize("grammar", [
    {"guided_choice": ["yes", "no"]},
    {"structured_outputs": {"regex": "yes|no"}},
    {"grammar": 'root ::= "yes" | "no"'},
    {"guided_grammar": 'start: "yes" | "no"'},
])
def test_reasoning_ends_before_an_answer_with_a_grammar(thinker, grammar):
    reasoning, content, _ = think(thinker, thinking_token_budget=6, **grammar)
    assert reasoning and content in ("yes", "no")


def test_anthropics_budget(thinker):
    body = {"model": "m", "max_tokens": 60, "messages": [{"role": "user", "content": "Hi"}], "ignore_eos": True,
            "thinking": {"type": "enabled", "budget_tokens": 5}}
    request = urllib.request.Request(thinker.url + "/v1/messages", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        blocks = json.load(reply)["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]


# ---- Defaults ----


@pytest.mark.parametrize("args, local, api", [
    ([], (0.8, 40, 0.95, 0.05), (1, 0, 1, 0)),
    (["--sampling-defaults", "openai"], (1, 0, 1, 0), (1, 0, 1, 0)),
    (["--temperature", "0.25", "--top-k", "7"], (0.25, 7, 0.95, 0.05), (0.25, 7, 1, 0)),
])
def test_defaults(chunkllama_bin, model_path, args, local, api):
    """The page has llama.cpp's where the model recommends nothing, and the API OpenAI's; options override both."""
    names = "temperature", "top_k", "top_p", "min_p"
    with serving(chunkllama_bin, model_path, "-c", "256", *args) as running:
        with urllib.request.urlopen(running.url + "/props", timeout=LIMIT_S) as reply:
            params = json.load(reply)["default_generation_settings"]["params"]
        assert tuple(params[name] for name in names) == local
        request = urllib.request.Request(running.url + "/v1/completions/render", b'{"prompt": "x"}')
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            params = json.load(reply)[0]["sampling_params"]
        assert tuple(pytest.approx(params[name], rel=1e-6) for name in names) == api
