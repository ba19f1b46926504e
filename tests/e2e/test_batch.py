"""`chunkllama batch`: the forms of requests, the order of records, errors, the summary, and that sharing changes no answer."""
import json
import os
import pty
import re
import subprocess

import pytest
from conftest import ROOT
from waiting import LIMIT_S

SUMMARY_KEYS = ["prefill_tokens_computed", "prompt_tokens", "completion_tokens", "prefill_s", "decode_s", "total_s",
                "kv_bytes_peak", "kv_bytes_unshared", "draft_tokens", "draft_tokens_accepted"]


@pytest.fixture
def batch(chunkllama, tmp_path):
    """Runs a file of lines (objects or raw text), and returns the records and the summary."""

    def run(lines, *args, n_failed=0):
        source, out, summary = (tmp_path / name for name in ("in.jsonl", "out.jsonl", "summary.json"))
        source.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        done = chunkllama("batch", "-i", source, "-o", out, "--summary", summary, "--temperature", 0, *args,
                          status=1 if n_failed else 0)
        assert not n_failed or f"{n_failed} of {len(out.read_text().splitlines())} requests failed" in done.stderr
        return [json.loads(line) for line in out.read_text().splitlines()], json.loads(summary.read_text())

    return run


def question(text, **more):
    return {"messages": [{"role": "user", "content": text}], **more}


def test_short_form(batch):
    """The texts are those of the other form."""
    chat, prompt = question("What is the capital of France?"), {"prompt": "1, 2, 3, 4,"}
    records, summary = batch([{"id": "a", **chat}, {"id": 7, **prompt}], "--max-tokens", 12)
    assert [list(r) for r in records] == [["id", "text", "token_ids", "finish_reason", "usage"]] * 2
    assert [r["id"] for r in records] == ["a", 7]
    for r in records:
        usage = r["usage"]
        assert len(r["token_ids"]) == usage["completion_tokens"] <= 12
        assert r["finish_reason"] == ("length" if usage["completion_tokens"] == 12 else "stop")
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert list(summary) == SUMMARY_KEYS
    assert summary["prompt_tokens"] == sum(r["usage"]["prompt_tokens"] for r in records)
    assert summary["completion_tokens"] == sum(r["usage"]["completion_tokens"] for r in records)
    assert summary["prefill_tokens_computed"] == summary["prompt_tokens"]
    assert summary["kv_bytes_peak"] > 0 and summary["total_s"] > 0
    assert 0 <= summary["draft_tokens_accepted"] <= summary["draft_tokens"]
    whole, _ = batch([{"custom_id": "a", "url": "/v1/chat/completions", "body": chat},
                      {"custom_id": "7", "url": "/v1/completions", "body": prompt}], "--max-tokens", 12)
    answer, continuation = (r["response"]["body"]["choices"][0] for r in whole)
    assert [r["text"] for r in records] == [answer["message"]["content"], continuation["text"]]


def test_parameters_of_a_line_win(batch):
    lines = [{"prompt": "One two three", "max_tokens": 3, "stop": ["zzz"]}, {"prompt": "One two three"}]
    records, _ = batch(lines, "--max-tokens", 5, "--ignore-eos")
    assert [r["usage"]["completion_tokens"] for r in records] == [3, 5]
    assert [r["id"] for r in records] == [1, 2]  # no id: the line's number
    assert records[1]["token_ids"][:3] == records[0]["token_ids"]


def test_priorities(batch):
    """A smaller one comes first: it computes the prompt that the others then find."""
    lines = [{"prompt": "Once", "max_tokens": 400, "ignore_eos": True}]  # runs until the others have been read
    lines += [{"prompt": [9] * 200, "priority": priority} for priority in (7, -7)]
    records, _ = batch(lines, "--max-tokens", 1, "--max-seqs", 1)
    late, early = (r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in records[1:])
    assert early == 0 < late
    records, _ = batch([{"prompt": "a", "priority": "high"}], n_failed=1)
    assert records[0]["error"]["param"] == "priority"


def test_openai_form(batch):
    chat, completion = "/v1/chat/completions", "/v1/completions"
    lines = [
        {"custom_id": "x", "method": "POST", "url": chat, "body": question("Say hello.", max_tokens=8, min_tokens=8)},
        {"custom_id": "y", "method": "POST", "url": completion, "body": {"prompt": "1, 2, 3,", "max_tokens": 4, "n": 2}},
        {"custom_id": "z", "method": "POST", "url": "/v1/messages/count_tokens", "body": {"messages": []}},
        {"custom_id": "w", "method": "POST", "url": chat, "body": {"messages": []}},
        {"custom_id": "v", "url": chat},
        {"custom_id": "u", "method": "POST", "url": "/v1/embeddings", "body": {"input": ["x", "y"]}},
    ]
    records, _ = batch(lines, n_failed=3)
    assert [r["custom_id"] for r in records] == list("xyzwvu")
    assert all(list(r) == ["id", "custom_id", "response", "error"] and r["error"] is None for r in records)
    assert [r["response"]["status_code"] for r in records] == [200, 200, 400, 400, 400, 200]
    assert len({r["id"] for r in records}) == len({r["response"]["request_id"] for r in records}) == 6
    body = records[0]["response"]["body"]
    assert body["object"] == "chat.completion" and body["choices"][0]["message"]["content"]
    assert len(records[1]["response"]["body"]["choices"]) == 2
    message = records[2]["response"]["body"]["error"]["message"]
    paths = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"]
    assert message == "'url' must be one of " + ", ".join(f'"{path}"' for path in paths)
    assert records[4]["response"]["body"]["error"]["param"] == "body"
    assert [len(data["embedding"]) for data in records[5]["response"]["body"]["data"]] == [576, 576]


def test_bad_lines_do_not_stop_the_others(batch):
    good = {"id": "good", "prompt": "Once upon", "max_tokens": 2}
    lines = [good, "{not json", "[1]", "", {"id": "n", "prompt": "x", "n": 2}, {"id": "none"}, {"id": "t", "prompt": "x", "temperature": -1},
             {"id": "long", "prompt": "word " * 20000}, {"id": "role", "messages": [{"role": "", "content": "y"}]}, good]
    records, _ = batch(lines, n_failed=7)
    assert len(records) == 9
    assert records[0]["text"] == records[-1]["text"]
    errors = records[1:-1]
    assert all(list(r) == ["id", "line", "error"] for r in errors)
    assert [r["id"] for r in errors] == [None, None, "n", "none", "t", "long", "role"]
    assert [r["line"] for r in errors] == [2, 3, 5, 6, 7, 8, 9]
    assert all(r["error"]["message"] for r in errors)
    assert errors[4]["error"]["param"] == "temperature"


def test_a_byte_order_mark_is_no_error(batch):
    records, _ = batch(["\ufeff" + json.dumps({"id": "a", "prompt": "x"}) + "\r", {"id": "b", "prompt": "x"}], "--max-tokens", 1)
    assert [r["id"] for r in records] == ["a", "b"]


def test_tenants_share_nothing_and_get_the_same_answers(batch):
    prompt = list(range(1000, 1200))
    tenants = ["alice", "alice", "bob", "default", None]
    lines = [{"id": i, "prompt": prompt + [300 + i], "tenant": tenant} for i, tenant in enumerate(tenants)]
    lines.append({"custom_id": "x", "url": "/v1/completions", "tenant": "bob", "body": {"prompt": prompt + [305]}})
    args = ("--max-tokens", 4, "--logprobs", 0)
    records, summary = batch(lines, *args)
    alone, without = batch([{**line, "tenant": None} for line in lines], *args)
    assert without["prefill_tokens_computed"] == 200 + 6
    assert summary["prefill_tokens_computed"] == 3 * 200 + 6
    for record in records[:5] + alone[:5]:
        del record["usage"]
    assert records[:5] == alone[:5]
    choices = [r[5]["response"]["body"]["choices"] for r in (records, alone)]
    assert choices[0] == choices[1]


def test_wrong_tenants(batch):
    lines = [{"id": 1, "prompt": "x", "tenant": name} for name in ("team-337551", "team-366488", "a b", "", "x" * 65, 7, "a\0b")]
    records, _ = batch(lines, "--max-tokens", 1, n_failed=6)
    assert "text" in records[0]
    assert all(r["error"]["param"] == "tenant" for r in records[1:])
    messages = [r["error"]["message"] for r in records[1:]]
    assert messages[0] == "the tenants 'team-337551' and 'team-366488' have the same hash, 4595325; rename one of them"
    assert messages[1:4] == ["a tenant's name must be 1 to 64 printable ASCII characters without blanks"] * 3
    assert "'tenant' must be a string, not" in messages[4] and "'tenant' contains a zero character" in messages[5]


def test_records_keep_the_order_of_the_input(batch):
    # The first request of each four has a long answer, so that later ones finish before it.
    lines = [{"id": i, "prompt": f"Number {i}:", "max_tokens": 40 if i % 4 == 0 else 2} for i in range(24)]
    records, _ = batch(lines, "--ignore-eos", "--max-seqs", 4)
    assert [r["id"] for r in records] == list(range(24))
    assert [r["usage"]["completion_tokens"] for r in records] == [line["max_tokens"] for line in lines]


def test_logprobs(batch):
    records, _ = batch([{"id": 1, **question("Name a colour.")}, {"id": 2, "prompt": "Red, green,"}], "--max-tokens", 4, "--logprobs", 2)
    content = records[0]["logprobs"]["content"]
    assert len(content) == records[0]["usage"]["completion_tokens"]
    for entry in content:
        assert len(entry["top_logprobs"]) == 2
        assert entry["logprob"] == entry["top_logprobs"][0]["logprob"]  # greedy
    assert len(records[1]["logprobs"]["token_logprobs"]) == records[1]["usage"]["completion_tokens"]
    none, _ = batch([{"id": 1, "prompt": "x"}], "--max-tokens", 1)
    assert "logprobs" not in none[0]


def test_model_name_that_is_not_utf8(batch, model_path, tmp_path):
    path = os.fsencode(tmp_path) + b"/mod\xe9le.gguf"
    os.symlink(model_path, path)
    line = {"custom_id": "x", "url": "/v1/completions", "body": {"prompt": "a", "max_tokens": 1}}
    records, _ = batch([line], "-m", os.fsdecode(path))
    assert records[0]["response"]["body"]["model"] == "mod\ufffdle"


def test_standard_streams(chunkllama):
    done = chunkllama("batch", "-i", "-", "--max-tokens", 2, stdin='{"id": 1, "prompt": "a b c"}\n')
    assert json.loads(done.stdout)["id"] == 1
    assert "prompt tokens computed" in done.stderr and "\033" not in done.stderr  # without a terminal there is no progress bar


@pytest.mark.usefixtures("terminals")
def test_progress_bar(chunkllama_bin, model_path, tmp_path):
    """It counts the requests that it reads: here the rest of a file whose first line another program has read."""
    (tmp_path / "in.jsonl").write_text("a head\n" + "".join(f'{{"id": {i}, "prompt": "{i} and"}}\n' for i in range(6)))
    ours, its = pty.openpty()
    with open(tmp_path / "in.jsonl", "rb", buffering=0) as requests:
        requests.seek(len("a head\n"))
        subprocess.run([chunkllama_bin, "batch", "-m", model_path, "-i", "-", "-o", tmp_path / "out.jsonl", "--max-tokens", "48",
                        "--ignore-eos", "--max-seqs", "1"], check=True, stdin=requests, stderr=its, timeout=LIMIT_S)
    os.close(its)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # all is read and the other end closed
            break
    assert re.search(rb"\r\[#*\.*\] [0-6]/6 requests, \d+ tokens", shown) and re.search(rb"\d:\d\d left", shown)
    assert b"prompt tokens computed" in shown
    assert [json.loads(line)["id"] for line in open(tmp_path / "out.jsonl")] == list(range(6))


def test_wrong_files(chunkllama, tmp_path):
    assert "--input is missing; name the file of requests" in chunkllama("batch", status=1).stderr
    assert "cannot open /none/in" in chunkllama("batch", "-i", "/none/in", status=1).stderr
    assert "cannot write /none/out" in chunkllama("batch", "-i", "/dev/null", "-o", "/none/out", status=1).stderr
    line = '{"id": 1, "prompt": "a"}\n' * 3
    assert "cannot write" in chunkllama("batch", "-i", "-", "-o", "/dev/full", "--max-tokens", 1, stdin=line, status=1).stderr


def test_a_reader_that_has_gone(chunkllama_bin, model_path, tmp_path):
    """The job ends with an error, not by SIGPIPE, which would lose what the file of --kv-tier still needs: the next job finds it."""
    (tmp_path / "in").write_text(json.dumps({"id": 1, "prompt": [9] * 300, "max_tokens": 1}) + "\n")
    command = [chunkllama_bin, "batch", "-m", model_path, "-i", tmp_path / "in", "--kv-tier", tmp_path / "tier", "--kv-tier-size", "64M"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, text=True, stderr=subprocess.PIPE, timeout=LIMIT_S)
    os.close(writer)
    assert done.returncode == 1 and "cannot write" in done.stderr
    again = [*command, "-o", tmp_path / "out", "--summary", tmp_path / "summary"]
    subprocess.run(again, check=True, stderr=subprocess.DEVNULL, timeout=LIMIT_S)
    assert json.loads((tmp_path / "summary").read_text())["prefill_tokens_computed"] <= 300 - 64


def test_files_are_not_lost(chunkllama, tmp_path):
    """The output is overwritten only once the job can begin, and is never the file of requests."""
    requests, results = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    line = '{"id": 1, "prompt": "a"}\n'
    requests.write_text(line)
    results.write_text("earlier results")
    (tmp_path / "link").symlink_to(requests)
    for output in (requests, tmp_path / "link"):
        assert "is the file of requests" in chunkllama("batch", "-i", requests, "-o", output, status=1).stderr
    assert requests.read_text() == line
    chunkllama("batch", "-i", requests, "-o", results, "--chat-format", "none-such", status=1)
    assert results.read_text() == "earlier results"
    chunkllama("batch", "-i", requests, "-o", results, "--max-tokens", 1)
    assert [json.loads(x)["id"] for x in results.read_text().splitlines()] == [1]


# ---- The offline job ----


def prompts_of(chunkllama, requests):
    """The token ids of each request's messages in ChatML, SmolLM2's chat format."""
    texts = ["".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in r["messages"]) + "<|im_start|>assistant\n"
             for r in requests]
    tokens = chunkllama("tokenize", "--jsonl", "--special", stdin="".join(json.dumps(text) + "\n" for text in texts))
    return [json.loads(line) for line in tokens.stdout.splitlines()]


def computed_by_a_trie(prompts):
    """The number of tokens to compute if each prompt shares a prefix with those before it. A match ends at an even length, before
    the last token."""
    total, trie = 0, {}
    for ids in prompts:
        node, matched = trie, 0
        for i in range(0, len(ids) - 1, 2):
            pair = tuple(ids[i:i + 2])
            if len(pair) < 2 or i + 2 > len(ids) - 1 or pair not in node:
                break
            node, matched = node[pair], i + 2
        node = trie
        for i in range(0, len(ids) - 1, 2):
            node = node.setdefault(tuple(ids[i:i + 2]), {})
        total += len(ids) - matched
    return total


@pytest.mark.long
def test_offline_job(batch, chunkllama):
    requests = [json.loads(line) for line in (ROOT / "bench/workloads/tool_planning.jsonl").open(encoding="utf-8")][:32]
    prompts = prompts_of(chunkllama, requests)

    flags = ["--max-tokens", 16, "--ignore-eos", "--logprobs", 3]
    shared, summary = batch(requests, *flags, "--max-seqs", 32)
    alone, summary_alone = batch(requests, *flags, "--max-seqs", 1, "--sharing", "private")

    assert [r["usage"]["prompt_tokens"] for r in shared] == [len(ids) for ids in prompts]
    assert summary["prefill_tokens_computed"] == computed_by_a_trie(prompts)
    assert summary_alone["prefill_tokens_computed"] == sum(map(len, prompts))
    assert summary["kv_bytes_peak"] < summary["kv_bytes_unshared"] / 4
    for one, other in zip(shared, alone):
        one["usage"].pop("prompt_tokens_details"), other["usage"].pop("prompt_tokens_details")
        assert json.dumps(one) == json.dumps(other)


@pytest.mark.whole_model
def test_sharing_is_not_reported_as_a_loss(batch):
    """The second request continues in copies of the first one's chunks, as its prompt ends, or leaves the first, within one."""
    for second in ("The capital of France is", "The capital of Italy is not as well known as"):
        lines = [{"custom_id": text, "body": {"prompt": text, "n": 2, "max_tokens": 8, "seed": 1, "temperature": 1}}
                 for text in ("The capital of France is", second)]
        _, summary = batch(lines, "--max-seqs", 4)
        assert summary["prefill_tokens_computed"] < summary["prompt_tokens"]
        assert 0 < summary["kv_bytes_peak"] <= summary["kv_bytes_unshared"]
