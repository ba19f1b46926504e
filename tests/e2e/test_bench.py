"""`cattn-bench table2`: the bundled workloads, files in every form that `chunkllama batch` reads, and wrong files."""
import json
import subprocess

import pytest
from conftest import ROOT
from waiting import LIMIT_S
from test_workloads import N, SHARED, bundled, shared_and_own


@pytest.fixture
def table2(bin_dir, model_path):
    def run(*files, status=0, model=model_path):
        done = subprocess.run([bin_dir / "cattn-bench", "table2", "--quick", "--json", "--model", model, "--files",
                               ",".join(map(str, files))], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stderr if status else [r for r in map(json.loads, done.stdout.splitlines()) if "workload" in r]

    return run


@pytest.fixture
def file(tmp_path):
    def write(*lines, name="some.jsonl"):
        (tmp_path / name).write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return tmp_path / name

    return write


@pytest.mark.parametrize("kind", SHARED)
def test_bundled(kind, table2):
    row, = table2(f"bench/workloads/{kind}.jsonl")
    assert (row["workload"], row["requests"], row["distinct"], row["prompts"]) == (kind, N, N, len(SHARED[kind]))
    # A request shares its whole shared prompt, the chat format around it, and the first words of its own part with some others.
    mean = sum(SHARED[kind]) / len(SHARED[kind])
    assert mean <= row["shared_average"] <= row["tokens_average"] - 1
    assert row["shared_average"] < mean + 40
    assert max(SHARED[kind]) <= row["shared_maximum"]


def test_several_files_in_their_order(table2):
    assert [r["workload"] for r in table2("bench/workloads/few_shot.jsonl", "bench/workloads/chatbot.jsonl")] == ["few_shot", "chatbot"]


def test_token_ids_are_counted_as_they_are(table2, file):
    row, = table2(file({"prompt": [1, 2, 3, 4]}, {"prompt": [1, 2, 3, 5, 6]}, "", {"prompt": [1, 2]}, {"prompt": [9]}))
    assert row == {"workload": "some", "requests": 4, "distinct": 4, "prompts": 1, "shared_average": (3 + 3 + 2 + 0) / 4,
                   "shared_maximum": 3, "tokens_average": 3.0}


def test_forms_of_a_line(table2, file):
    body = {"messages": [{"role": "user", "content": "Say hello."}]}
    row, = table2(file(body, {"custom_id": "a", "url": "/v1/chat/completions", "body": body}))
    assert (row["distinct"], row["shared_average"]) == (1, row["tokens_average"])


def test_messages_are_rendered_as_batch_does(table2, file, chunkllama):
    requests = bundled("chatbot")[:2]
    row, = table2(file(*requests))
    done = chunkllama("batch", "-i", "-", "-o", "-", "--max-tokens", "1", stdin="".join(json.dumps(r) + "\n" for r in requests))
    prompts = [json.loads(line)["usage"]["prompt_tokens"] for line in done.stdout.splitlines()]
    assert row["tokens_average"] == sum(prompts) / 2


@pytest.mark.parametrize("line, message", [
    ("{", "line 2: the line is not valid JSON"),
    ("[1]", "line 2: the line is not a JSON object"),
    ({"id": 1}, "line 2: the request has neither messages nor prompt"),
    ({"prompt": 5}, "line 2: 'prompt' must be a string or an array of token ids"),
    ({"prompt": [1, ["a"]]}, "line 2: 'prompt[1]' must be an integer, a token id"),
    ({"prompt": [-1]}, "line 2: 'prompt[0]' is -1; token ids of this model are from 0 to"),
    ({"prompt": [1 << 40]}, "line 2: 'prompt[0]' is 1099511627776; token ids of this model are from 0 to"),
    ({"messages": []}, "line 2: 'messages' must be an array of at least one message"),
    ({"messages": [{"role": "user"}]}, "line 2: 'messages[0].content' must be a string or an array"),
    ({"messages": [{"role": 1, "content": "x"}]}, "line 2: 'messages[0].role' must be a string"),
    ({"body": 3}, "line 2: body must be an object"),
])
def test_wrong_lines(line, message, table2, file):
    assert message in table2(file({"prompt": "fine"}, line), status=1)


def test_wrong_files(table2, file, tmp_path):
    assert "cannot open" in table2(tmp_path / "nothing.jsonl", status=1)
    assert "holds no requests" in table2(file("", "  "), status=1)
    assert "no GGUF file" in table2("bench/workloads/chatbot.jsonl", model=ROOT / "README.md", status=1)


def test_help_shows_whole_defaults(bin_dir):
    text = subprocess.run([bin_dir / "cattn-bench", "table2", "--help"], capture_output=True, text=True, timeout=LIMIT_S).stdout
    assert "bench/workloads/document_qa.jsonl)\n" in text
