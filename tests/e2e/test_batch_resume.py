"""`chunkllama batch` as a long job: signals, --resume, --shard, and the order in which it computes."""
import json
import os
import random
import re
import shlex
import signal
import subprocess

import pytest
from holding import Hold
from waiting import LIMIT_S

FLAGS = ["--temperature", "0", "--max-seqs", "2", "--ignore-eos"]


def lines_of(n=24, groups=3, shared=64, tokens=16):
    """Requests in `groups` groups with a common prefix each, in random order; both forms, and a line that is an error."""
    draw = random.Random(7)
    prefixes = [[draw.randrange(300, 16000) for _ in range(shared)] for _ in range(groups)]
    lines = []
    for i in range(n):
        prompt = prefixes[i % groups] + [draw.randrange(300, 16000) for _ in range(6)]
        if i % 4 == 1:
            body = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True}
            lines.append({"custom_id": f"c{i}", "url": "/v1/completions", "body": body})
        else:
            lines.append({"id": f"s{i}", "prompt": prompt, "max_tokens": tokens})
    draw.shuffle(lines)
    lines.insert(n // 2, {"id": "wrong", "prompt": "x", "temperature": -1})
    return lines


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def ids_of(path):
    return [r.get("custom_id", r["id"]) for r in map(json.loads, path.read_text().splitlines())]


@pytest.fixture(scope="module")
def job(chunkllama_bin, held_bin, model_path, tmp_path_factory):
    """The input, and the command without the output, with the bytes of an output that nothing has stopped."""

    class Job:
        folder = tmp_path_factory.mktemp("job")
        source, out = folder / "in file.jsonl", folder / "out.jsonl"
        partial = folder / "out.jsonl.partial"
        command = [str(chunkllama_bin), "batch", "-m", str(model_path), "-i", str(source), *FLAGS]
        hold = Hold(tmp_path_factory.mktemp("hold"))

        def run(self, *args, status=1, out=None):  # the wrong line makes it 1
            command = [*self.command, "-o", out or self.out, *args]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
            assert done.returncode == status, done.stderr
            return done.stderr

        def n_done(self):
            return sum(path.read_bytes().count(b"\n") for path in (self.out, self.partial) if path.exists())

        def stop(self, *signals, more=4, resume=False):
            """Send signals once `more` further records are there; the exit status and what was printed."""
            begun = self.n_done() if resume else 1  # the first line of the partial file is none
            if not resume:
                self.out.unlink(missing_ok=True)
            with self.hold("step", reached=False):
                command = [held_bin, *self.command[1:], "-o", self.out, "--resume"]
                process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=self.hold.env)
                self.hold.wait("step")
                while self.n_done() < begun + more:
                    self.hold.next("step")
                for number in signals:
                    process.send_signal(number)
            errors = process.communicate(timeout=LIMIT_S)[1]
            return process.returncode, errors

    job = Job()
    write(job.source, lines_of())
    job.run(out=job.folder / "whole.jsonl")
    job.whole = (job.folder / "whole.jsonl").read_bytes()
    return job


def test_order_and_ids(job):
    assert ids_of(job.folder / "whole.jsonl") == [line.get("custom_id", line.get("id")) for line in lines_of()]
    assert not (job.folder / "whole.jsonl.partial").exists()


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_by_a_signal(job, number, status):
    code, errors = job.stop(number)
    done = int(re.search(rf"stopped by {number.name}; (\d+) of 25 requests are done", errors).group(1))
    assert code == status and 4 <= done < 25
    assert done == job.n_done() - 1  # all that is done is there
    command = shlex.split(errors.splitlines()[-1])
    assert command[1:] == [*job.command[1:], "-o", str(job.out), "--resume"]
    ended = subprocess.run([job.command[0], *command[1:]], stderr=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    assert ended.returncode == 1 and "1 of 25 requests failed" in ended.stderr
    assert f"kept       {done} answers" in ended.stderr and f"requests   {25 - done} in" in ended.stderr
    assert job.out.read_bytes() == job.whole and not job.partial.exists()


def test_killed_twice(job):
    """Records keep the time of the input as it was when the job began: then it is touched, and in the end it is a pipe."""
    before = os.stat(job.source)
    assert job.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    first = job.n_done()
    try:
        os.utime(job.source, (1, 1))
        assert job.stop(signal.SIGKILL, resume=True)[0] == -signal.SIGKILL
    finally:
        os.utime(job.source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert job.n_done() >= first + 4
    command = [*(part if part != str(job.source) else "-" for part in job.command), "-o", job.out, "--resume"]
    done = subprocess.run(command, input=job.source.read_bytes(), capture_output=True, timeout=LIMIT_S)
    assert done.returncode == 1, done.stderr
    assert job.out.read_bytes() == job.whole and not job.partial.exists()


def test_a_second_signal_ends_at_once(job):
    """Both are sent together; what the first one would still have written is computed again."""
    code, _ = job.stop(signal.SIGTERM, signal.SIGINT)
    assert code in (130, 143)
    job.run("--resume")
    assert job.out.read_bytes() == job.whole


@pytest.mark.parametrize("size", [9, -1])
def test_a_torn_line_is_computed_again(job, size):
    """The output ends within a record, and the partial file is gone, or ends within one, too."""
    lines = job.whole.splitlines(keepends=True)
    job.out.write_bytes(b"".join(lines[:20]) + lines[20][:size])
    job.partial.unlink(missing_ok=True)
    errors = job.run("--resume")
    assert "kept       20 answers" in errors
    assert job.out.read_bytes() == job.whole


def test_a_torn_line_of_the_partial_file(job):
    job.stop(signal.SIGKILL)
    saved = job.partial.read_bytes()
    assert saved.count(b"\n") >= 2  # the first group's lines are not the first of the input
    job.partial.write_bytes(saved[:-30])
    job.run("--resume")
    assert job.out.read_bytes() == job.whole and not job.partial.exists()


def test_all_is_there(job):
    job.out.write_bytes(job.whole)
    assert "kept       25 answers" in job.run("--resume")
    assert job.out.read_bytes() == job.whole


def test_foreign_outputs_are_refused_and_kept(job):
    records = job.whole.splitlines(keepends=True)
    job.partial.unlink(missing_ok=True)
    for foreign, reason in ((b"".join(records[1:3]), "line 1 of"), (job.whole + records[0], "line 26 of"),
                            (b"my notes", "line 1 of"), (records[0] + b"{}\n", "line 2 of")):
        job.out.write_bytes(foreign)
        errors = job.run("--resume")
        assert f"--resume: {reason} " in errors and "name the output of this input, or leave --resume out" in errors
        assert job.out.read_bytes() == foreign
    job.stop(signal.SIGKILL)
    before = job.out.read_bytes(), job.partial.read_bytes()
    assert "was begun with --logprobs -1, and now it is 2; use the same options" in job.run("--resume", "--logprobs", "2")
    source = job.source.read_text()
    try:
        job.source.write_text(source.replace("[", "[1, ", 1))
        assert "was begun with other requests than those of --input" in job.run("--resume")
    finally:
        job.source.write_text(source)
    assert (job.out.read_bytes(), job.partial.read_bytes()) == before
    model = re.search(rb'"model file":"(\w{16})"', before[1])[1]
    job.partial.write_bytes(before[1].replace(model, model[::-1], 1))
    assert "was begun with another model than --model has now" in job.run("--resume")
    job.partial.write_bytes(before[1].replace(b'"penalty window":-1', b'"penalty window":64', 1))
    assert "was begun with penalties that count another number of tokens" in job.run("--resume")
    assert "name it with --output" in job.run("--resume", "-o", "-")


def test_shards(job):
    """Each line is in one shard; no group of three is in two of three shards, and these have as many tokens."""
    lines, seen = lines_of(), []
    for i in (1, 2, 3):
        out = job.folder / f"shard{i}.jsonl"
        job.run("--shard", f"{i}/3", out=out, status=1 if i == 1 else 0)
        ids = ids_of(out)
        assert ("wrong" in ids) == (i == 1)  # it has no tokens, so it is the first by these
        order = [line.get("custom_id", line.get("id")) for line in lines]
        assert ids == [x for x in order if x in ids]
        groups = {int(x[1:]) % 3 for x in ids if x != "wrong"}
        assert len(groups) == 1 and len([x for x in ids if x != "wrong"]) == 8
        seen += ids
    assert sorted(seen) == sorted(line.get("custom_id", line.get("id")) for line in lines)
    for shard in ("0/3", "4/3", "1", "1/3x", "-1/3"):
        assert f"--shard is '{shard}'; it must be I/N" in job.run("--shard", shard, out=job.folder / "x")


def test_memory_of_prefix_groups(chunkllama, tmp_path):
    """Lines in random order need no more K/V than in the best order, and compute each prefix once."""
    n, summaries = 28, []  # 7 of a group, 4 at once: some are always of two groups, whenever the first steps begin
    lines = [line for line in lines_of(n=n, groups=4, shared=256, tokens=2) if line.get("id") != "wrong"]
    by_hand = sorted(lines, key=lambda line: line.get("prompt") or line["body"]["prompt"])
    for name, ordered in (("random", lines), ("hand", by_hand)):
        write(tmp_path / "in", ordered)
        chunkllama("batch", "-i", tmp_path / "in", "-o", tmp_path / "out", "--summary", tmp_path / name, "--max-seqs", 4, "--ignore-eos")
        summaries.append(json.loads((tmp_path / name).read_text()))
        records = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
        usages = [r.get("usage") or r["response"]["body"]["usage"] for r in records]
        cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages)
        assert sum(u["prompt_tokens"] for u in usages) - cached == summaries[-1]["prefill_tokens_computed"] == 4 * 256 + n * 6
    assert summaries[0]["kv_bytes_peak"] <= 1.1 * summaries[1]["kv_bytes_peak"]
