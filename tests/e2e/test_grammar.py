"""The library of grammars: where it is found, what is said where it is not, its processes, and the measurement of its cost."""
import concurrent.futures
import json
import os
import signal

import openai
import pytest

from test_server import serving
from waiting import LIMIT_S, wait_until

# A schema within all limits of its text, whose compilation takes many seconds, and the limits that may end it: the machine's speed and
# load decide by which.
SLOW = {"allOf": [{"properties": {"a": {"type": "integer", "multipleOf": n}}} for n in (9973, 9967)]}
ENDED = "more than the 2 s of CPU time|more than the 256 MiB of memory|longer to prepare than the 20 s"
DIGITS = {"guided_regex": "[0-9]+"}


def running():
    """The name and the parent of each process that runs."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8") as stat:
                name, rest = stat.read().split("(", 1)[1].rsplit(") ", 1)
        except OSError:
            continue
        if rest[0] != "Z":
            found[int(entry)] = name, int(rest.split()[1])
    return found


def children(pid):
    """The processes that a process has forked, by their names."""
    found = {}
    for child, (name, parent) in running().items():
        if parent == pid:
            found.setdefault(name, []).append(child)
    return found


def grammars_of(server):
    (starter,) = children(server.process.pid)["grammars"]
    return children(starter).get("grammar", [])


@pytest.mark.parametrize("options", [(), ("--sandbox",), ("--grammars-in-process",)])
def test_the_server_loads_it(chunkllama_bin, model_path, grammar_library, options):
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library, *options) as server:
        assert server.complete("One, two,", max_tokens=4, extra_body={"ignore_eos": True}).usage.completion_tokens == 4
        process = server.process.pid
        if "--grammars-in-process" not in options:
            (process,) = children(process)["grammars"]
        with open(f"/proc/{process}/maps", encoding="utf-8") as maps:
            assert os.path.realpath(grammar_library) in maps.read()


@pytest.mark.parametrize("path, says", [("/no/such.so", "/no/such.so: cannot open shared object file"),
                                        ("libm.so.6", "libm.so.6, which lacks llg_")])
def test_what_is_not_the_library_is_refused(chunkllama, tmp_path, path, says):
    requests = tmp_path / "requests.jsonl"
    requests.write_text('{"prompt": "One"}\n')
    done = chunkllama("batch", "-i", requests, "--grammar-library", path, status=1)
    assert done.stderr.startswith("chunkllama batch: --grammar-library ") and says in done.stderr


@pytest.fixture(scope="module", params=[(), ("--sandbox",)])
def server(request, chunkllama_bin, model_path, grammar_library):
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library, *request.param) as running:
        yield running


def tool_of(schema):
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}


LARGE = {"allOf": [{"multipleOf": 1009}, {"multipleOf": 1013}]}
NESTED = '((("x"?){1,400}){1,300}){1,2}'


@pytest.mark.parametrize("body, says", [
    ({"json_schema": LARGE}, "common multiple above 10000"),
    ({"guided_json": LARGE}, "common multiple above 10000"),
    ({"structured_outputs": {"json": LARGE}}, "common multiple above 10000"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": LARGE}}}, "common multiple above 10000"),
    ({"guided_grammar": f"start: %json {json.dumps(LARGE)}"}, "common multiple above 10000"),
    (tool_of(LARGE), "common multiple above 10000"),
    ({"guided_regex": "((x?){1,400}){1,301}"}, "counts multiply to"),
    ({"json_schema": {"type": "string", "pattern": "^((x?){1,400}){1,301}$"}}, "counts multiply to"),
    ({"grammar": f"root ::= {NESTED}"}, "counts multiply to"),
    ({"guided_grammar": f"start: {NESTED}"}, "counts multiply to"),
])
def test_what_would_take_long_is_refused_by_its_limit(server, body, says):
    with pytest.raises(openai.BadRequestError, match=says) as refused:
        server.chat(extra_body=body, max_tokens=1)
    assert refused.value.status_code == 400


@pytest.mark.parametrize("server", [("--sandbox",)], indirect=True)
def test_what_takes_long_is_ended(server):
    with pytest.raises(openai.BadRequestError, match=ENDED):
        server.chat(extra_body={"json_schema": SLOW}, max_tokens=1)


def test_equal_grammars_have_one_process(server):
    for _ in range(3):
        for pattern in "[ab]+", "[cd]+":
            server.complete("x", max_tokens=1, extra_body={"guided_regex": pattern})
    before = sorted(grammars_of(server))
    server.complete("x", max_tokens=1, n=4, temperature=1, extra_body={"guided_regex": "[ab]+"})
    assert sorted(grammars_of(server)) == before


def test_the_end_of_a_process_ends_its_requests_alone(server):
    """Streams with a grammar get an error when its process is killed; others, with another grammar or none, go on."""
    def begin(**body):
        stream = server.complete("1", extra_body={"ignore_eos": True, **body}, stream=True, max_tokens=5000)
        next(stream)
        return stream

    others = [begin(guided_regex="[0-4]*"), begin()]
    before = set(grammars_of(server))
    stream = begin(**DIGITS)  # the last one, so that it is far from its end
    [victim] = set(grammars_of(server)) - before
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(openai.APIError, match="the process of the grammar has ended, by signal 9"):
        for _ in stream:
            pass
    for other in others:
        for _ in range(20):
            next(other)
        other.close()
    assert server.complete("1", max_tokens=3, extra_body=DIGITS).choices[0].text.isdigit()
    assert victim not in grammars_of(server)


@pytest.mark.parametrize("options", [(), ("--sandbox",)])
def test_a_compilation_does_not_delay_the_end(chunkllama_bin, model_path, grammar_library, options):
    """Its process is stopped in the middle, and the server ends without waiting for the limit; so do all its processes."""
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library, "--shutdown-timeout", "0", *options) as server:
        (starter,) = children(server.process.pid)["grammars"]
        pool = concurrent.futures.ThreadPoolExecutor()
        refused = pool.submit(server.complete, "x", max_tokens=1, extra_body={"json_schema": SLOW})
        (compiling,) = wait_until(lambda: grammars_of(server), "a process that compiles")
        os.kill(compiling, signal.SIGSTOP)
        assert server.complete("One", max_tokens=1).usage.completion_tokens == 1  # without a grammar it does not wait
        server.process.send_signal(signal.SIGTERM)
        assert isinstance(refused.exception(), openai.OpenAIError)
        assert server.process.wait(LIMIT_S) in (0, 124)
        wait_until(lambda: not {starter, compiling} & running().keys(), "their end")


def test_bench_grammar(chunkllama, grammar_library):
    done = chunkllama("bench", "grammar", "--streams", 2, "--tg", 12, "--rounds", 1, "--json", "--grammar-library",
                      grammar_library)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["grammar"] for row in rows] == ["text", "json", "records", "tools"]
    for row in rows:
        assert row["step_ms"] > 0 and row["step_ms_without"] > 0 and row["submit_ms"] > 0 and row["added"] > -1
        assert 1 <= row["tokens_per_step"] <= 2 * 12
    assert "bench grammar: grammar is set, but this engine has no" in chunkllama("bench", "grammar", status=1).stderr
