"""The endpoints beside text: start and readiness, tokens of the real tokenizer, embeddings through OpenAI's client, `suffix`."""
import contextlib
import json
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import openai
import pytest


@pytest.fixture(scope="module")
def url(chunkllama_bin, model_path):
    with run(chunkllama_bin, "-m", model_path, "--port", "0", "--served-model-name", "any") as server:
        yield re.search(r"at (http://\S+)", server.stdout.readline())[1]


@contextlib.contextmanager
def run(binary, *args):
    server = subprocess.Popen([binary, "serve", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield server
    finally:
        server.kill()
        server.communicate()


def call(url, path, body=None):
    """The status, the JSON and the headers of an answer."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data), timeout=120) as reply:
            return reply.status, json.load(reply), reply.headers
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers


def post(url, path, **body):
    status, answer, _ = call(url, path, body)
    assert status == 200, answer
    return answer


# ---- Start and end ----


@pytest.fixture
def loading(chunkllama_bin, tmp_path):
    """A server that never finds its prompts: --pin reads a pipe. Its URL and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    @contextlib.contextmanager
    def start(*args):
        with run(chunkllama_bin, "--port", str(port), *args) as server:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 60
            while True:
                assert server.poll() is None and time.monotonic() < deadline, server.stderr.read()
                with contextlib.suppress(OSError):
                    assert call(url, "/livez")[0] == 200
                    break
                time.sleep(0.01)
            yield url, server

    return start


@pytest.mark.parametrize("sandbox", [(), ("--sandbox",)])
def test_readiness(loading, model_path, tmp_path, sandbox):
    """While the server computes prompts it says so, then it serves."""
    pins = tmp_path / "pins"
    pins.write_text("".join(json.dumps({"prompt": list(range(1000 + i, 9000, 7))[:1000]}) + "\n" for i in range(4)))
    with loading("-m", model_path, "--pin", str(pins), "--kv-budget", "2G", *sandbox) as (url, server):
        seen = set()
        while True:
            status, answer, headers = call(url, "/readyz")
            assert call(url, "/livez")[0] == 200
            seen.add(status)
            if status == 200:
                break
            assert status == 503 and answer["error"]["code"] == "model_loading" and headers["Retry-After"] == "5"
            assert call(url, "/v1/completions", {"prompt": "a"})[0] in (503, 200)
            time.sleep(0.02)
        assert seen == {200, 503}
        assert post(url, "/v1/completions", prompt="a", max_tokens=1)["usage"]["completion_tokens"] == 1
        assert server.stdout.readline().endswith("before the server is ready.\n")
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=60) == 0


def test_a_port_in_use_is_reported_before_the_model_is_loaded(chunkllama_bin, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with run(chunkllama_bin, "-m", str(tmp_path / "missing.gguf"), "--port", str(port)) as server:
            assert server.wait(timeout=60) == 1
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
