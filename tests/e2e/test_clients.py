"""Libraries that agents and evaluations are written with, against the real server: LiteLLM, LangChain, Instructor, Pydantic AI and
lm-eval. OpenAI's and Anthropic's own clients have test_server.py, test_tools.py, test_responses.py and test_messages.py."""
import asyncio
import json
import math
import os
import pathlib
import sys
import typing
import urllib.request

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", LITELLM_LOCAL_MODEL_COST_MAP="True", LANGSMITH_TRACING="false",
                  TRANSFORMERS_OFFLINE="1", LOGFIRE_SEND_TO_LOGFIRE="false")

import numpy as np
import pydantic
import pytest
from waiting import LIMIT_S

from test_server import serving

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chunkllama/model"))
import oracle

pytestmark = pytest.mark.long

QUESTION = "Name one colour of the rainbow."
MESSAGES = [{"role": "user", "content": QUESTION}]
ENOUGH = 300  # tokens for what a grammar completes, with all the whitespace that it allows


class Weather(pydantic.BaseModel, extra="forbid"):
    """The weather of a city, which a grammar completes within a few tokens."""

    city: typing.Literal["Oslo", "Paris"]
    celsius: int = pydantic.Field(ge=-50, le=50)


@pytest.fixture(scope="module")
def server(chunkllama_bin, model_path, grammar_library):
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library) as running:
        yield running


@pytest.fixture(scope="module")
def answer(server):
    """What OpenAI's client gets."""
    return server.client.chat.completions.create(model=server.model, messages=MESSAGES, temperature=0, max_tokens=24)


# ---- LiteLLM ----


def lite(server, **more):
    import litellm

    return litellm.completion(model=f"openai/{server.model}", api_base=f"{server.url}/v1", api_key="none", messages=MESSAGES,
                              **{"temperature": 0, "max_tokens": 24, **more})


def test_litellm(server, answer):
    whole = lite(server)
    assert whole.choices[0].message.content == answer.choices[0].message.content
    assert whole.usage.prompt_tokens == answer.usage.prompt_tokens
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in lite(server, stream=True))
    assert streamed == whole.choices[0].message.content


def test_litellm_tools(server):
    tool = {"type": "function", "function": {"name": "report", "parameters": Weather.model_json_schema()}}
    reply = lite(server, tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=ENOUGH)
    call = reply.choices[0].message.tool_calls[0]
    assert reply.choices[0].finish_reason == "tool_calls" and call.function.name == "report"
    Weather.model_validate_json(call.function.arguments)


# ---- LangChain ----


@pytest.fixture(scope="module")
def chain(server):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(base_url=f"{server.url}/v1", api_key="none", model=server.model, temperature=0, max_tokens=ENOUGH)


def test_langchain(server, chain, answer):
    reply = chain.invoke(QUESTION, max_tokens=24)
    assert reply.content == answer.choices[0].message.content
    assert reply.usage_metadata["input_tokens"] == answer.usage.prompt_tokens
    assert "".join(chunk.content for chunk in chain.stream(QUESTION, max_tokens=24)) == reply.content


def test_langchain_tools(chain, answer):
    from langchain_core.messages import HumanMessage, ToolMessage

    def lookup(city: typing.Literal["Oslo", "Paris"]) -> str:
        """Look up the weather of a city."""
        return "sunny"

    bound = chain.bind_tools([lookup], tool_choice="required", parallel_tool_calls=False, strict=True)
    reply = bound.invoke(QUESTION)
    call = reply.tool_calls[0]
    assert call["name"] == "lookup" and call["args"]["city"] in ("Oslo", "Paris")
    after = chain.invoke([HumanMessage(QUESTION), reply, ToolMessage("sunny", tool_call_id=call["id"])], max_tokens=24)
    assert after.usage_metadata["input_tokens"] > answer.usage.prompt_tokens


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_structured_output(chain, method):
    found = chain.with_structured_output(Weather, method=method).invoke("It has 20 degrees in Paris.")
    assert isinstance(found, Weather)


def test_langchain_json_mode(server, chain):
    """The object ends as soon as it may: with this bias, right where it begins."""
    [brace] = tokens_of(server, "}")
    biased = chain.model_copy(update={"logit_bias": {brace: 100}})
    assert biased.with_structured_output(None, method="json_mode").invoke("Answer with a JSON object.") == {}


def test_langchain_embeddings(server):
    """LangChain sends token arrays of OpenAI's vocabulary unless it is set not to."""
    from langchain_openai import OpenAIEmbeddings

    texts = ["The cat sat on the mat.", "A feline rested on a rug."]
    embedder = OpenAIEmbeddings(base_url=f"{server.url}/v1", api_key="none", model=server.model, check_embedding_ctx_length=False)
    for vector in embedder.embed_documents(texts):
        assert math.isclose(math.hypot(*vector), 1, rel_tol=1e-3)


def test_langchain_responses(server, answer):
    from langchain_openai import ChatOpenAI

    chain = ChatOpenAI(base_url=f"{server.url}/v1", api_key="none", model=server.model, temperature=0, max_tokens=24,
                       use_responses_api=True)
    assert chain.invoke(QUESTION).text == answer.choices[0].message.content


# ---- Instructor and Pydantic AI ----


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_instructor(server, mode):
    import instructor

    client = instructor.from_openai(server.client, mode=getattr(instructor.Mode, mode))
    found = client.chat.completions.create(model=server.model, response_model=Weather, max_retries=0, temperature=0,
                                           max_tokens=ENOUGH,
                                           messages=[{"role": "user", "content": "It has 20 degrees in Paris."}])
    assert isinstance(found, Weather)


def test_pydantic_ai(server):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.output import NativeOutput
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel(server.model, provider=OpenAIProvider(base_url=f"{server.url}/v1", api_key="none"))
    settings = {"temperature": 0, "max_tokens": ENOUGH}
    for output in (Weather, NativeOutput(Weather)):
        agent = Agent(model, output_type=output, model_settings=settings)
        found = asyncio.run(agent.run("It has 20 degrees in Paris."))
        assert isinstance(found.output, Weather)
        assert found.usage.input_tokens > 0


# ---- lm-eval ----

TASK = {
    "loglikelihood": """\
task: local_choice
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
target_delimiter: ""
metric_list: [{metric: acc}]
""",
    "generation": """\
task: local_generation
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 8, temperature: 0}
metric_list: [{metric: exact_match}]
""",
}
DOCUMENTS = [
    {"question": "The capital of France is", "choices": [" Paris", " Berlin", " a cow"], "answer": 0},
    {"question": "Two plus two equals", "choices": [" four", " seven hundred"], "answer": 0},
    {"question": "Water freezes at zero degrees", "choices": [" Celsius", " kilometres per hour", " of"], "answer": 0},
]


def evaluate(server, tmp_path, kind):
    import lm_eval
    from lm_eval.tasks import TaskManager

    data = tmp_path / "documents.jsonl"
    data.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    (tmp_path / "task.yaml").write_text(TASK[kind].replace("DATA", str(data)))
    arguments = {"model": server.model, "base_url": f"{server.url}/v1/completions", "tokenizer_backend": "remote",
                 "num_concurrent": 4, "max_retries": 1, "tokenized_requests": True}
    found = lm_eval.simple_evaluate(model="local-completions", model_args=arguments, log_samples=True, bootstrap_iters=0,
                                    tasks=[TASK[kind].split()[1]], batch_size=1,
                                    task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False))
    return next(iter(found["samples"].values()))


@pytest.fixture(scope="module")
def model(model_path):
    return oracle.load(model_path)


def tokens_of(server, text):
    body = json.dumps({"prompt": text}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/tokenize", body), timeout=LIMIT_S) as reply:
        return json.load(reply)["tokens"]


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def rms(a):
    return float(np.sqrt(np.mean(np.square(a))))


def test_lm_eval_loglikelihood(server, model, tmp_path):
    """Exactly the logprobs of the choices' tokens, which are those of the model: within twice what quantised activations cost the
    oracle, as in tests/chunkllama/model/test_logits.py, which has the reason."""
    samples = evaluate(server, tmp_path, "loglikelihood")
    assert len(samples) == len(DOCUMENTS)
    texts, scores = [], []  # the tokens of each choice behind its question, and the positions and logprobs of the choice
    for sample in samples:
        document = sample["doc"]
        for choice, ((got, greedy),) in zip(document["choices"], sample["resps"]):
            prompt, whole = tokens_of(server, document["question"]), tokens_of(server, document["question"] + choice)
            assert whole[:len(prompt)] == prompt
            scored = server.complete(whole, max_tokens=1, echo=True, logprobs=1, temperature=0).choices[0].logprobs
            positions = range(len(prompt), len(whole))
            assert got == sum(scored.token_logprobs[i] for i in positions), (document, choice)
            assert greedy == all(max(scored.top_logprobs[i].values()) == scored.token_logprobs[i] for i in positions)
            texts.append(whole)
            scores.append((positions, scored.token_logprobs))
    exact, quantised = ([log_softmax(x) for x in oracle.logits(model, texts, quantise=q)] for q in (False, True))
    errors = [logprobs[i] - x[i - 1, whole[i]] for x, whole, (positions, logprobs) in zip(exact, texts, scores)
              for i in positions]
    costs = [(y - x)[positions[0] - 1:-1] for x, y, (positions, _) in zip(exact, quantised, scores)]
    cost = np.concatenate(costs)
    bound, rms_bound = 2 * np.abs(cost).max(), 2 * rms(cost)
    print(f"difference {np.abs(errors).max():.3g} (rms {rms(errors):.3g}); bound {bound:.3g} (rms {rms_bound:.3g})")
    assert rms_bound < 0.7 and bound < 5, "quantised activations cost more than they should"
    assert rms(errors) <= rms_bound
    assert np.abs(errors).max() <= bound


def test_lm_eval_generation(server, tmp_path):
    for sample in evaluate(server, tmp_path, "generation"):
        expected = server.client.completions.create(model=server.model, prompt=sample["doc"]["question"], temperature=0, max_tokens=8,
                                                    stop=["\n"]).choices[0].text
        assert sample["resps"][0][0] == expected
