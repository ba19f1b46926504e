"""The library of grammars: where it is found, what is said where it is not, and the measurement of its cost."""
import json
import os

import pytest

from test_server import serving


@pytest.mark.parametrize("sandbox", [(), ("--sandbox",)])
def test_the_server_loads_it(chunkllama_bin, model_path, grammar_library, sandbox):
    with serving(chunkllama_bin, model_path, "--grammar-library", grammar_library, *sandbox) as server:
        assert server.complete("One, two,", max_tokens=4, extra_body={"ignore_eos": True}).usage.completion_tokens == 4
        with open(f"/proc/{server.process.pid}/maps", encoding="utf-8") as maps:
            assert os.path.realpath(grammar_library) in maps.read()


@pytest.mark.parametrize("path, says", [("/no/such.so", "/no/such.so: cannot open shared object file"),
                                        ("libm.so.6", "libm.so.6, which lacks llg_")])
def test_what_is_not_the_library_is_refused(chunkllama, tmp_path, path, says):
    requests = tmp_path / "requests.jsonl"
    requests.write_text('{"prompt": "One"}\n')
    done = chunkllama("batch", "-i", requests, "--grammar-library", path, status=1)
    assert done.stderr.startswith("chunkllama batch: --grammar-library ") and says in done.stderr


def test_bench_grammar(chunkllama, grammar_library):
    done = chunkllama("bench", "grammar", "--streams", 2, "--tg", 12, "--rounds", 1, "--json", "--grammar-library",
                      grammar_library)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["grammar"] for row in rows] == ["text", "json", "records", "tools"]
    for row in rows:
        assert row["step_ms"] > 0 and row["step_ms_without"] > 0 and row["submit_ms"] > 0 and row["added"] > -1
        assert 1 <= row["tokens_per_step"] <= 2 * 12
    assert "bench grammar: grammar is set, but this engine has no" in chunkllama("bench", "grammar", status=1).stderr
