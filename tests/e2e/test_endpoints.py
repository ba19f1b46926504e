"""The endpoints beside text: start and readiness, tokens of the real tokenizer, embeddings through OpenAI's client, `suffix`."""
import contextlib
import json
import math
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import openai
import pytest
from waiting import LIMIT_S, wait_until

from test_serve import hold  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def url(chunkllama_bin, model_path):
    with run(chunkllama_bin, "-m", model_path, "--port", "0", "--served-model-name", "any") as server:
        yield re.search(r"at (http://\S+)", server.stdout.readline())[1]


@contextlib.contextmanager
def run(binary, *args, **more):
    server = subprocess.Popen([binary, "serve", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    try:
        yield server
    finally:
        server.kill()
        server.communicate()


def call(url, path, body=None):
    """The status, the JSON and the headers of an answer."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data), timeout=LIMIT_S) as reply:
            return reply.status, json.load(reply), reply.headers
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers


def post(url, path, **body):
    status, answer, _ = call(url, path, body)
    assert status == 200, answer
    return answer


# ---- Start and end ----


def is_alive(url):
    with contextlib.suppress(OSError):
        return call(url, "/livez")[0] == 200


@pytest.mark.parametrize("sandbox", [(), ("--sandbox",)])
def test_readiness(held_bin, model_path, tmp_path, hold, sandbox):
    """While the server computes prompts it says so, then it serves."""
    pins = tmp_path / "pins"
    pins.write_text(json.dumps({"prompt": list(range(1000, 2000))}) + "\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with contextlib.ExitStack() as stack:
        with hold("step", reached=False):
            args = ("-m", model_path, "--port", url.rsplit(":", 1)[1], "--pin", str(pins), *sandbox)
            server = stack.enter_context(run(held_bin, *args, env=hold.env))
            wait_until(lambda: server.poll() is not None or is_alive(url), "the server to answer")
            status, answer, headers = call(url, "/readyz")
            assert status == 503 and answer["error"]["code"] == "model_loading" and headers["Retry-After"] == "5"
            assert call(url, "/v1/completions", {"prompt": "a"})[0] == 503
        wait_until(lambda: call(url, "/readyz")[0] == 200, "the prompts to be computed")
        assert post(url, "/v1/completions", prompt="a", max_tokens=1)["usage"]["completion_tokens"] == 1
        assert server.stdout.readline().endswith("before the server is ready.\n")
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT_S) == 0


def test_a_port_in_use_is_reported_before_the_model_is_loaded(chunkllama_bin, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with run(chunkllama_bin, "-m", str(tmp_path / "missing.gguf"), "--port", str(port)) as server:
            assert server.wait(timeout=LIMIT_S) == 1
            assert "another program uses the port" in server.stderr.read()


# ---- Tokens ----

TEXTS = ["Hello world", "  naïve café — 東京\n\n", "<|im_start|>user", "", "\U0001f600 ok"]


@pytest.mark.parametrize("text", TEXTS)
def test_tokens(url, chunkllama, text):
    """Both forms of /tokenize agree with `chunkllama tokenize`, and /detokenize gives the text back."""
    expected = json.loads(chunkllama("tokenize", "--jsonl", "--special", "--bos", stdin=json.dumps(text) + "\n").stdout)
    answer = post(url, "/tokenize", prompt=text, return_token_strs=True)
    assert answer["tokens"] == expected and answer["count"] == len(expected) and answer["max_model_len"] > 0
    assert len(answer["token_strs"]) == len(expected)
    assert post(url, "/tokenize", content=text, add_special=True) == {"tokens": expected}
    pieces = post(url, "/tokenize", content=text, with_pieces=True)["tokens"]
    whole = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    assert whole.decode() == text
    assert post(url, "/detokenize", tokens=[p["id"] for p in pieces]) == {"prompt": text, "content": text}


def test_names_of_special_tokens(url):
    """As lm-eval needs it, the end token's name is one token; with parse_special false it is the text that a completion computes."""
    info = call(url, "/tokenizer_info")[1]
    assert len(post(url, "/tokenize", prompt=info["eos_token"], add_special_tokens=False)["tokens"]) == 1
    plain = post(url, "/tokenize", prompt=info["eos_token"], parse_special=False)["tokens"]
    usage = post(url, "/v1/completions", prompt=info["eos_token"], max_tokens=0)["usage"]
    assert len(plain) == usage["prompt_tokens"] > 1
    assert "im_start" in info["chat_template"] and info["tokenizer_class"]


def test_rendered_requests(url):
    """The tokens are those that the request computes."""
    messages = [{"role": "user", "content": "Hi <|im_end|>"}]
    chat = {"messages": messages, "max_tokens": 1, "temperature": 0}
    rendered = post(url, "/v1/chat/completions/render", **chat)
    answer = post(url, "/v1/chat/completions", **chat, return_token_ids=True)
    assert rendered["token_ids"] == answer["choices"][0]["prompt_token_ids"] == post(url, "/tokenize", messages=messages)["tokens"]
    assert rendered["sampling_params"]["max_tokens"] == 1 and rendered["model"] == answer["model"]
    several = post(url, "/v1/completions/render", prompt=["a b", [5, 6]])
    assert [r["token_ids"] for r in several] == [post(url, "/tokenize", prompt="a b")["tokens"], [5, 6]]
    assert len({r["request_id"] for r in several}) == 2


def test_suffix_is_refused_without_tokens_for_it(url):
    status, answer, _ = call(url, "/v1/completions", {"prompt": "a", "suffix": "b"})
    assert status == 400 and answer["error"]["code"] == "unsupported_parameter" and "fill gaps" in answer["error"]["message"]


# ---- Embeddings ----


def test_openai_client(url):
    """Its default is base64; floats and token arrays give the same."""
    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    one = client.embeddings.create(model="any", input=["A cat sat.", "A kitten sat."])
    other = client.embeddings.create(model="any", input=["A cat sat.", "A kitten sat."], encoding_format="float")
    assert [d.embedding for d in one.data] == [pytest.approx(d.embedding, abs=1e-7) for d in other.data]
    assert one.usage.prompt_tokens == one.usage.total_tokens > 4
    assert sum(x * x for x in one.data[0].embedding) == pytest.approx(1, abs=1e-5)
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="any", input="a", dimensions=10**6)
    assert refused.value.param == "dimensions"


def test_embeddings_of_the_last_tokens_with_their_lengths(url):
    """A text of more tokens than the context is cut only if the request says so."""
    ids = post(url, "/tokenize", prompt="A cat sat on the mat.")["tokens"]
    cut = post(url, "/v1/embeddings", input=["A cat sat on the mat.", ids[-3:]], truncate_prompt_tokens=3)
    assert cut["usage"]["prompt_tokens"] == 6
    one, other = (data["embedding"] for data in cut["data"])
    assert one == other
    raw = post(url, "/v1/embeddings", input=ids[-3:], use_activation=False)["data"][0]["embedding"]
    length = math.sqrt(sum(x * x for x in raw))
    assert abs(length - 1) > 0.1 and [x / length for x in raw] == pytest.approx(one, abs=1e-6)


def test_scores_by_embeddings(url):
    """Texts are compared by the cosines of their embeddings."""
    query, documents = "What is a cat?", ["It rains.", "What is a cat?", "A cat is an animal."]
    q, *vectors = [v["embedding"] for v in post(url, "/v1/embeddings", input=[query, *documents])["data"]]
    cosines = [sum(a * b for a, b in zip(q, v)) for v in vectors]
    scores = [score["score"] for score in post(url, "/v1/score", text_1=query, text_2=documents, pooling="last")["data"]]
    assert scores == pytest.approx(cosines, abs=1e-5) and scores[1] == pytest.approx(1)
    ranked = post(url, "/v1/rerank", query=query, documents=documents, top_n=2, pooling="last")["results"]
    assert [rank["index"] for rank in ranked] == sorted(range(3), key=lambda i: -scores[i])[:2]
    assert ranked[0] == {"index": 1, "relevance_score": scores[1], "document": {"text": query}}
    assert post(url, "/rerank", query=query, texts=documents, pooling="last") == [
        {"index": i, "score": scores[i]} for i in sorted(range(3), key=lambda i: -scores[i])]


def test_scores_by_judgement(url):
    """The chat model is asked about each document, behind one query, which is computed once."""
    query, documents = "Which animals purr? " * 8, [f"Text {i} is about {what}." for i, what in enumerate(["cats", "rain", "tax"])]
    answer = post(url, "/v1/rerank", query=query, documents=documents)
    ranked, usage = answer["results"], answer["usage"]
    assert sorted(rank["index"] for rank in ranked) == [0, 1, 2]
    scores = [rank["relevance_score"] for rank in ranked]
    assert scores == sorted(scores, reverse=True) and all(0 < score < 1 for score in scores)
    assert usage["completion_tokens"] == 0
    # The prompts of the second and third document begin with the whole query, which the first one computes.
    instruction = "Given a web search query, retrieve relevant passages that answer the query"
    question = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: "
    shared = post(url, "/tokenize", prompt=question, add_special_tokens=False)["count"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 2 * shared
    by_index = {rank["index"]: rank["relevance_score"] for rank in ranked}
    alone = [post(url, "/v1/score", text_1=query, text_2=document)["data"][0]["score"] for document in documents]
    assert alone == [by_index[i] for i in range(3)]  # to the bit
    other = post(url, "/rerank", query=query, documents=documents, instruction="Find texts about the weather.")["results"]
    assert {rank["relevance_score"] for rank in other}.isdisjoint(scores)
    # The score is that of "yes" against "no" as the next token of the chat.
    system = ("Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
              'Note that the answer can only be "yes" or "no".')
    chat = [{"role": "system", "content": system}, {"role": "user", "content": question + documents[0]}]
    prompt = post(url, "/tokenize", messages=chat)["tokens"]
    logprobs = []
    for word in "no", "yes":
        token, = post(url, "/tokenize", prompt=word, add_special_tokens=False)["tokens"]
        scored = post(url, "/v1/completions", prompt=prompt + [token], max_tokens=0, echo=True, logprobs=0,
                      logprob_start_len=len(prompt) - 1)
        logprobs.append(scored["choices"][0]["logprobs"]["token_logprobs"][-1])
    assert alone[0] == pytest.approx(1 / (1 + math.exp(logprobs[0] - logprobs[1])), rel=1e-6)


# ---- llama-server's ----


def test_llama_servers_completion(url):
    body = {"prompt": "Once upon a time", "n_predict": 8, "temperature": 0, "ignore_eos": True, "return_tokens": True}
    answer = post(url, "/completion", **body, n_probs=2)
    assert answer["stop"] and answer["stop_type"] == "limit" and answer["prompt"] == body["prompt"]
    assert answer["tokens_predicted"] == len(answer["tokens"]) == len(answer["completion_probabilities"]) == 8
    same = {"prompt": body["prompt"], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    assert answer["content"] == post(url, "/v1/completions", **same)["choices"][0]["text"]
    assert answer["content"] == post(url, "/completions", **same)["content"]
    for token in answer["completion_probabilities"]:
        assert len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 and bytes(token["bytes"])
    assert len(post(url, "/completion", **body | {"prompt": ["One", "Two"], "n_predict": 1})) == 2
    request = urllib.request.Request(url + "/completion", json.dumps(body | {"stream": True}).encode())
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        events = [json.loads(line[6:]) for line in reply.read().decode().splitlines() if line.startswith("data: ")]
    assert "".join(event["content"] for event in events) == answer["content"]
    assert sum((event["tokens"] for event in events), []) == answer["tokens"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["stop_type"] == "limit" and events[-1]["timings"]["predicted_n"] == 8


def test_llama_servers_paths(url):
    """Without /v1, chats and models are OpenAI's, and vectors have llama-server's form."""
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
    assert post(url, "/chat/completions", **chat)["choices"] == post(url, "/v1/chat/completions", **chat)["choices"]
    vectors = [vector["embedding"] for vector in post(url, "/v1/embeddings", input=["a", "b"])["data"]]
    for path in "/embedding", "/embeddings":
        assert post(url, path, content=["a", "b"]) == [{"index": i, "embedding": [vector]} for i, vector in enumerate(vectors)]
    assert call(url, "/models")[1]["data"][0]["id"] == call(url, "/v1/models")[1]["data"][0]["id"]
    assert call(url, "/v1/health")[0] == 200


def test_names_of_special_tokens_in_llama_servers_texts(url):
    """They are these tokens, unless the request says that they are text."""
    text = "a" + call(url, "/tokenizer_info")[1]["eos_token"]
    vectors = [post(url, "/v1/embeddings", input=text, **fields)["data"][0]["embedding"] for fields in ({}, {"parse_special": True})]
    assert vectors[0] != vectors[1]
    for path in "/embedding", "/embeddings":
        assert [post(url, path, content=text, **fields)[0]["embedding"] for fields in ({"parse_special": False}, {})] == [[v] for v in vectors]


def test_llama_servers_facts(url):
    """The text of a chat, as a prompt, is the chat."""
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
    prompt = post(url, "/apply-template", **chat)["prompt"]
    assert "Hi" in prompt and prompt.endswith("assistant\n")
    expected = post(url, "/v1/chat/completions", **chat)
    answer = post(url, "/completion", prompt=prompt, n_predict=4, temperature=0)
    assert answer["content"] == expected["choices"][0]["message"]["content"]
    assert answer["tokens_evaluated"] == expected["usage"]["prompt_tokens"]
    props, slots = call(url, "/props")[1], call(url, "/slots")[1]
    assert props["total_slots"] == len(slots) and props["chat_template"] == call(url, "/tokenizer_info")[1]["chat_template"]
    assert slots[0]["n_ctx"] == props["default_generation_settings"]["n_ctx"]
    status, answer, _ = call(url, "/infill", {"input_prefix": "a", "input_suffix": "b"})
    assert status == 400 and answer["error"]["param"] == "input_suffix"
