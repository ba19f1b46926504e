"""Two servers behind a router: the part of the bundled workloads' prompt tokens that was in a cache, by the router's policy.

The routers are those of requirements-clients.txt. Servers and router are started anew for each run, so that every run begins with
empty caches.
"""

import concurrent.futures
import contextlib
import json
import random
import statistics
import sys
import urllib.error
import urllib.request

import load
import systems
from output import Output

PROGRAMS = systems.ROOT / ".venv/bin"
COMMANDS = {"vllm-router": ["vllm-router"], "smg": ["smg", "launch"]}
POLICIES = ("round_robin", "cache_aware")
CLIENTS = 8
KV_BUDGET = "4G"  # holds all prompts of all workloads
COUNTERS = {
    "queries": "vllm:prefix_cache_queries_total",
    "hits": "vllm:prefix_cache_hits_total",
    "computed": "chunkattn_prefill_tokens_computed_total",
    "evicted": "chunkattn_kv_tokens_evicted_total",
}


class Router(systems.System):
    """A router in front of servers that run; it has started when it has found all of them healthy."""

    def __init__(self, name, policy, servers, more=()):
        self.n_servers = len(servers)
        options = ["--host", "127.0.0.1", "--port", "{port}", "--prometheus-port", systems.free_port(), "--policy", policy]
        super().__init__(
            f"{name} {policy}",
            [PROGRAMS / COMMANDS[name][0], *COMMANDS[name][1:], *options, *more, "--worker-urls", *(s.url for s in servers)],
        )

    def answers(self):
        try:
            with urllib.request.urlopen(self.url + "/readiness", timeout=5) as reply:
                return json.load(reply)["healthy_workers"] == self.n_servers
        except (urllib.error.URLError, OSError):
            return False

    def __exit__(self, *_):
        """At SIGTERM smg would serve for another five seconds."""
        self.process.kill()
        super().__exit__()


def installed():
    """The names of the routers that are installed."""
    return [name for name, command in COMMANDS.items() if (PROGRAMS / command[0]).exists()]


def counters(system):
    """The server's counters, as a dictionary with the keys of COUNTERS."""
    with urllib.request.urlopen(system.url + "/metrics", timeout=60) as reply:
        samples = dict(line.rsplit(" ", 1) for line in reply.read().decode().splitlines() if not line.startswith("#"))
    values = {name.partition("{")[0]: value for name, value in samples.items()}
    return {key: float(values[name]) for key, name in COUNTERS.items()}


def model_of(url):
    with urllib.request.urlopen(url + "/v1/models", timeout=60) as reply:
        return json.load(reply)["data"][0]["id"]


def ask(url, model, request, max_tokens=1):
    """The answer to a request of a workload, as an object."""
    path = "/v1/chat/completions" if "messages" in request else "/v1/completions"
    body = {"model": model, "max_tokens": max_tokens, "temperature": 0} | {k: v for k, v in request.items() if k != "id"}
    message = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(message, timeout=600) as reply:
        return json.load(reply)


def ask_all(url, requests, n_clients=CLIENTS):
    """Send the requests in their order, n_clients at a time."""
    model = model_of(url)
    with concurrent.futures.ThreadPoolExecutor(n_clients) as clients:
        return list(clients.map(lambda request: ask(url, model, request), requests))


def run(args, requests, name=None, policy=None):
    """The counters of each server after the requests: of two behind a router, or without a name of one server alone."""
    with contextlib.ExitStack() as stack:
        servers = [systems.chunkllama(args, "shared", kv_budget=KV_BUDGET) for _ in range(2 if name else 1)]
        for server in servers:
            stack.enter_context(server)
            stack.enter_context(server.awake())
        front = servers[0]
        if name:
            front = stack.enter_context(Router(name, policy, servers))
            stack.enter_context(front.awake())
        ask_all(front.url, requests)
        return [counters(server) for server in servers]


def figures(runs):
    """The row of some runs; runs: for each the servers' counters. Percentages are of the prompt tokens."""
    totals = [{key: sum(server[key] for server in servers) for key in COUNTERS} for servers in runs]
    hits = [100 * total["hits"] / total["queries"] for total in totals]
    busier = [100 * max(server["queries"] for server in servers) / total["queries"] for servers, total in zip(runs, totals)]
    return {
        "hit_percent": statistics.median(hits),
        "low": min(hits),
        "high": max(hits),
        "computed": statistics.median(total["computed"] for total in totals),
        "computed_low": min(total["computed"] for total in totals),
        "computed_high": max(total["computed"] for total in totals),
        "busier": statistics.median(busier),
        "evicted": sum(total["evicted"] for total in totals),
        "prompt_tokens": totals[0]["queries"],
        "runs": len(runs),
    }


def bundled(quick):
    """256 requests by the workload's name: each of the four, and a quarter of each together."""
    found = {}
    for file in sorted((systems.ROOT / "bench/workloads").glob("*.jsonl")):
        found[file.stem] = [json.loads(line) for line in file.open(encoding="utf-8")]
    if quick:
        return {"few_shot": found["few_shot"][:8]}
    return found | {"all four": [request for requests in found.values() for request in requests[: len(requests) // 4]]}


def routers(args, _):
    systems_of = [(None, None)] + [(name, policy) for name in installed() for policy in POLICIES]
    if len(systems_of) == 1:
        print(f"no router in {PROGRAMS}: pip install --no-deps -r requirements-clients.txt", file=sys.stderr)
    out = Output(
        args,
        "routers",
        f"Two servers behind a router: prompt tokens found in a cache; {CLIENTS} clients, workloads in random order",
        [("workload", "workload", None), ("system", "servers", None), ("policy", "policy", None),
         ("hit_percent", "hit rate, %", 2), ("low", "from", 2), ("high", "to", 2),
         ("computed", "computed tokens", 0), ("computed_low", "from", 0), ("computed_high", "to", 0),
         ("busier", "busier server, %", 1), ("prompt_tokens", "prompt tokens", 0), ("evicted", "evicted", 0),
         ("runs", "runs", 0)],
        ["Medians of the runs with the lowest and the highest; each run has an order of its own, the same for all systems, and "
         "servers with empty caches. all four: a quarter of each workload. hit rate: vllm:prefix_cache_hits_total by "
         "vllm:prefix_cache_queries_total, of both servers together. computed tokens: chunkattn_prefill_tokens_computed_total. "
         "busier server: the prompt tokens that went to the server with more of them. One server alone has the highest hit rate "
         "that there is: it computes each beginning once. "
         f"Completions have one token, and --kv-budget {KV_BUDGET} holds all prompts."],
    )  # fmt: skip
    for workload, requests in bundled(args.quick).items():
        runs = {system: [] for system in systems_of}
        for seed in range(args.rounds):
            order = random.Random(seed).sample(requests, len(requests))
            for system in systems_of:
                with load.machine(args):
                    runs[system].append(run(args, order, *system))
        for (name, policy), found in runs.items():
            out.add({"workload": workload, "system": name or "one server", "policy": policy or "", **figures(found)})
    out.close()
