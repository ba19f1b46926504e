"""vllm-router and smg in front of two servers: the answers are those of one server, cache_aware keeps its hit rate, requests go
on when a server stops, and smg reads the load from /metrics."""
import concurrent.futures
import contextlib
import json
import sys
import urllib.request

import pytest
from conftest import ROOT
from stored import results_of
from test_server import serving
from waiting import LIMIT_S, wait_until

sys.path.insert(0, str(ROOT / "bench/e2e"))
import routers  # noqa: E402

pytestmark = pytest.mark.long

SERVE = ("--threads", "1", "--kv-budget", "512M")
# An odd number, so that round_robin sends the chats of a system prompt to both servers in turn.
N_SYSTEM, N_CHATS = 5, 3
SYSTEM_CHARS = 600
# Otherwise smg sends to servers that have run for less than a minute a part of the requests for which another has the prefix.
OPTIONS = {"vllm-router": (), "smg": ("--worker-warmup-secs", "0", "--worker-warmup-divert-every", "0")}


def bundled_chats():
    """Pieces of the document of document_qa as system prompts, with its questions; the system prompts take turns."""
    lines = (ROOT / "bench/workloads/document_qa.jsonl").read_text(encoding="utf-8").splitlines()[: N_SYSTEM * N_CHATS]
    asked = [[m["content"] for m in json.loads(line)["messages"]] for line in lines]
    return [{"messages": [{"role": "system", "content": document[i % N_SYSTEM * SYSTEM_CHARS :][:SYSTEM_CHARS]},
                          {"role": "user", "content": question}]} for i, (document, question) in enumerate(asked)]


CHATS = bundled_chats()


def ask(url, model, chats=CHATS, n_clients=1):
    """What is the same in the answers to one request wherever it is answered."""
    with concurrent.futures.ThreadPoolExecutor(n_clients) as clients:
        answers = list(clients.map(lambda chat: routers.ask(url, model, chat, max_tokens=4), chats))
    choices = [answer["choices"][0] for answer in answers]
    return [(c["message"]["content"], c["finish_reason"], a["usage"]["prompt_tokens"]) for c, a in zip(choices, answers)]


@contextlib.contextmanager
def streaming(url, model):
    """A request with the first system prompt is in flight, so that the server that answers it has more load than the other."""
    body = CHATS[0] | {"model": model, "max_tokens": 4000, "ignore_eos": True, "stream": True}
    header = {"Content-Type": "application/json"}
    message = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), header)
    with urllib.request.urlopen(message, timeout=LIMIT_S) as reply:
        assert reply.readline().startswith(b"data: ")
        yield


def get(url):
    with urllib.request.urlopen(url, timeout=LIMIT_S) as reply:
        return json.load(reply)


@pytest.fixture(scope="module")
def servers(chunkllama_bin, model_path):
    with serving(chunkllama_bin, model_path, *SERVE) as first, serving(chunkllama_bin, model_path, *SERVE) as second:
        yield first, second


def measured(servers, url):
    """The answers, requested one after the other, and what they add to the counters of each server, all of which begin with empty
    caches. A stream is in flight until each system prompt has been used."""
    for server in servers:
        urllib.request.urlopen(server.url + "/reset_prefix_cache", b"", timeout=LIMIT_S).close()
    before = [routers.counters(server) for server in servers]
    model = servers[0].model
    with streaming(url, model):
        answers = ask(url, model, CHATS[:N_SYSTEM])
    answers += ask(url, model, CHATS[N_SYSTEM:])
    after = [routers.counters(server) for server in servers]
    return answers, [{key: a[key] - b[key] for key in a} for a, b in zip(after, before)]


@pytest.fixture(scope="module")
def alone(servers):
    """The answers of one server, and its counters."""
    answers, (counters,) = measured(servers[:1], servers[0].url)
    return answers, counters


def behind_router(servers, name, policy):
    """The answers and counters, then the answers to eight clients at once."""
    with routers.Router(name, policy, servers, OPTIONS[name]) as router, router.awake():
        return *measured(servers, router.url), ask(router.url, servers[0].model, n_clients=8)


@pytest.mark.parametrize("name", routers.COMMANDS)
def test_cache_aware(name, servers, alone):
    """No system prompt is computed by both servers, though both are used; the answers are those of one server."""
    expected, one = alone
    system_tokens = min(tokens for *_, tokens in expected) // 2
    answers, counters, at_once = behind_router(servers, name, "cache_aware")
    assert answers == at_once == expected
    assert sum(c["queries"] for c in counters) == one["queries"] and all(c["queries"] for c in counters)
    assert one["hits"] - sum(c["hits"] for c in counters) < system_tokens
    answers, turns, at_once = behind_router(servers, name, "round_robin")
    assert answers == at_once == expected
    assert one["hits"] - sum(c["hits"] for c in turns) > N_SYSTEM * system_tokens


@pytest.mark.parametrize("name", routers.COMMANDS)
def test_a_server_stops(name, alone, chunkllama_bin, model_path):
    """The requests that follow are answered by the other server, the first of them before the router has noticed."""
    expected, _ = alone
    checks = ("--cb-failure-threshold", "1", "--health-check-interval-secs", "1", "--health-failure-threshold", "1")
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(serving(chunkllama_bin, model_path, *SERVE)) for _ in range(2)]
        router = stack.enter_context(routers.Router(name, "cache_aware", servers, (*OPTIONS[name], *checks)))
        stack.enter_context(router.awake())
        assert ask(router.url, servers[0].model) == expected
        used = max(servers, key=lambda server: routers.counters(server)["queries"])
        used.process.terminate()
        used.process.wait(LIMIT_S)
        assert ask(router.url, used.model) == expected
        wait_until(lambda: get(router.url + "/readiness")["healthy_workers"] == 1, "one server to be left")
        assert ask(router.url, used.model) == expected


def test_smg_reads_load_and_version(servers):
    """It takes the servers for vLLM's, and its figures for a server are those of /metrics."""
    version = get(servers[0].url + "/version")["version"]
    with routers.Router("smg", "cache_aware", servers, ("--load-monitor-interval", "1")) as router, router.awake():
        for worker in get(router.url + "/workers")["workers"]:
            assert worker["runtime_type"] == "vllm" and worker["labels"]["version"] == version, worker

        def running():
            return {load["worker"]: load["num_running_reqs"] for load in get(router.url + "/get_loads")["loads"]}

        with streaming(servers[1].url, servers[1].model):
            wait_until(lambda: running().get(servers[1].url) == 1, "smg to report a running request")
        wait_until(lambda: running() == {server.url: 0 for server in servers}, "smg to report none")


def test_table_in_the_docs():
    """docs/scale-out.md has the measured hit rates and computed tokens."""
    table = {}
    for row in results_of("zen5")["routers"][1:]:
        table.setdefault(row["workload"], []).append(f"{row['hit_percent']:.2f} %, {row['computed']:.0f}")
    assert all(len(cells) == 5 for cells in table.values())
    page = (ROOT / "docs/scale-out.md").read_text().splitlines()
    assert [line for line in page if " %, " in line] == [
        " | ".join([f"| {workload}", *cells]) + " |" for workload, cells in table.items()]
