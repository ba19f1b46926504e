"""The endpoints below /cache: what the cache holds, its tree, why a prompt misses, and prompts that stay in it."""
import concurrent.futures
import contextlib
import datetime
import json
import re
import socket
import subprocess
import threading
import urllib.error
import urllib.request

import pytest
from waiting import LIMIT_S, wait_until

from test_serve import hold  # noqa: F401 (a fixture)

OPERATOR = "key-d"
BUDGET = ("--kv-budget", "32M", "--pin-budget", "8M")  # a token takes 23 KB
PROMPT = list(range(1000, 1200))


@pytest.fixture
def serve(bin_dir, model_path, tmp_path):
    """Starts a server of the tenants a and default, with a Hold one that it can hold, and returns its URL; all end with the test,
    without an error."""
    with contextlib.ExitStack() as servers:

        def start(*args, keys=f"a key-a\ndefault {OPERATOR}\n", hold=None):
            (tmp_path / "keys").write_text(keys)
            command = [bin_dir / ("chunkllama_held" if hold else "chunkllama"), "serve", "-m", model_path, "--port", "0",
                       "--api-keys", tmp_path / "keys", "--log-level", "error", *args]
            server = servers.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                                            env=hold and hold.env))
            servers.callback(end, server)
            line = server.stdout.readline()
            assert line, server.stderr.read()
            return re.search(r"at (http://\S+)", line)[1]

        yield start


def end(server):
    server.terminate()
    assert (server.wait(timeout=LIMIT_S), server.stderr.read()) == (0, "")


def call(url, method, path, body=None, key=OPERATOR):
    """The status and the JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Authorization": f"Bearer {key}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def pin(url, /, **body):
    status, answer = call(url, "POST", "/cache/pin", body)
    assert status == 200, answer
    return answer


def cache(url):
    status, answer = call(url, "GET", "/cache")
    assert status == 200 and answer["object"] == "cache"
    return answer


def cached(url, prompt, key=OPERATOR):
    """How many tokens of a prompt, before its last one, are in the cache."""
    status, answer = call(url, "POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1}, key)
    assert status == 200, answer
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def metric(url, name):
    request = urllib.request.Request(url + "/metrics", headers={"Authorization": f"Bearer {OPERATOR}"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        return next(float(line.rsplit(" ", 1)[1]) for line in reply.read().decode().splitlines() if line.startswith(name + "{"))


def wait_for_sequences(url, n):
    wait_until(lambda: cache(url)["sequences"] == n, f"{n} sequences")


def flood(url):
    """Prompts that take several times the cache."""
    for i in range(15):
        cached(url, [5000 + i] * 400)


@pytest.mark.whole_model
def test_a_pin_stays_until_it_is_deleted(serve):
    url = serve(*BUDGET)
    before = datetime.datetime.now().timestamp()
    answer = pin(url, prompt=PROMPT)
    assert {k: answer[k] for k in ("object", "tenant", "tokens")} == {"object": "cache.pin", "tenant": "default", "tokens": 200}
    assert before - 2 < answer["created"] <= datetime.datetime.now().timestamp()  # in whole seconds, by a coarse clock
    assert cache(url)["pins"] == [answer]
    flood(url)
    assert cached(url, PROMPT + [7]) == 200
    gone = {"id": answer["id"], "object": "cache.pin", "deleted": True}
    assert call(url, "DELETE", "/cache/pin/" + answer["id"]) == (200, gone)
    flood(url)
    assert cache(url)["pins"] == [] and cache(url)["pinned_bytes"] == 0
    assert cached(url, PROMPT + [7]) == 0
    for name in (answer["id"], "pin-0", "pin-", "pin-99999999999999999999", "x"):
        status, error = call(url, "DELETE", "/cache/pin/" + name)
        assert status == 404 and error["error"]["code"] == "pin_not_found"


@pytest.mark.whole_model
def test_what_the_cache_holds(serve):
    url = serve(*BUDGET)
    pin(url, prompt=PROMPT[:128])
    assert cached(url, PROMPT) == 128
    wait_for_sequences(url, 1)  # that of the completion leaves after its answer
    state = cache(url)
    assert state["tokens_stored"] == 200 and state["tokens_retained"] == 72
    assert state["slots_padding"] == 4 * 64 - 200  # four chunks of 64 slots
    assert state["live_bytes"] == state["retained_bytes"] == state["pinned_bytes"] == 2 * 64 * 23040
    assert state["live_bytes"] + state["retained_bytes"] < state["bytes_in_use"] <= state["budget_bytes"] == 32 << 20


def test_a_chat_is_pinned_for_a_tenant(serve):
    """Only the tenant that the body names finds it. What a pin does not need of a request does not count."""
    url = serve(*BUDGET)
    system = {"role": "system", "content": "You are the ship's doctor. " + " ".join(f"Rule {i}: be kind." for i in range(32))}
    answer = pin(url, tenant="a", messages=[system], n=3, stream=True, max_tokens=99)
    assert answer["tenant"] == "a"
    flood(url)
    body = {"messages": [system, {"role": "user", "content": "My arm hurts."}], "max_tokens": 1}
    for key, least, most in (("key-a", 200, answer["tokens"]), (OPERATOR, 0, 0)):
        details = call(url, "POST", "/v1/chat/completions", body, key)[1]["usage"]["prompt_tokens_details"]
        assert least <= details["cached_tokens"] <= most
    for method, path in (("GET", "/cache"), ("POST", "/cache/pin"), ("DELETE", "/cache/pin/" + answer["id"])):
        assert call(url, method, path, key="key-a")[0] == 403
    assert cache(url)["pins"] == [answer]


def test_the_cache_needs_a_key(serve):
    url = serve(*BUDGET, keys=OPERATOR + "\n")
    answer = pin(url, prompt=PROMPT)
    for method, path in (("GET", "/cache"), ("POST", "/cache/pin"), ("DELETE", "/cache/pin/" + answer["id"])):
        assert call(url, method, path, key="wrong")[0] == 401
    assert cache(url)["pins"] == [answer]


@pytest.mark.whole_model
def test_requests_that_cannot_be_pinned(serve):
    url = serve(*BUDGET)
    for body, message in (
        ({"prompt": PROMPT, "tenant": "b"}, "there is no tenant 'b'"),
        ({"prompt": PROMPT, "tenant": 3}, "'tenant' must be a string"),
        ({"prompt": ["one prompt", "another"]}, "'prompt' has 2 prompts; send them one by one"),
        ({"prompt": [5]}, "it needs at least 2"),
        ({"prompt": PROMPT * 2}, "the pins would cover 7 chunks"),  # of 1.5 MB; 5 fit
        ({}, "'prompt'"),
    ):
        status, answer = call(url, "POST", "/cache/pin", body)
        assert status == 400 and message in answer["error"]["message"], (body, answer)
    assert cache(url)["pins"] == [] and cache(url)["pinned_bytes"] == 0
    status, answer = call(serve(), "POST", "/cache/pin", {"prompt": PROMPT})
    assert status == 400 and "start it with --pin-budget" in answer["error"]["message"]


def test_clients_that_hang_up(serve, hold):
    """What the engine has pinned is listed, so that it can be deleted; a pin that no client learns of ends."""
    url = serve(*BUDGET, hold=hold)
    host, port = re.fullmatch(r"http://(.*):(\d+)", url).groups()
    for i in range(10):
        body = json.dumps({"prompt": [1000 * i + k for k in range(60)]})
        with hold("step", reached=False), socket.create_connection((host, int(port))) as client:
            client.sendall(f"POST /cache/pin HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR}\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n{body}".encode())  # fmt: skip
            if i % 2:  # it leaves while the prompt is computed, and the others when they have sent it
                hold.wait("step")
        state = wait_until(lambda: (state := cache(url))["sequences"] == len(state["pins"]) and state, "pins to be listed")
        for left in state["pins"]:
            assert call(url, "DELETE", "/cache/pin/" + left["id"])[0] == 200
    wait_for_sequences(url, 0)


# ---- The tree ----


def tree(url, query="nodes=1000", key=OPERATOR):
    """All nodes, by their ids."""
    status, page = call(url, "GET", "/cache?" + query, key=key)
    assert status == 200 and page["object"] == "cache.nodes", page
    nodes = {node["id"]: node for node in page["data"]}
    assert len(nodes) == len(page["data"])
    return nodes, page


def stream(url, body, key=OPERATOR):
    """The bytes of a stream's tokens and finish reasons."""
    request = urllib.request.Request(url + "/v1/completions", json.dumps({**body, "stream": True}).encode(),
                                     {"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        events = [line[6:] for line in reply.read().decode().splitlines() if line.startswith("data: {")]
    return [json.loads(event)["choices"] for event in events]


def test_sixteen_requests_are_one_trunk_with_sixteen_leaves(serve, hold):
    url = serve("--kv-budget", "256M", "--speculate", "off", hold=hold)
    bodies = [{"prompt": PROMPT + [3000 + i, 4000 + i], "max_tokens": 200, "ignore_eos": True, "temperature": 0} for i in range(16)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        with hold("step", reached=False):
            answers = [pool.submit(stream, url, body) for body in bodies]
            states = [f"vllm:num_requests_{state}" for state in ("running", "waiting")]
            wait_until(lambda: sum(metric(url, state) for state in states) == 16, "16 requests")

        def find_trunk():
            nodes, page = tree(url)
            assert not all(answer.done() for answer in answers)
            return next(((node, nodes, page) for node in nodes.values() if node["readers"] == 16), None)

        trunk, nodes, page = wait_until(find_trunk, "a node with 16 readers")
        leaves = [node for node in nodes.values() if node["parent"] == trunk["id"]]
        assert (trunk["tokens"], trunk["ready"], trunk["sequences"], trunk["state"]) == (200, 200, 16, "live")
        assert trunk["parent"] is None and trunk["hits"] == 15 and trunk["bytes"] > 0 and trunk["text"] and trunk["end"]
        assert trunk["chunks"] == 4 and page["chunk_tokens"] == 64 and page["max_sequences"] == 32
        assert len(leaves) == 16 and all((leaf["readers"], leaf["depth"], leaf["position"]) == (1, 1, 200) for leaf in leaves)
        assert page["running"] == 16 and page["sequences"] == 16 and page["unshared_bytes"] > 2 * page["live_bytes"]
        for answer in answers:
            answer.result()
    wait_for_sequences(url, 0)
    nodes, _ = tree(url)
    assert {node["state"] for node in nodes.values()} == {"retained"} and sum(node["readers"] for node in nodes.values()) == 0


def test_pages_and_what_has_not_changed(serve):
    url = serve(*BUDGET)
    for i in range(9):
        cached(url, PROMPT[: 20 + 4 * i] + [i] * 20)
    wait_for_sequences(url, 0)
    nodes, page = tree(url)
    assert len(nodes) > 9 and page["next"] is None
    assert sum(node["tokens"] for node in nodes.values()) == page["tokens_stored"]
    walked, cursor = {}, ""
    while cursor is not None:
        part, answer = tree(url, f"nodes=4&text=2{cursor and '&cursor=' + cursor}")
        assert not part.keys() & walked.keys()
        walked.update(part)
        cursor = answer["next"]
    assert walked.keys() == nodes.keys()
    biggest = max(nodes.values(), key=lambda node: node["tokens"])
    below, _ = tree(url, f"nodes=100&text=1000&node={biggest['id']}")
    assert below[biggest["id"]]["tokens"] == biggest["tokens"] and len(below[biggest["id"]]["text"]) >= len(biggest["text"])
    long, _ = tree(url, f"nodes=1000&text=0&min_tokens={biggest['tokens']}")
    parents = {node["parent"] for node in nodes.values()}
    assert biggest["id"] in long and not any("text" in node for node in long.values())
    assert all(node["tokens"] >= biggest["tokens"] or node["id"] in parents for node in long.values())
    assert call(url, "GET", "/cache?nodes=1&node=123456")[0] == 404
    request = urllib.request.Request(url + "/cache?nodes=1000", headers={"Authorization": f"Bearer {OPERATOR}"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        request.add_header("If-None-Match", reply.headers["ETag"])
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=LIMIT_S)
    assert caught.value.code == 304 and caught.value.read() == b""
    cached(url, [9, 9, 9])
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        assert reply.status == 200
    for query in ("nodes=x", "nodes=4&cursor=77", "nodes=4&cursor=" + "9" * 40, "nodes=" + "1" * 5000, "nodes=%ff"):
        status, answer = call(url, "GET", "/cache?" + query)
        assert status == 400 and answer["error"]["param"] in ("nodes", "cursor"), query


def test_streams_are_undisturbed_while_someone_looks(serve):
    """No byte of them differs, however often the tree is read and prompts are explained."""
    bodies = [{"prompt": PROMPT[: 150 + i % 3], "max_tokens": 60, "ignore_eos": True, "seed": i, "logprobs": 2} for i in range(8)]
    results = []
    for looks in (False, True):
        url = serve(*BUDGET)
        over, n_looks = threading.Event(), 0

        def look():
            nonlocal n_looks
            while not over.is_set():
                tree(url, "nodes=4096&text=64")
                explain(url, prompt=PROMPT)
                n_looks += 1

        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            lookers = [pool.submit(look) for _ in range(4 * looks)]
            while True:  # until there have been ten looks at streams
                answers = [pool.submit(stream, url, body) for body in bodies]
                results.append([answer.result() for answer in answers])
                if n_looks >= 10 * looks:
                    break
            over.set()
            for looker in lookers:
                looker.result()
    assert all(result == results[0] for result in results)


# ---- Why a prompt misses ----


def explain(url, /, key=OPERATOR, **body):
    status, answer = call(url, "POST", "/cache/explain", body, key)
    assert status == 200 and answer["object"] == "cache.explanation", answer
    return answer


def chat(system, user="My arm hurts."):
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def test_the_first_token_that_differs(serve):
    url = serve(*BUDGET)
    rules = " ".join(f"Rule {i}: be kind." for i in range(12))
    assert explain(url, messages=chat("You are the ship's doctor. " + rules))["reason"] == "absent"
    body = {"messages": chat("You are the ship's doctor. " + rules), "max_tokens": 1}
    assert call(url, "POST", "/v1/chat/completions", body)[0] == 200
    whole = explain(url, messages=body["messages"])
    assert whole["reason"] == "whole" and whole["tokens"] - 2 <= whole["matched"] < whole["tokens"] and whole["difference"] is None
    assert whole["saved_seconds"] > whole["missing_seconds"] >= 0
    # One word of the system prompt is another one.
    other = explain(url, messages=chat("You are the ship's cook. " + rules))
    difference = other["difference"]
    assert other["reason"] == "differs" and difference["before"].endswith("You are the ship's"), other
    assert difference["prompt"]["text"].startswith(" cook. Rule 0: be kind.")
    assert difference["cache"]["text"].startswith(" doctor. Rule 0: be kind.")
    assert difference["position"] - 1 <= other["matched"] <= difference["position"]
    assert f"at position {difference['position']} the cache has another token" in other["message"]
    # The same chat goes on.
    longer = explain(url, messages=chat("You are the ship's doctor. " + rules, "My arm hurts. And my leg."))
    assert longer["reason"] == "differs" and longer["difference"]["before"].endswith("My arm hurts.")
    # Another tenant has it.
    theirs = explain(url, messages=body["messages"], tenant="a")
    assert theirs["reason"] == "absent" and theirs["tenant"] == "a"
    assert theirs["other"] == {"tenant": "default", "matched": whole["matched"]}
    for key, status in (("key-a", 403), ("wrong", 401)):
        for path in ("/cache/explain", "/cache/reset", "/reset_prefix_cache"):
            assert call(url, "POST", path, {"prompt": "x"}, key)[0] == status


def test_bodies_of_other_apis(serve, chunkllama, tmp_path):
    url = serve(*BUDGET)
    user = {"role": "user", "content": "My arm hurts."}
    for path, body in (
        ("/v1/messages", {"system": "You are the ship's doctor.", "messages": [user], "max_tokens": 1}),
        ("/v1/responses", {"instructions": "You are the ship's cook.", "input": "My arm hurts.", "max_output_tokens": 1}),
    ):
        assert explain(url, url=path, **body)["difference"]["prompt"] is not None
        assert call(url, "POST", path, body)[0] == 200
        whole = explain(url, url=path, **body)
        assert whole["reason"] == "whole" and whole["tokens"] > 20, whole
        request = tmp_path / "request.json"
        request.write_text(json.dumps(body))
        text = chunkllama("explain", "--url", url, "--api-key", OPERATOR, "--path", path, request).stdout
        assert text.startswith(f"{whole['matched']} of {whole['tokens']} tokens match")
        assert pin(url, url=path, **body)["tokens"] >= whole["matched"]


def test_a_salt_separates(serve):
    url = serve(*BUDGET)
    body = {"prompt": PROMPT, "cache_salt": "mine", "max_tokens": 1}
    assert call(url, "POST", "/v1/completions", body)[0] == 200
    mine = explain(url, **body)
    assert mine["reason"] == "whole" and mine["other"] is None
    for theirs in (explain(url, prompt=PROMPT), explain(url, **{**body, "cache_salt": "theirs"}), explain(url, tenant="a", **body)):
        assert theirs["reason"] == "absent" and theirs["other"] == {"tenant": None, "matched": mine["matched"]}, theirs
    nodes, _ = tree(url)
    assert [node["tenant"] for node in nodes.values()] == [None]


@pytest.mark.whole_model
def test_what_was_evicted(serve):
    url = serve(*BUDGET)
    cached(url, PROMPT)
    assert explain(url, prompt=PROMPT)["reason"] == "whole"
    flood(url)
    gone = explain(url, prompt=PROMPT)
    assert gone["reason"] == "evicted" and gone["matched"] == 0, gone
    assert 192 <= gone["evicted"]["tokens"] <= 200
    assert 0 <= gone["evicted"]["seconds_ago"] <= explain(url, prompt=PROMPT)["evicted"]["seconds_ago"]
    cached(url, PROMPT)
    assert explain(url, prompt=PROMPT)["reason"] == "whole"
    status, after = call(url, "POST", "/cache/reset")
    assert status == 200 and after["object"] == "cache.reset" and after["tokens_stored"] == after["nodes"] == 0
    assert explain(url, prompt=PROMPT)["reason"] == "evicted"
    answer = pin(url, prompt=PROMPT[:128])
    assert call(url, "POST", "/reset_prefix_cache", {})[1]["pins"] == [answer]
    nodes, _ = tree(url)
    assert [(node["state"], node["pins"], node["tokens"]) for node in nodes.values()] == [("pinned", 1, 128)]
    assert explain(url, prompt=PROMPT)["matched"] == 128


def test_the_file_keeps_what_is_dropped(serve, tmp_path):
    url = serve(*BUDGET, "--kv-tier", tmp_path / "tier", "--kv-tier-size", "64M")
    cached(url, PROMPT)
    wait_until(lambda: metric(url, "chunkattn_tier_writes_total") >= 3, "three writes of 64 tokens")
    assert explain(url, prompt=PROMPT)["in_file"] == 0  # nothing that is not in memory
    assert call(url, "POST", "/cache/reset")[1]["tokens_stored"] == 0
    dropped = explain(url, prompt=PROMPT)
    assert (dropped["matched"], dropped["in_file"], dropped["reason"]) == (0, 192, "evicted")
    assert cached(url, PROMPT) == 192


def test_questions_that_are_wrong(serve):
    url = serve(*BUDGET)
    status, answer = call(url, "POST", "/cache/explain", {"prompt": [1, 10**9]})
    assert status == 400 and "'prompt[1]' is 1000000000" in answer["error"]["message"]
    for parameter in ("reset_external", "reset_running_requests"):
        status, answer = call(url, "POST", f"/reset_prefix_cache?{parameter}=true")
        assert status == 400 and answer["error"]["param"] == parameter
        assert call(url, "POST", f"/cache/reset?{parameter}=false")[0] == 200


def test_explain_for_a_person(serve, chunkllama, tmp_path):
    url = serve(*BUDGET)
    request = {"messages": chat("You are the ship's doctor."), "max_tokens": 1}
    assert call(url, "POST", "/v1/chat/completions", request)[0] == 200
    path = tmp_path / "request.json"
    path.write_text(json.dumps({**request, "messages": chat("You are the ship's\u009b cook.")}))
    ask = ["explain", "--url", url, "--api-key", OPERATOR]
    text = chunkllama(*ask, path).stdout
    assert "at position" in text and "\n  prompt  token " in text and "\n  cache   token " in text and '" doctor' in text
    assert "\x9b" not in text and "\\x9b" in text
    assert text == chunkllama(*ask, stdin=path.read_text()).stdout == chunkllama(*ask, "-", stdin=path.read_text()).stdout
    theirs = chunkllama(*ask, "--tenant", "a", path).stdout
    assert "tenant          a\n" in theirs and "others          default has " in theirs
    answer = json.loads(chunkllama(*ask, "--json", stdin=json.dumps(request)).stdout)
    assert answer["reason"] == "whole"
    for args, stdin, message in (
        ([*ask], "{", "standard input is no request: "),
        ([*ask], "[1]", "standard input is no request: it must be a JSON object"),
        ([*ask], "{}", "/cache/explain answered HTTP 400: "),
        ([*ask, tmp_path / "none"], "", "none"),
        (["explain", "--url", url, path], "", "answered HTTP 401: this server requires its API key"),
        (["explain", "--url", url, "--api-key", "key-a", path], "", "answered HTTP 403: "),
        (["explain", "--url", "http://127.0.0.1:9", path], "", "cannot reach http://127.0.0.1:9"),
        (["explain", "--url", url + "/v1", path], "", "; --url names the endpoint, without /v1"),
    ):
        done = chunkllama(*args, stdin=stdin, status=1)
        assert message in done.stderr and done.stdout == "", (args, done)
    assert "one argument too many; name one FILE" in chunkllama(*ask, path, path, status=2).stderr
