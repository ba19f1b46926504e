"""`chunkllama bench serve` against our server and against endpoints that misbehave."""
import concurrent.futures
import contextlib
import http.server
import json
import os
import re
import socket
import subprocess
import threading

import pytest
from terminal import INTERRUPT, Terminal
from test_drain import wait_for_requests
from test_serve import hold, read_hello, start  # noqa: F401 (two are fixtures)
from test_server import serving
from waiting import LIMIT_S


@pytest.fixture(scope="module")
def url(chunkllama_bin, model_path):
    with serving(chunkllama_bin, model_path) as server:
        yield server.url


@pytest.fixture
def bench(chunkllama):
    def run(url, *args, status=0):
        done = chunkllama("bench", "serve", "--url", url, *args, "--json", status=status)
        return json.loads(done.stdout)

    return run


# ---- Our server ----


def test_all_at_once(bench, start, hold):
    """No step begins before all are there."""
    url, _ = read_hello(start("--port", "0", hold=hold))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with hold("step", reached=False):
            done = pool.submit(bench, url, "--requests", "6", "--prompt-tokens", "80", "--shared-tokens", "64", "-n", "48",
                               "--warm-up", "0")
            wait_for_requests(url, 6)
        got = done.result()
    assert got["requests"] == {"total": 6, "ok": 6, "unreachable": 0, "refused": 0, "bad_stream": 0, "cut": 0, "wrong_length": 0}
    assert (got["prompt_tokens"], got["completion_tokens"], got["errors"]) == (6 * 80, 6 * 48, [])
    assert got["cached_tokens"] == 5 * 64  # the first request computes these
    assert got["peak"]["in_flight"] == 6 and got["peak"]["batch"] == 6
    assert 0 < got["peak"]["kv_bytes"] < got["peak"]["kv_bytes_unshared"]
    assert 0 < got["itl_s"]["n"] <= 6 * 47  # tokens that come together have no time between them
    assert 0 < got["ttft_s"]["mean"] < got["end_to_end_s"]["mean"] <= got["seconds"]
    assert got["normalized_latency_s"]["mean"] == pytest.approx(got["end_to_end_s"]["mean"] / 48)
    assert got["tpot_s"]["mean"] == pytest.approx((got["end_to_end_s"]["mean"] - got["ttft_s"]["mean"]) / 47)
    assert got["output_tokens_per_s"] == pytest.approx(6 * 48 / got["seconds"])


def test_rate_and_concurrency(bench, url):
    """A request that is not due is not sent."""
    got = bench(url, "--requests", "5", "--rate", "20", "--prompt-tokens", "8", "-n", "2", "--seed", "5")
    assert got["load"]["rate"] == 20 and got["requests"]["ok"] == 5
    few = bench(url, "--requests", "5", "--rate", "0.001", "--time-limit", "1", "--prompt-tokens", "8", "-n", "2", status=1)
    assert few["requests"]["cut"] >= 4
    one = bench(url, "--requests", "4", "--max-concurrency", "1", "--prompt-tokens", "8", "-n", "3")
    assert one["peak"]["in_flight"] == 1 and one["requests"]["ok"] == 4
    # Waiting for a place counts in end_to_end, but not in what follows the first token.
    assert one["end_to_end_s"]["max"] == pytest.approx(one["seconds"])


def test_warm_prefixes(bench, url):
    args = ["--requests", "4", "--prompt-tokens", "80", "--shared-tokens", "64", "--prefixes", "2", "-n", "2"]
    assert bench(url, *args, "--seed", "11")["cached_tokens"] == 2 * 64
    assert bench(url, *args, "--seed", "12", "--warm-prefixes")["cached_tokens"] >= 4 * 62


def test_text_prompts(bench, url):
    got = bench(url, "--requests", "2", "--prompt-tokens", "50", "-n", "3", "--text")
    assert got["prompt_tokens"] == 100


def test_distributions(bench, chunkllama, url, tmp_path):
    """The file has the results and two curves, from the fastest request to the slowest, whose ends are those of the report."""
    got = bench(url, "--requests", "5", "--prompt-tokens", "8", "-n", "3", "--output", tmp_path / "out.json")
    written = json.loads((tmp_path / "out.json").read_text())
    assert written == got | {key: written[key] for key in ("title", "plot", "rows")} and got["requests"]["ok"] == 5
    for name, figure in (("TTFT", "ttft_s"), ("TPOT", "tpot_s")):
        curve = [(row["ms"], row["percent"]) for row in written["rows"] if row["figure"] == name]
        assert len(curve) == 51 and curve == sorted(curve) and [curve[0][1], curve[-1][1]] == [0, 100]
        assert curve[-1][0] == pytest.approx(1e3 * got[figure]["max"])
        assert curve[25] == (pytest.approx(1e3 * got[figure]["median"]), 50)
    wrong = chunkllama("bench", "serve", "--url", url, "--requests", "1", "-n", "2", "--output", "/none/x.json", status=1)
    assert "cannot write /none/x.json: No such file or directory" in wrong.stderr


@pytest.mark.long
def test_distributions_are_drawn(bench, plot, url, tmp_path):
    bench(url, "--requests", "2", "--prompt-tokens", "8", "-n", "3", "--output", tmp_path / "out.json")
    _, description, rows = plot.load(tmp_path / "out.json")
    drawn = plot.draw(description, rows).axes
    assert [(axes.get_xlabel(), axes.get_title("left")) for axes in drawn] == [("ms", "TTFT"), ("ms", "TPOT")]
    assert [[*zip(*axes.lines[0].get_data())] for axes in drawn] == [
        [(row["ms"], row["percent"]) for row in rows if row["figure"] == name] for name in ("TTFT", "TPOT")]


def test_interrupt(chunkllama_bin, url, terminals):
    """The figures of the requests so far are printed; the bar shows the time left."""
    with Terminal([chunkllama_bin, "bench", "serve", "--url", url, "--requests", "1000", "--max-concurrency", "1", "--prompt-tokens",
                   "8", "-n", "8"]) as t:
        t.read_until(" left\x1b[K")
        t.send(INTERRUPT)
        assert t.wait() == 130 << 8
    assert re.search(rb"\r\[#*\.+\] \d+/1000 requests, \d+ tokens, [\d.]+ tokens/s, \d+:\d\d left\x1b\[K", t.shown)
    n = int(re.search(rb"interrupted after (\d+) of 1000 requests, whose figures are above; .* --requests \1 ", t.shown)[1])
    assert 0 < n < 1000 and b"TTFT" in t.shown


def test_the_url_is_without_v1(chunkllama, url):
    message = chunkllama("bench", "serve", "--url", url + "/v1", status=1).stderr
    assert f"there is no {url}/v1/v1/models (HTTP 404); --url names the endpoint, without /v1" in message


def test_workload(bench, url, tmp_path):
    lines = [{"id": 1, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 3},
             {"custom_id": "b", "url": "/v1/completions", "body": {"prompt": "Once upon a time", "max_tokens": 5}}]
    (tmp_path / "w.jsonl").write_text("\ufeff" + "".join(json.dumps(line) + "\n" for line in lines))
    own = bench(url, "-i", tmp_path / "w.jsonl", "-n", "0")
    assert own["requests"]["ok"] == 2 and own["completion_tokens"] == 8
    fixed = bench(url, "-i", tmp_path / "w.jsonl", "--requests", "3", "-n", "6")
    assert fixed["requests"]["ok"] == 3 and fixed["completion_tokens"] == 18


def test_input_path_that_is_not_utf8(bench, url, tmp_path):
    path = tmp_path / os.fsdecode(b"w\xe9.jsonl")
    path.write_text(json.dumps({"prompt": "a"}) + "\n")
    assert bench(url, "-i", path, "-n", "1")["load"]["input"] == f"{tmp_path}/w\ufffd.jsonl"


def test_refusals_are_counted(bench, url):
    got = bench(url, "--requests", "3", "--prompt-tokens", "9000", "--warm-up", "0", status=1)
    assert got["requests"]["refused"] == 3 and got["normalized_latency_s"] is None
    error, = got["errors"]
    assert error["count"] == 3 and "context length is 8192 tokens; 'prompt' has 9000:" in error["message"]


def test_time_limit(bench, url):
    got = bench(url, "--requests", "40", "--prompt-tokens", "600", "-n", "400", "--time-limit", "1.5", "--warm-up", "0", status=1)
    assert got["requests"]["cut"] > 0 and sum(got["requests"].values()) - got["requests"]["total"] == 40


def test_table_and_file(chunkllama, url, tmp_path):
    done = chunkllama("bench", "serve", "--url", url + "/", "--requests", "2", "--prompt-tokens", "8", "-n", "2", "--output",
                      tmp_path / "out.json")
    assert done.stdout.startswith("requests        2: 2 answered\n") and "normalized latency, ms/token" in done.stdout
    assert json.loads((tmp_path / "out.json").read_text())["completion_tokens"] == 4


@pytest.mark.parametrize("args", [[], ["--json"]])
def test_full_disk(chunkllama_bin, url, args):
    command = [chunkllama_bin, "bench", "serve", "--url", url, "--requests", "1", "--prompt-tokens", "8", "-n", "2", *args]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S)
    assert done.returncode == 1 and done.stderr.startswith("chunkllama bench serve: cannot write all to standard output: "), done
    assert done.stderr.count("\n") == 1


# ---- Wrong usage ----


@pytest.mark.parametrize("args, message", [
    (["--shared-tokens", "9", "--prompt-tokens", "8"], "--shared-tokens is 9; it must be at most --prompt-tokens, 8"),
    (["-n", "0"], "--completion-tokens is 0, which needs --input: only a file's requests have lengths of their own"),
    (["--warm-prefixes"], "--warm-prefixes needs --shared-tokens"),
    (["--extra-body", "[1]"], "--extra-body is not a JSON object"),
    (["--input", "/nowhere.jsonl", "--model-name", "m"], "cannot open /nowhere.jsonl"),
    (["--url", "http://127.0.0.1:1"], "cannot reach http://127.0.0.1:1: "),
    (["--url", "http://127.0.0.1:1", "--model-name", "m"], "warm-up request 0 failed, unreachable: "),
])
def test_wrong_usage(chunkllama, args, message):
    assert message in chunkllama("bench", "serve", *args, status=1).stderr


def test_wrong_values(chunkllama):
    assert "--rate is 0; it must be from 1e-06 to inf" in chunkllama("bench", "serve", "--rate", "0", status=2).stderr
    assert "chunkllama bench serve: unknown option --urll" in chunkllama("bench", "serve", "--urll", "x", status=2).stderr


# ---- Endpoints that misbehave ----

CHUNK = b'data: {"choices": [{"text": "a", "finish_reason": null}]}\n\n'
REPLIES = {
    "fine": (200, [CHUNK, CHUNK, b"data: [DONE]\n\n"]),
    "cut": (200, [CHUNK]),
    "garbage": (200, [b"data: {{{\n\n"]),
    "error": (200, [CHUNK, b'data: {"error": {"message": "out of memory"}}\n\n', b"data: [DONE]\n\n"]),
    "busy": (429, [b'{"error": {"message": "try later"}}']),
    "endless": (200, [CHUNK, b"data: " + b"x" * (17 << 20)]),
    "gone": None,
}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers a request with the reply that its prompt names; has neither /metrics nor usage."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        models = self.path == "/v1/models"
        self.send_response(200 if models else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [{"id": "fake"}]}).encode() if models else b"")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/completions" and body["model"] == "fake" and body["stream"]
        reply = REPLIES.get(body["prompt"] if isinstance(body["prompt"], str) else "fine")
        if not reply:
            self.connection.close()
            return
        self.send_response(reply[0])
        self.end_headers()
        for piece in reply[1]:
            self.wfile.write(piece)


@contextlib.contextmanager
def faking(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.fixture(scope="module")
def fake():
    with faking(Handler) as url:
        yield url


def test_misbehaviour_is_reported(bench, fake, tmp_path):
    (tmp_path / "w.jsonl").write_text("".join(json.dumps({"prompt": name}) + "\n" for name in [*REPLIES, "fine"]))
    got = bench(fake, "-i", tmp_path / "w.jsonl", "-n", "2", status=1)
    assert got["requests"] == {"total": 8, "ok": 2, "unreachable": 1, "refused": 1, "bad_stream": 4, "cut": 0, "wrong_length": 0}
    messages = {e["message"]: e["kind"] for e in got["errors"]}
    assert messages["HTTP 429: try later"] == "refused"
    assert messages["error event: out of memory"] == "bad_stream"
    assert messages["the stream ended without [DONE]"] == "bad_stream"
    assert messages["an event is not a JSON object: {{{"] == "bad_stream"
    assert messages["an event has more than 16777216 bytes"] == "bad_stream"
    assert "unreachable" in messages.values() and len(messages) == 6
    # Without usage, outputs are counted; without /metrics, peaks are unknown.
    assert got["completion_tokens"] == 4 and got["cached_tokens"] is None
    assert got["peak"] == {"batch": None, "waiting": None, "kv_usage": None, "kv_bytes": None, "kv_bytes_unshared": None,
                           "in_flight": 8}


class Endless(Handler):
    """Its pages are larger than the limit of what is read."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x 1\n" * (5 << 20))


def test_endless_pages(bench, chunkllama):
    with faking(Endless) as url:
        message = chunkllama("bench", "serve", "--url", url, status=1).stderr
        got = bench(url, "--model-name", "fake", "--requests", "1", "-n", "2")
    assert f"{url}/v1/models has more than 16777216 bytes; name the model with --model-name" in message
    assert got["requests"]["ok"] == 1 and got["peak"]["batch"] is None


def test_wrong_length_is_reported(bench, fake):
    assert bench(fake, "--requests", "3", "-n", "5")["requests"]["wrong_length"] == 3


def test_silence_ends(bench):
    """An endpoint that accepts connections and never answers: neither requests nor /metrics are waited for without end."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        got = bench(url, "--model-name", "m", "--requests", "3", "--warm-up", "0", "--time-limit", "1", status=1)
    assert got["requests"]["cut"] == got["requests"]["total"] == 3
