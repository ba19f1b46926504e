"""The endpoints beside text: start and readiness, tokens of the real tokenizer, embeddings through OpenAI's client, `suffix`."""
import contextlib
import json
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
