"""Files and batches of `chunkllama serve --files-dir`, through OpenAI's client."""
import contextlib
import datetime
import json
import os
import pathlib
import re
import signal
import sqlite3
import stat
import subprocess
import urllib.request

import openai
import pytest
from conftest import ROOT
from waiting import LIMIT_S, wait_until

import test_server
from test_serve import read_hello, start  # noqa: F401 (a fixture)

LONG = "Once upon a time in a small village by the sea there lived an old woman whom everyone"
BATCH = {"endpoint": "/v1/completions", "completion_window": "24h"}
ENDED = ("completed", "failed", "expired", "cancelled")


def serving(binary, model_path, folder, *args, key="none"):
    return test_server.serving(binary, model_path, "--files-dir", str(folder), *map(str, args), key=key)


@pytest.fixture(scope="module")
def server(chunkllama_bin, model_path, tmp_path_factory):
    with serving(chunkllama_bin, model_path, tmp_path_factory.mktemp("files") / "folder") as running:
        yield running


def request(i, body, url="/v1/completions"):
    return json.dumps({"custom_id": f"request-{i}", "method": "POST", "url": url, "body": body}) + "\n"


def completions(n, tokens=8):
    return "".join(request(i, {"model": "any", "prompt": f"{LONG} {i}", "max_tokens": tokens, "temperature": 0})
                   for i in range(n))


def upload(client, text, name="in.jsonl"):
    return client.files.create(purpose="batch", file=(name, text.encode()))


def begin(client, text, **more):
    return client.batches.create(input_file_id=upload(client, text).id, **{**BATCH, **more})


def wait_for(client, batch, *statuses):
    def look():
        seen = client.batches.retrieve(batch.id)
        counts = seen.request_counts
        assert counts.completed + counts.failed <= max(counts.total, 0)
        return seen if seen.status in (statuses or ENDED) else None

    return wait_until(look, batch)


def wait_for_records(client, batch, n):
    def look():
        seen = client.batches.retrieve(batch.id)
        return seen if seen.request_counts.completed >= n else None

    return wait_until(look, f"{n} records of {batch}")


def plain(text):
    """Records without what differs from run to run: the answers' ids and times, and which tokens were cached."""
    text = re.sub(r'"(chatcmpl|cmpl)-[0-9a-f]+"', '"ID"', text)
    text = re.sub(r'"cached_tokens": \d+', '"cached_tokens": 0', text)
    return re.sub(r'"created": \d+', '"created": 0', text)


# ---- Files ----


def test_files(server):
    files = server.client.files
    before = [f.id for f in files.list()]
    made = [upload(server.client, completions(1) * (i + 1), f"{i}.jsonl") for i in range(3)]
    assert made[0].object == "file" and made[0].purpose == "batch" and made[0].status == "processed"
    assert made[1].bytes == 2 * len(completions(1)) and made[1].filename == "1.jsonl" and made[1].id.startswith("file-")
    assert files.retrieve(made[2].id) == made[2]
    assert files.content(made[1].id).text == completions(1) * 2
    assert [f.id for f in files.list()] == [f.id for f in reversed(made)] + before
    assert [f.id for f in files.list(order="asc", after=made[0].id, limit=1)] == [made[1].id, made[2].id]  # the client pages
    page = files.list(limit=1)
    assert page.has_more and len(page.data) == 1
    assert list(files.list(purpose="batch_output")) == [] or before
    assert files.delete(made[1].id).deleted
    for call in (files.retrieve, files.content, files.delete):
        with pytest.raises(openai.NotFoundError):
            call(made[1].id)
    with pytest.raises(openai.NotFoundError):
        files.list(after="file-0")


def test_bytes_of_a_file_are_kept(server):
    """Any bytes, more than a buffer, and what looks like the form's own lines."""
    data = bytes(range(256)) * 5000 + b"\r\n--boundary\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\r\n--" + b"\r\n" * 9
    made = server.client.files.create(purpose="batch", file=("a/b\u00e9.bin", data))
    assert made.bytes == len(data) and made.filename.endswith("b\u00e9.bin") and "/" not in made.filename
    assert server.client.files.content(made.id).content == data


@pytest.mark.parametrize("purpose", ["fine-tune", "", "batch" * 100])
def test_other_purposes_are_refused(server, purpose):
    with pytest.raises(openai.BadRequestError, match="purpose") as error:
        server.client.files.create(purpose=purpose, file=("a", b"x"))
    assert error.value.param == "purpose"


def test_large_files(chunkllama_bin, model_path, tmp_path):
    """A file beyond the limit of bodies is accepted, one beyond that of files is not, and nothing of it stays."""
    with serving(chunkllama_bin, model_path, tmp_path / "f", "--max-file-bytes", "40M") as server:
        made = server.client.files.create(purpose="batch", file=("large", b"x" * (40 << 20)))
        assert made.bytes == 40 << 20
        for size in ((40 << 20) + 1, 60 << 20):
            with pytest.raises(openai.APIStatusError) as error:
                server.client.files.create(purpose="batch", file=("larger", b"x" * size))
            assert error.value.status_code == 413
        resident = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{server.process.pid}/status").read_text())[1])
        print(f"peak {resident} KiB")
    assert sorted(p.suffix for p in (tmp_path / "f").iterdir()) == [".data", ".db"]


def test_without_the_option(chunkllama_bin, model_path, tmp_path):
    args = [chunkllama_bin, "serve", "-m", model_path, "--port", "0"]
    process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
    url = re.search(r"at (http://\S+)", process.stdout.readline())[1]
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    for call in (lambda: upload(client, "x"), client.files.list, client.batches.list, lambda: client.batches.cancel("b"),
                 lambda: client.batches.create(input_file_id="file-1", **BATCH)):
        with pytest.raises(openai.NotFoundError, match="--files-dir"):
            call()
    process.terminate()
    assert process.wait(timeout=LIMIT_S) == 0


def test_a_folder_has_one_server(server, chunkllama_bin, model_path, tmp_path):
    with serving(chunkllama_bin, model_path, tmp_path / "f"):
        done = subprocess.run([chunkllama_bin, "serve", "-m", model_path, "--port", "0", "--files-dir", tmp_path / "f"],
                              capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode != 0 and "another process has the folder" in done.stderr


# ---- Batches ----


def test_a_batch_is_what_the_command_computes(server, chunkllama, tmp_path):
    """The same records, byte for byte, as `chunkllama batch` writes, answers and errors together in the order of the input."""
    lines = [request(0, {"model": "m", "prompt": LONG, "max_tokens": 12, "temperature": 0, "logprobs": 2}),
             request(1, {"model": "m", "prompt": LONG, "max_tokens": -7}),
             request(2, {"prompt": [LONG, "The sea"], "max_tokens": 4, "n": 2, "seed": 7}),
             request(3, {"model": "m", "prompt": LONG + " loved", "max_tokens": 24, "seed": 5, "temperature": 0.7})]
    text = lines[0] + "\n" + "".join(lines[1:])
    before = datetime.datetime.now().timestamp()
    batch = begin(server.client, text, metadata={"who": "test"})
    assert batch.object == "batch" and batch.status in ("validating", "in_progress") and batch.metadata == {"who": "test"}
    batch = wait_for(server.client, batch)
    assert batch.status == "completed", batch
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (4, 3, 1)
    assert batch.in_progress_at and batch.finalizing_at and batch.completed_at
    assert before - 2 < batch.expires_at - 86400 <= batch.created_at  # in whole seconds, by a coarse clock

    (tmp_path / "in.jsonl").write_text("".join(lines))
    chunkllama("batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model-name",
               f"{server.client.models.list().data[0].id},*", status=1)
    expected = (tmp_path / "out.jsonl").read_text().splitlines(keepends=True)
    answers = server.client.files.content(batch.output_file_id).text
    errors = server.client.files.content(batch.error_file_id).text
    assert plain(answers) == plain("".join(expected[:1] + expected[2:]))
    assert plain(errors) == plain(expected[1])
    record = json.loads(errors)
    assert record["custom_id"] == "request-1" and record["response"]["status_code"] == 400 and record["error"] is None
    output = server.client.files.retrieve(batch.output_file_id)
    assert output.purpose == "batch_output" and output.filename == f"{batch.id}_output.jsonl" and output.bytes == len(answers.encode())


def test_chats_and_embeddings(server):
    question = {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 4, "min_tokens": 4, "temperature": 0}
    chat = "".join(request(i, question, "/v1/chat/completions") for i in range(3))
    vectors = "".join(request(i, {"input": f"{LONG} {i}"}, "/v1/embeddings") for i in range(3))
    batches = [begin(server.client, chat, endpoint="/v1/chat/completions"),
               begin(server.client, vectors, endpoint="/v1/embeddings")]
    chats, embeddings = [[json.loads(line)["response"]["body"] for line in
                          server.client.files.content(wait_for(server.client, b).output_file_id).text.splitlines()]
                         for b in batches]
    assert all(body["choices"][0]["message"]["content"] for body in chats) and len(chats) == 3
    alone = server.client.embeddings.create(model="m", input=f"{LONG} 2", encoding_format="float")
    assert embeddings[2]["data"][0]["embedding"] == alone.data[0].embedding
    assert [b.id for b in server.client.batches.list(limit=1)][:2] == [batches[1].id, batches[0].id]


def test_other_apis(server):
    """The answers and errors of a batch are those that the endpoint sends."""
    question = {"model": "m", "temperature": 0, "min_tokens": 4}
    bodies = {"/v1/responses": question | {"input": "Why?", "max_output_tokens": 4, "stream": True},
              "/v1/messages": question | {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 4}}
    texts = {}
    for url, body in bodies.items():
        batch = begin(server.client, request(0, body, url) + request(1, body | {"temperature": -1}, url), endpoint=url)
        batch = wait_for(server.client, batch)
        assert batch.status == "completed" and (batch.request_counts.completed, batch.request_counts.failed) == (1, 1)
        answer, error = [json.loads(server.client.files.content(file).text)["response"]
                         for file in (batch.output_file_id, batch.error_file_id)]
        assert error["status_code"] == 400 and "temperature" in error["body"]["error"]["message"]
        texts[url] = answer["body"], error["body"]
    (response, _), (message, error) = texts.values()
    assert response["object"] == "response" and response["usage"]["output_tokens"] == 4
    assert message["type"] == "message" and message["usage"]["output_tokens"] == 4
    assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
    assert message["content"][0]["text"] == response["output"][0]["content"][0]["text"] != ""


def test_an_input_that_is_wrong(server):
    text = ("no json\n" + request(0, {}) + request(0, {}) + request(1, {}, "/v1/embeddings") +
            '{"custom_id": "x", "method": "GET", "url": "/v1/completions", "body": {}}\n{"custom_id": 1}\n')
    batch = wait_for(server.client, begin(server.client, text))
    assert batch.status == "failed" and batch.failed_at and batch.output_file_id is None
    errors = [(e.line, e.code, e.param) for e in batch.errors.data]
    assert errors == [(1, "invalid_json_line", None), (3, "duplicate_custom_id", "custom_id"), (4, "invalid_value", "url"),
                      (5, "invalid_value", "method"), (6, "invalid_value", "custom_id"),
                      (6, "missing_required_parameter", "method"), (6, "missing_required_parameter", "url"),
                      (6, "missing_required_parameter", "body")]
    empty = wait_for(server.client, begin(server.client, "\n \n"))
    assert empty.status == "failed" and empty.errors.data[0].code == "empty_file"
    many = wait_for(server.client, begin(server.client, "".join(request(i, {}) for i in range(50001))))
    assert many.status == "failed" and many.errors.data[0].code == "too_many_requests" and many.errors.data[0].line == 50001


@pytest.mark.parametrize("param, fields", [
    ("input_file_id", {"input_file_id": "file-1"}),
    ("endpoint", {"endpoint": "/v1/images"}),
    ("completion_window", {"completion_window": "soon"}),
    ("completion_window", {"completion_window": "0h"}),
    ("metadata", {"metadata": {"a": "x" * 600}}),
    ("metadata", {"metadata": {str(i): "" for i in range(17)}}),
])
def test_bad_batches(server, param, fields):
    file = upload(server.client, completions(1))
    with pytest.raises(openai.APIStatusError) as error:
        server.client.batches.create(**{"input_file_id": file.id, **BATCH, **fields})
    assert error.value.param == param and error.value.status_code == (404 if param == "input_file_id" else 400)


def test_cancel(server):
    """What was computed stays; the batch behind it goes on. The input cannot be removed while it is read."""
    first, second = begin(server.client, completions(400, 64)), begin(server.client, completions(2))
    wait_for_records(server.client, first, 1)
    with pytest.raises(openai.ConflictError):
        server.client.files.delete(first.input_file_id)
    assert server.client.batches.cancel(first.id).status in ("cancelling", "cancelled")
    first = wait_for(server.client, first)
    assert first.status == "cancelled" and first.cancelled_at and first.request_counts.total == 400
    records = [json.loads(line) for line in server.client.files.content(first.output_file_id).text.splitlines()]
    assert len(records) == first.request_counts.completed < 400
    assert all(r["response"]["body"]["choices"][0]["finish_reason"] in ("length", "stop") for r in records)
    second = wait_for(server.client, second)
    assert second.status == "completed"
    with pytest.raises(openai.ConflictError):
        server.client.batches.cancel(second.id)
    assert server.client.files.delete(first.input_file_id).deleted


def test_a_batch_is_removed(server):
    batch = wait_for(server.client, begin(server.client, completions(1, tokens=1)))
    request = urllib.request.Request(f"{server.url}/v1/batches/{batch.id}", method="DELETE")
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        assert json.load(reply) == {"id": batch.id, "object": "batch", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        server.client.batches.retrieve(batch.id)
    assert batch.id not in [b.id for b in server.client.batches.list()]


def make_odd(path, kind):
    if kind == "text":
        path.write_bytes(b"This is no database." * 100)
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        os.mknod(path, 0o600 | {"pipe": stat.S_IFIFO, "socket": stat.S_IFSOCK}[kind])


@pytest.mark.parametrize("sandbox", [(), ("--sandbox",)], ids=["plain", "sandbox"])
@pytest.mark.parametrize("kind", ["text", "pipe", "socket", "link"])
def test_a_damaged_folder_keeps_no_server_from_its_start(start, tmp_path, kind, sandbox):
    make_odd(tmp_path / "index.db", kind)
    if kind != "text":
        make_odd(tmp_path / "index.db-wal", kind)
    server = start("--port", "0", "--files-dir", str(tmp_path), *sandbox)
    url, _ = read_hello(server)
    assert any("--files-dir: something damaged is not used" in line and "index.db" in line for line in server.stderr)
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=LIMIT_S)
    assert client.files.content(upload(client, "text").id).text == "text"


def test_a_batch_expires(server):
    batch = wait_for(server.client, begin(server.client, completions(500, 64), completion_window="1s"))
    assert batch.status == "expired" and batch.expired_at
    counts = batch.request_counts
    assert counts.total == 500 == counts.completed + counts.failed
    errors = [json.loads(line) for line in server.client.files.content(batch.error_file_id).text.splitlines()]
    assert len(errors) == counts.failed and errors[-1]["custom_id"] == "request-499"
    assert all(e["response"] is None and e["error"]["code"] == "batch_expired" for e in errors)


def test_a_stream_beside_a_batch(server):
    """The bytes are those of the stream alone, and it does not wait for the batch."""

    def stream():
        chunks = server.client.completions.create(model="m", prompt=LONG, max_tokens=32, temperature=0, stream=True)
        return "".join(chunk.choices[0].text for chunk in chunks)

    alone = stream()
    batch = begin(server.client, completions(1000, 32))
    wait_for_records(server.client, batch, 1)
    beside = [stream() for _ in range(3)]
    assert server.client.batches.retrieve(batch.id).status == "in_progress"
    server.client.batches.cancel(batch.id)
    assert beside == [alone] * 3
    wait_for(server.client, batch)


# ---- Restarts ----


@pytest.mark.parametrize("sandbox", [
    pytest.param((), id="plain", marks=pytest.mark.long), pytest.param(("--sandbox",), id="sandbox"),
])
def test_a_batch_survives_kill(chunkllama_bin, model_path, chunkllama, tmp_path, sandbox):
    """SIGKILL in the middle, three times, one of them with a torn record: what was reported is never lost, nothing is computed
    twice, and the bytes are those of `chunkllama batch`."""
    text = completions(60, 48)
    args = ("--max-seqs", 4, *sandbox)
    folder, reported, batch = tmp_path / "f", 0, None
    for i in range(3):
        with serving(chunkllama_bin, model_path, folder, *args) as server:
            if not batch:
                batch = begin(server.client, text)
            else:
                assert server.client.batches.retrieve(batch.id).request_counts.completed >= reported
            reported = wait_for_records(server.client, batch, reported + 5).request_counts.completed
            server.kill()
        if i == 1:  # a transaction that was not committed
            log = folder / "index.db-wal"
            with open(log, "ab") as out:
                out.write(log.read_bytes()[-4120:-2000])
    with serving(chunkllama_bin, model_path, folder, *args) as server:
        server.process.send_signal(signal.SIGTERM)  # an orderly end in the middle
        assert server.process.wait(timeout=LIMIT_S) == 0
    with serving(chunkllama_bin, model_path, folder, *args) as server:
        batch = wait_for(server.client, batch)
        assert batch.status == "completed" and batch.request_counts.completed == 60 and batch.error_file_id is None
        answers = server.client.files.content(batch.output_file_id).text
        name = server.client.models.list().data[0].id
    (tmp_path / "in.jsonl").write_text(text)
    chunkllama("batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model-name", f"{name},*")
    assert plain(answers) == plain((tmp_path / "out.jsonl").read_text())
    assert sorted(p.suffix for p in folder.iterdir()) == [".data", ".data", ".db"]


def old_form(folder):
    """Write the folder as earlier versions did: a record for each file and batch, and the output of batches that go on in files."""
    with contextlib.closing(sqlite3.connect(folder / "index.db")) as index:
        for kind in ("file", "batch"):
            for sequence, id, domain, object in index.execute(f"SELECT sequence, id, domain, object FROM {kind}_object").fetchall():
                ids = {"output": f"file-o{sequence}", "errors": f"file-e{sequence}"} if kind == "batch" else {}
                record = {"tenant": "default", "domain": domain, "sequence": sequence, "object": json.loads(object), **ids}
                (folder / f"{id}.json").write_text(json.dumps(record))
                for failed, name in enumerate(ids.values()):
                    rows = index.execute("SELECT record FROM request WHERE batch = ? AND failed = ? ORDER BY number", (sequence, failed))
                    (folder / f"{name}.data").write_bytes(b"".join(row[0] for row in rows))
    for path in folder.glob("index.db*"):
        path.unlink()


def convert(folder):
    done = subprocess.run([ROOT / "scripts/convert_files_dir.py", folder], capture_output=True, text=True, timeout=LIMIT_S)
    return done.returncode, done.stderr


def test_a_folder_of_an_earlier_version_is_converted(chunkllama_bin, model_path, tmp_path):
    """It is refused with the command that converts it; then all is as before, and a batch goes on."""
    folder = tmp_path / "f"
    wrong = request("x", {"max_tokens": -7, "prompt": "a"})
    with serving(chunkllama_bin, model_path, folder) as server:
        ended = wait_for(server.client, begin(server.client, completions(2) + wrong, metadata={"a": "b"}))
        batch = begin(server.client, "\n" + wrong + completions(40, 48))
        before = wait_for_records(server.client, batch, 3)
        files = list(server.client.files.list())
        server.kill()
    assert convert(folder) == (1, f"{folder} has an index already\n")
    old_form(folder)
    with open(max(folder.glob("file-o*.data")), "ab") as out:
        out.write(b'{"id": "batch_req_')
    refused = subprocess.run([chunkllama_bin, "serve", "-m", model_path, "--port", "0", "--files-dir", folder], capture_output=True,
                             text=True, timeout=LIMIT_S)
    assert refused.returncode != 0 and "scripts/convert_files_dir.py" in refused.stderr
    assert convert(folder) == (0, "")
    assert not list(folder.glob("*.json"))
    with serving(chunkllama_bin, model_path, folder) as server:
        assert list(server.client.files.list())[-len(files):] == files and server.client.batches.retrieve(ended.id) == ended
        assert len(server.client.files.content(ended.output_file_id).text.splitlines()) == 2
        assert convert(folder) == (1, f"a server uses {folder}; stop it first\n")
        now = server.client.batches.retrieve(batch.id)
        assert now.request_counts.completed >= before.request_counts.completed
        done = wait_for(server.client, batch)
        assert done.status == "completed" and done.request_counts.completed == 40 and done.request_counts.failed == 1
        lines = server.client.files.content(done.output_file_id).text.splitlines()
        assert [json.loads(line)["custom_id"] for line in lines] == [f"request-{i}" for i in range(40)]


# ---- Tenants ----


def test_tenants(chunkllama_bin, model_path, tmp_path):
    """For others the files and batches of a tenant do not exist; their batches run side by side."""
    (tmp_path / "keys").write_text("alice key-a\nbob key-b\n")
    with serving(chunkllama_bin, model_path, tmp_path / "f", "--api-keys", tmp_path / "keys", key="key-a") as server:
        alice, bob = server.client, server.client_of("key-b")
        long = begin(alice, completions(1000, 32))
        wait_for_records(alice, long, 1)
        batch = wait_for(bob, begin(bob, completions(3)))
        assert batch.status == "completed" and alice.batches.retrieve(long.id).status == "in_progress"
        for call in (lambda: alice.files.retrieve(batch.input_file_id), lambda: alice.files.content(batch.output_file_id),
                     lambda: alice.files.delete(batch.input_file_id), lambda: alice.batches.retrieve(batch.id),
                     lambda: alice.batches.cancel(batch.id), lambda: alice.files.list(after=batch.input_file_id),
                     lambda: alice.batches.create(input_file_id=batch.input_file_id, **BATCH)):
            with pytest.raises(openai.NotFoundError):
                call()
        assert [b.id for b in alice.batches.list()] == [long.id] and len(list(bob.files.list())) == 2
        alice.batches.cancel(long.id)
        with pytest.raises(openai.AuthenticationError):
            server.client_of("wrong").files.list()
        # A line may name another tenant, which has no effect.
        line = json.loads(completions(1)) | {"tenant": "alice"}
        again = wait_for(bob, begin(bob, json.dumps(line)))
        body = json.loads(bob.files.content(again.output_file_id).text)["response"]["body"]
        assert again.status == "completed" and body["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
