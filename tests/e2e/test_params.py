"""Fields of vLLM's and llama-server's requests, sent by OpenAI's client as their users send them."""
import re

import openai
import pytest

from test_server import LONG, serving


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
    assert set(ids_of(complete(server, logit_bias={"260": 100}, max_tokens=5))) == {260}
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
    assert named.completions.create(model="any", prompt="x", max_tokens=1, extra_body={"request_id": "mine"}).id == "cmpl-header"
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
