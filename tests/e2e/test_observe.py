"""What an operator sees of a server: its log, /metrics, and the dashboard, whose queries a real Prometheus answers."""
import concurrent.futures
import json
import math
import os
import pathlib
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml
from holding import Hold
from waiting import LIMIT_S, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPERATOR = "key-d"
SECRET = "Xyzzy-only-in-prompts"
HOSTILE = "a\x1b[2J\n2026-01-01T00:00:00.000Z error request forged=1"
PROMPT = "one two three four five six seven eight nine ten " * 20


class Server:
    """A server whose log goes to a file. It is killed at the end of a `with`, unless the test has ended it."""

    def __init__(self, binary, model, folder, *args, env=None):
        self.log_path = folder / "log"
        command = [binary, "serve", "-m", model, "--port", "0", "--kv-budget", "2G", *map(str, args)]
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=log, env=env)
        self.hello = self.process.stdout.readline()
        assert self.hello, self.log()
        self.url = re.search(r"at (http://\S+)", self.hello)[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def log(self):
        return self.log_path.read_text()

    def call(self, path, body=None, key=OPERATOR, **headers):
        """The status and the text of an answer."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Authorization": f"Bearer {key}", **headers})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_for_line(self, *parts):
        """The first line of the log with these parts, which is written soon after the answer."""
        def find():
            lines = self.log().splitlines(True)
            return next((line for line in lines if line.endswith("\n") and all(part in line for part in parts)), None)

        return wait_until(find, f"a line with {parts} in {self.log_path}")

    def end(self):
        self.process.terminate()
        rest = self.process.stdout.read()
        assert self.process.wait(LIMIT_S) == 0
        return rest


@pytest.fixture(scope="module")
def hold(tmp_path_factory):
    return Hold(tmp_path_factory.mktemp("hold"))


@pytest.fixture(scope="module")
def server(bin_dir, model_path, hold, tmp_path_factory):
    """A server with tenants, a context beyond the model's, and a log in JSON, which `hold` can hold."""
    folder = tmp_path_factory.mktemp("observe")
    (folder / "keys").write_text(f"alice key-a\ndefault {OPERATOR}\n")
    args = ("--api-keys", folder / "keys", "-c", 10000, "--log-format", "json", "--log-level", "debug", "--log-load", 0.2,
            "--max-seqs", 8, "--metrics-tenants", 1)  # fmt: skip
    with Server(bin_dir / "chunkllama_held", model_path, folder, *args, env=hold.env) as s:
        yield s
        assert s.process.poll() is None, s.log()
        s.end()


def request_line(server, **wanted):
    """The fields of the line about a request."""
    return json.loads(server.wait_for_line('"event": "request"', *(f'"{key}": {json.dumps(value)}' for key, value in wanted.items())))


# ---- The log ----


def test_the_log_begins_with_what_is_in_force(server, model_path):
    server.wait_for_line("trained_for")
    lines = {line["event"]: line for line in map(json.loads, server.log().splitlines())}
    assert lines["model"] == {**lines["model"], "level": "info", "file": model_path, "context": 10000, "chat_format": "template"}
    assert lines["cache"]["kv_budget_bytes"] == 2 << 30 and lines["cache"]["kv_tokens"] > 50000
    assert lines["cache"]["users_of_whole_context"] == lines["cache"]["kv_tokens"] // 64 // (10000 // 64 + 2)
    assert lines["cache"]["users_of_512_tokens_behind_2048_shared"] > 100
    assert lines["engine"]["sequences"] == 8 and lines["engine"]["threads"] >= 1 and lines["engine"]["level"]
    warning = lines["--ctx is beyond the model's context"]
    assert (warning["level"], warning["context"], warning["trained_for"]) == ("warn", 10000, 8192)
    assert server.hello.startswith("chunkllama serves ") and "serves" not in server.log()


@pytest.mark.parametrize(("budget", "line"), [("32M", "--kv-budget holds less"), ("the memory", "--kv-budget is beyond")])
def test_a_budget_at_either_end_is_warned_of(chunkllama_bin, model_path, tmp_path, budget, line):
    if budget == "the memory":
        budget = str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with Server(chunkllama_bin, model_path, tmp_path, "--kv-budget", budget, "--log-format", "json") as s:
        warning = json.loads(s.wait_for_line(line))
        assert warning["level"] == "warn"
        if budget == "32M":
            model = json.loads(s.call("/v1/models")[1])["data"][0]
            served = model["max_model_len"]
            assert 100 < served == warning["context"] < warning["whole_context"] == 8192
            status, text = s.call("/v1/completions", {"model": model["id"], "prompt": "a " * 8000})
            assert status == 400 and f"maximum context length is {served} tokens" in text
        else:
            assert warning["kv_budget_bytes"] + warning["weights_bytes"] > warning["free_bytes"]
        s.end()


def test_each_request_has_a_line(server):
    body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "ignore_eos": True}
    assert server.call("/v1/completions", body, **{"X-Request-Id": "first"})[0] == 200
    line = request_line(server, id="cmpl-first")
    assert line["tenant"] == "default" and line["method"] == "POST" and line["endpoint"] == "/v1/completions"
    assert line["status"] == 200 and line["finish"] == "length" and line["level"] == "info"
    n_prompt = line["prompt_tokens"]
    assert n_prompt > 180 and (line["cached_tokens"], line["completion_tokens"], line["shared_with"]) == (0, 20, 0)
    assert 0 < line["ttft_s"] < line["seconds"] and 0 < line["tpot_s"] < line["seconds"]
    server.call("/v1/completions", {**body, "stream": True}, **{"X-Request-Id": "again"})
    line = request_line(server, id="cmpl-again")
    assert line["prompt_tokens"] == n_prompt and line["cached_tokens"] >= n_prompt - 2
    server.call("/v1/completions", body, key="key-a", **{"X-Request-Id": "alices"})
    assert request_line(server, id="cmpl-alices")["tenant"] == "alice"
    assert request_line(server, id="cmpl-alices")["cached_tokens"] == 0
    assert "prompt" not in line


def test_a_call_that_was_cut_is_answered_with_a_warning(server):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "b'}}
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "no"}]
    assert server.call("/v1/chat/completions", {"messages": messages, "max_tokens": 1}, **{"X-Request-Id": "odd"})[0] == 200
    line = request_line(server, id="chatcmpl-odd")
    assert (line["level"], line["odd_arguments"]) == ("warn", "messages[1].tool_calls[0].function.arguments")


def test_a_line_tells_with_how_many_a_request_shared(server, hold):
    def complete(i):
        body = {"prompt": 2 * PROMPT + str(i), "max_tokens": 100, "ignore_eos": True}
        return server.call("/v1/completions", body, **{"X-Request-Id": f"shared-{i}"})

    with concurrent.futures.ThreadPoolExecutor(4) as pool, hold("step", reached=False):
        answers = pool.map(complete, range(4))
        hold.wait("step")
        states = "vllm:num_requests_running", "vllm:num_requests_waiting"
        wait_until(lambda: sum(sample(metrics_of(server), name) for name in states) == 4, "all to come")
        for _ in range(10):
            hold.next("step")  # all run now, with a few tokens each
        server.wait_for_line('"event": "load"', '"running": 4')
    assert all(status == 200 for status, _ in answers)
    assert [request_line(server, id=f"cmpl-shared-{i}")["shared_with"] for i in range(4)] == [3] * 4
    loads = [json.loads(line) for line in server.log().splitlines() if '"event": "load"' in line]
    load = max(loads, key=lambda line: line["running"])
    assert load["running"] == 4 and load["kv_bytes_saved"] > load["kv_bytes_used"] > 0
    assert max(line["completion_tokens_per_s"] for line in loads) > 0 and 0 < max(line.get("hit_rate", 0) for line in loads) <= 1


@pytest.mark.parametrize("target, head, status", [("/health?" + "a" * 20000, "Host: localhost", 414),
                                                  ("/health", "Host: localhost\r\nX: " + "a" * 20000, 431), ("/health", "X: y", 400)])
def test_requests_that_cannot_be_read_have_a_line(server, target, head, status):
    with socket.create_connection(("127.0.0.1", urllib.parse.urlsplit(server.url).port), timeout=LIMIT_S) as client:
        client.sendall(f"GET {target} HTTP/1.1\r\n{head}\r\n\r\n".encode())
        assert client.recv(12) == f"HTTP/1.1 {status}".encode()
    line = json.loads(server.wait_for_line(f'"status": {status}', '"error": "unreadable_request"'))
    assert line["level"] == "info" and line["event"] == "request" and "endpoint" not in line
    assert re.search(rf'^chunkattn_http_replies_total{{[^}}]*status="{status}"}} [1-9]', metrics_of(server), re.M)


def test_no_lines_about_the_load_of_an_idle_server(server, hold):
    assert server.call("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200
    server.wait_for_line('"event": "load"')
    wait_until(lambda: sample(metrics_of(server), "vllm:num_requests_running") == 0, "the server to be idle")
    with hold("load"):
        hold.next("load")  # a line was due before
        n = server.log().count('"event": "load"')
        for _ in range(4):
            hold.next("load")
        assert server.log().count('"event": "load"') == n


def test_refused_requests_have_a_line(server):
    cases = [
        ("/v1/completions", {"prompt": 7}, OPERATOR, 400, "info", "invalid_request_error"),
        ("/v1/completions", {"prompt": "x", "stop": SECRET * 90}, OPERATOR, 400, "info", "invalid_request_error"),
        ("/v1/completions", SECRET.encode(), OPERATOR, 400, "info", "invalid_request_error"),
        ("/v1/models", None, "wrong", 401, "info", "invalid_api_key"),
        ("/cache", None, "key-a", 403, "info", "forbidden"),
        ("/none%1b%0a", None, OPERATOR, 404, "info", "not_found"),
        ("/v1/completions", {"prompt": "x " * 20000}, OPERATOR, 400, "info", "context_length_exceeded"),
    ]
    for path, body, key, status, level, error in cases:
        assert server.call(path, body, key)[0] == status
        line = request_line(server, status=status, error=error)
        assert line["level"] == level and "prompt_tokens" not in line
        assert line.get("tenant") == {OPERATOR: "default", "key-a": "alice"}.get(key)
    assert request_line(server, status=404)["endpoint"] == "/none\x1b\n"
    assert server.call("/health")[0] == 200
    assert request_line(server, endpoint="/health")["level"] == "debug"


def test_a_client_that_hangs_up_has_a_line(server):
    address = urllib.parse.urlsplit(server.url)
    body = json.dumps({"prompt": "Once", "max_tokens": 5000, "stream": True, "ignore_eos": True})
    with socket.create_connection((address.hostname, address.port)) as s:
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR}\r\nX-Request-Id: gone\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n{body}".encode())  # fmt: skip
        while b"data: " not in s.recv(4096):
            pass
    line = request_line(server, id="cmpl-gone")
    assert line["finish"] == "disconnected" and 0 < line["completion_tokens"] < 5000


def test_nobody_forges_a_line_or_reads_a_prompt(server):
    server.call("/v1/chat/completions", {"messages": [{"role": "user", "content": SECRET + HOSTILE}], "max_tokens": 1})
    server.call("/" + urllib.parse.quote(HOSTILE))
    text = server.wait_for_line("forged")
    assert json.loads(text)["endpoint"] == "/" + HOSTILE
    request_line(server, endpoint="/v1/chat/completions")
    assert SECRET not in server.log()
    for line in server.log().splitlines():
        assert json.loads(line)["time"].endswith("Z") and line.isprintable()


CHATML = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def prompt_tokens(server, **fields):
    answer = server.call("/v1/completions", {"prompt": CHATML, "max_tokens": 1, "temperature": 0} | fields)
    return json.loads(answer[1])["usage"]["prompt_tokens"]


def test_hint_about_special_tokens(server):
    """Other servers make tokens of their names in a prompt."""
    text = prompt_tokens(server)
    line = request_line(server, prompt_tokens=text)
    assert line["names_special_token"] == "<|im_start|>" and "parse_special" in line["hint"]
    tokens = prompt_tokens(server, parse_special=True)
    assert "hint" not in request_line(server, prompt_tokens=tokens) and tokens < text - 15


def test_names_are_tokens_by_an_option(chunkllama_bin, model_path, tmp_path):
    with Server(chunkllama_bin, model_path, tmp_path, "--parse-special") as s:
        assert prompt_tokens(s) < prompt_tokens(s, parse_special=False) - 15
        s.end()


def test_prompts_and_text(chunkllama_bin, model_path, tmp_path):
    with Server(chunkllama_bin, model_path, tmp_path, "--log-prompts", "--log-load", 0) as s:
        s.call("/v1/completions", {"prompt": SECRET + HOSTILE, "max_tokens": 1, "temperature": 0})
        line = s.wait_for_line("endpoint=/v1/completions")
        assert f'prompt="{SECRET}a\\u001b[2J\\n2026-01-01T00:00:00.000Z error request forged=1"' in line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info  request id=cmpl-\w+ tenant=default method=POST .*\n", line)
        s.call("/v1/completions", {"prompt": "x", "max_tokens": -5})
        assert "status=400 error=invalid_request_error" in s.wait_for_line('message="', "max_tokens")
        s.call("/v1/completions", {"prompt": " responsibilities" * 800, "max_tokens": 1}, **{"X-Request-Id": "long"})
        assert s.wait_for_line("id=cmpl-long").endswith('..."\n')  # 13,600 bytes
        s.call("/health")
        assert s.end().endswith("The server has stopped.\n")
        assert "/health" not in s.log() and " load " not in s.log()
        assert all(line.isprintable() for line in s.log().splitlines())


# ---- /metrics ----


def metrics_of(server):
    status, text = server.call("/metrics")
    assert status == 200
    return text


def sample(text, name):
    return float(re.search(rf"^{name}{{[^}}]*}} (\S+)$", text, re.M)[1])


def bounds(text, name):
    return [float(le) for le in re.findall(rf'^{name}_bucket{{[^}}]*le="([^"]+)"', text, re.M)]


def test_histograms_have_vllms_buckets(server):
    text = metrics_of(server)
    request = [0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680, math.inf]
    for name in ("e2e_request_latency", "request_queue_time", "request_inference_time", "request_prefill_time", "request_decode_time"):
        assert bounds(text, f"vllm:{name}_seconds") == request
    token = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, math.inf]
    for name in ("inter_token_latency", "time_per_output_token", "request_time_per_output_token"):
        assert bounds(text, f"vllm:{name}_seconds") == token
    assert bounds(text, "vllm:time_to_first_token_seconds") == [
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560, math.inf
    ]  # fmt: skip
    assert bounds(text, "vllm:iteration_tokens_total") == [1, *(2**i for i in range(3, 15)), math.inf]
    lengths = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, math.inf]  # up to the context
    for name in ("request_prompt_tokens", "request_generation_tokens", "request_params_max_tokens"):
        assert bounds(text, f"vllm:{name}") == lengths
    assert bounds(text, "vllm:request_params_n") == [1, 2, 5, 10, 20, math.inf]


def test_metrics_count_what_requests_do(server):
    names = ["vllm:request_prompt_tokens_sum", "vllm:request_generation_tokens_sum",
             "vllm:request_generation_tokens_count", "vllm:request_params_max_tokens_sum",
             "vllm:request_params_n_sum", "vllm:request_queue_time_seconds_count", "vllm:request_prefill_time_seconds_sum",
             "vllm:request_decode_time_seconds_sum", "vllm:request_inference_time_seconds_sum",
             "vllm:e2e_request_latency_seconds_sum", "vllm:iteration_tokens_total_sum", "vllm:iteration_tokens_total_count",
             "chunkattn_steps_total", 'chunkattn_http_replies_total']  # fmt: skip
    before = metrics_of(server)
    body = {"prompt": "Count " * 40, "max_tokens": 7, "n": 2, "ignore_eos": True, "seed": 1}
    assert server.call("/v1/completions", body)[0] == 200
    after = wait_until(lambda: sample(text := metrics_of(server), names[1]) != sample(before, names[1]) and text, "the count")
    d = {name: sample(after, name) - sample(before, name) for name in names}
    n_prompt = d["vllm:request_prompt_tokens_sum"]
    assert 40 <= n_prompt <= 42 and d["vllm:request_generation_tokens_sum"] == 14 and d["vllm:request_params_max_tokens_sum"] == 7
    assert d["vllm:request_generation_tokens_count"] == 2  # a choice each, as in vLLM
    assert d["vllm:request_params_n_sum"] == 2 and d["vllm:request_queue_time_seconds_count"] == 1
    prefill, decode, whole = (d[f"vllm:{name}_seconds_sum"] for name in ("request_prefill_time", "request_decode_time",
                                                                         "e2e_request_latency"))  # fmt: skip
    assert prefill > 0 and decode > 0 and prefill + decode <= whole
    assert math.isclose(d["vllm:request_inference_time_seconds_sum"], prefill + decode, rel_tol=1e-6)
    assert d["vllm:iteration_tokens_total_count"] == d["chunkattn_steps_total"] >= 3
    assert d["vllm:iteration_tokens_total_sum"] >= n_prompt + 2 * 6 - 2
    for status in (400, 401, 404):
        assert re.search(rf'^chunkattn_http_replies_total{{[^}}]*status="{status}"}} [1-9]', after, re.M)


@pytest.mark.parametrize("args, warns", [((), True), (("--api-key", "k"), False), (("--host", "localhost"), False)])
def test_a_port_without_a_key_is_warned_of(bin_dir, model_path, tmp_path, args, warns):
    """And a server without grammars, also in the line for a person, and in explanations."""
    environment = {key: value for key, value in os.environ.items() if key != "CHUNKLLAMA_GRAMMAR_LIBRARY"}
    with Server(bin_dir / "chunkllama", model_path, tmp_path, "--log-format", "json", "--host", "0.0.0.0", *args, env=environment) as s:
        s.wait_for_line('"event": "engine"')
        ask = {"messages": [{"role": "user", "content": "a"}]}
        refused, fine = (json.loads(s.call("/cache/explain", {**ask, **more}, key="k")[1])["refusal"]
                         for more in ({"response_format": {"type": "json_object"}}, {}))  # fmt: skip
        assert "response_format needs llguidance, which this server lacks: " in refused and fine is None
        s.end()
    assert ("everybody who reaches the port may use the server" in s.log()) == warns
    assert "requests with a grammar or a JSON schema are refused" in s.log() and "It has no grammars" in s.hello


def start_of(pid):
    """When a process started, in seconds since 1970, from whole seconds and ticks of the kernel."""
    [booted] = re.findall(r"^btime (\d+)$", open("/proc/stat").read(), re.M)
    ticks = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19]
    return int(booted) + int(ticks) / os.sysconf("SC_CLK_TCK")


def test_metrics_of_the_process(server):
    pid, text = server.process.pid, metrics_of(server)
    status = open(f"/proc/{pid}/status").read()
    resident = int(re.search(r"VmRSS:\s*(\d+)", status)[1]) * 1024
    assert 0.5 < sample(text, "process_resident_memory_bytes") / resident < 2
    assert sample(text, "process_virtual_memory_bytes") > resident and sample(text, "process_cpu_seconds_total") > 0
    started = sample(text, "process_start_time_seconds")  # in whole seconds
    assert started == sample(metrics_of(server), "process_start_time_seconds")
    assert start_of(pid) - 2 < started <= server.log_path.stat().st_mtime
    assert 1 <= sample(text, "chunkattn_http_connections") <= sample(text, "chunkattn_http_max_connections")
    limit = int(re.search(r"Max open files\s+(\d+)", open(f"/proc/{pid}/limits").read())[1])
    assert sample(text, "process_max_fds") == limit
    if "process_open_fds" in text:  # from Linux 6.2 on
        assert abs(sample(text, "process_open_fds") - len(os.listdir(f"/proc/{pid}/fd"))) < 20


def test_tokens_of_tenants(server):
    """Those of the first tenant that sends something, and of all others together."""
    def counts():
        found = re.findall(r'^chunkattn_tenant_(\w+)_total{[^}]*tenant="(\w*)"} (\d+)$', metrics_of(server), re.M)
        return {(name, tenant): int(value) for name, tenant, value in found}

    ask = {"prompt": "Once upon a time", "max_tokens": 3, "ignore_eos": True}
    assert server.call("/v1/completions", ask, key=OPERATOR)[0] == 200  # unless another test has
    wait_until(lambda: any(tenant for _, tenant in counts()), "the first tenant")
    before = counts()
    [first] = {tenant for _, tenant in before if tenant}
    for key in ("key-a", OPERATOR):
        assert server.call("/v1/completions", ask, key=key)[0] == 200
    after = wait_until(lambda: all(counts()["requests", t] > before["requests", t] for t in ("", first)) and counts(), "the counts")
    for tenant in ("", first):
        grown = {name: after[name, tenant] - before[name, tenant] for name, t in before if t == tenant}
        assert grown["requests"] >= 1 and grown["generation_tokens"] == 3 * grown["requests"]
        assert grown["prompt_tokens"] >= 4 * grown["requests"] and 0 <= grown["cached_tokens"] < grown["prompt_tokens"]


@pytest.mark.long
def test_promtool_objects_only_to_vllms_names(server):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=metrics_of(server), capture_output=True, text=True, timeout=LIMIT_S)
    found = (done.stdout + done.stderr).splitlines()
    ours = [line for line in found if not re.fullmatch(r"vllm:\S+ metric names should not contain ':'", line)]
    assert ours == ['vllm:iteration_tokens_total non-counter metrics should not have "_total" suffix'] and len(found) > 20


# ---- The dashboard ----


def queries():
    """The title and the expression of each query of the dashboard."""
    dashboard = json.loads((ROOT / "docs/grafana-dashboard.json").read_text())
    return [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"]]


def test_the_dashboard_names_only_metrics_that_exist(server):
    exposed = {re.split(r"[{ ]", line)[0] for line in metrics_of(server).splitlines() if not line.startswith("#")}
    assert len(queries()) > 25
    for title, expr in queries():
        names = set(re.findall(r"\b(?:vllm:|chunkattn_|process_)\w+", expr))
        assert names and names <= exposed, (title, expr)
        assert expr.count("{") == expr.count('{model_name=~"$model"}'), (title, expr)


def test_the_alerts_name_only_metrics_that_exist(server):
    exposed = {re.split(r"[{ ]", line)[0] for line in metrics_of(server).splitlines() if not line.startswith("#")}
    scrape = yaml.safe_load((ROOT / "packaging/prometheus/scrape.yml").read_text())
    assert scrape["rule_files"] == ["alerts.yml"] and scrape["scrape_configs"][0]["job_name"] == "chunkllama"
    [group] = yaml.safe_load((ROOT / "packaging/prometheus/alerts.yml").read_text())["groups"]
    assert len(group["rules"]) >= 8
    for rule in group["rules"]:
        names = set(re.findall(r"\b(?:vllm:|chunkattn_|process_)\w+", rule["expr"]))
        assert names <= exposed and (names or "up{" in rule["expr"]), rule
        # Other servers have metrics of vLLM's names, too.
        selectors = re.findall(r"\b(?:vllm:|chunkattn_|process_|up\b)\w*({[^}]*})?", rule["expr"])
        assert selectors and all('job="chunkllama"' in labels for labels in selectors), rule
        assert {"summary", "description"} <= set(rule["annotations"]) and rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.long
def test_promtool_accepts_the_configuration():
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    folder = ROOT / "packaging/prometheus"
    for command in (["check", "rules", "alerts.yml"], ["check", "config", "scrape.yml"]):
        done = subprocess.run(["promtool", *command], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def prometheus(server, tmp_path):
    """A Prometheus that scrapes the server; its URL."""
    if not shutil.which("prometheus"):
        pytest.skip("prometheus is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {"global": {"scrape_interval": "5s", "scrape_timeout": "5s"},
              "scrape_configs": [{"job_name": "chunkllama", "authorization": {"credentials": OPERATOR},
                                  "static_configs": [{"targets": [server.url.split("//")[1]]}]}]}  # fmt: skip
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    with open(tmp_path / "prometheus.log", "w") as log:
        process = subprocess.Popen(["prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                    f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)  # fmt: skip
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


def ask(prometheus, expr):
    """The values of a query."""
    url = f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expr})
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as reply:
            return [float(result["value"][1]) for result in json.load(reply)["data"]["result"]]
    except urllib.error.HTTPError as error:
        pytest.fail(f"{expr}: {error.read().decode()}")
    except urllib.error.URLError:
        return []  # it starts


@pytest.mark.long
def test_prometheus_answers_every_query_of_the_dashboard(server, prometheus):
    missing = queries()

    def all_are_answered():
        body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True}
        assert server.call("/v1/completions", body)[0] == 200
        exprs = [(title, expr, expr.replace("$model", ".*").replace("$__rate_interval", "5m")) for title, expr in missing]
        missing[:] = [(title, expr) for title, expr, full in exprs if not any(map(math.isfinite, ask(prometheus, full)))]
        return not missing

    wait_until(all_are_answered, "an answer to each query")
    assert ask(prometheus, "up") == [1]
