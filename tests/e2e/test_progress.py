"""Progress and Ctrl-C of long commands, on a terminal and as lines. test_batch.py has batch, test_bench_serve.py bench serve."""
import contextlib
import json
import re
import signal
import subprocess

import numpy as np
import pytest
from conftest import ROOT
from holding import Hold
from terminal import INTERRUPT, Terminal
from waiting import LIMIT_S

TEXT = ROOT / "README.md"
INTERRUPTED = 130 << 8  # as os.waitpid reports it


@pytest.fixture
def hold(tmp_path):
    return Hold(tmp_path)


@pytest.fixture
def on_terminal(bin_dir, model_path, terminals, hold):
    """Runs a command, which `hold` can hold, on a terminal."""
    begun = []

    def run(*args):
        begun.append(Terminal([bin_dir / "chunkllama_held", *args, "-m", model_path], hold.env))
        return begun[-1]

    yield run
    for t in begun:
        t.__exit__()


def test_perplexity_on_a_terminal(on_terminal):
    t = on_terminal("perplexity", "-f", TEXT, "--ctx", "64")
    t.read_until(" passages")  # loading shows a bar, too, and an interrupt ends it at once
    t.read_until(" left")
    t.send(INTERRUPT)
    assert t.wait() == INTERRUPTED
    bars = re.findall(rb"\r\[(#*)(\.*)\] (\d+)/(\d+) passages(?:, PPL [\d.]+ so far)?(?:, (\d+:\d\d) left)?\x1b\[K", t.shown)
    assert bars[0][2] == b"0" and bars[-1][4] and len({len(b[0] + b[1]) for b in bars}) <= 2 and b"[1]" not in t.shown
    assert re.search(rb"\r\nFinal estimate: PPL = [\d.]+ .*\r\nchunkllama perplexity: interrupted after (\d+) of (\d+) passages, whose", t.shown)


def test_perplexity_as_lines(bin_dir, model_path, hold):
    """Once its clock is an hour ahead, it prints a line, as a slow machine may before."""
    command = [bin_dir / "chunkllama_held", "perplexity", "-f", TEXT, "--ctx", "64", "-m", model_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=hold.env,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as p:
        assert p.stdout.read(3) == b"[1]"
        with hold("hour", reached=False):
            line = next(line for line in p.stderr if b" layers " not in line)
            assert re.fullmatch(rb"\d+/\d+ passages(, PPL [\d.]+ so far)?, [\d:]+:\d\d left\n", line)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=LIMIT_S)
        assert p.returncode == 130 and b"\r" not in err and b"\x1b" not in err
        assert b"Final estimate: PPL = " in out and re.search(rb"interrupted after \d+ of \d+ passages", err)


def test_short_commands_show_no_lines(bin_dir, model_path, hold):
    command = [bin_dir / "chunkllama_held", "perplexity", "-f", TEXT, "--ctx", "64", "--passages", "2", "-m", model_path]
    with hold("clock", reached=False):
        done = subprocess.run(command, capture_output=True, env=hold.env, check=True, timeout=LIMIT_S)
    assert done.stdout and done.stderr == b""


def test_bench_on_a_terminal(on_terminal, hold):
    """The interrupt comes within a measurement, usually the third."""
    t = on_terminal("bench", "--pp", "16,4096", "--batch", "1,2", "--tg", "1", "--max-step-rows", "64")
    t.read_until(" left\x1b[K")
    t.read_until("2/4 measurements")
    with hold("step"):
        t.send(INTERRUPT)
    assert t.wait() == INTERRUPTED
    assert len(re.findall(rb"\r\x1b\[K\| +16 \|", t.shown)) == 2  # each row has its line for itself
    n, batch = re.search(rb"interrupted after (\d) of 4 measurements; the next is --pp 4096 --batch (\d)\r\n$", t.shown).groups()
    assert (int(n), int(batch)) in [(2, 1), (3, 2)]


def test_logits_on_a_terminal(on_terminal, tmp_path):
    """The file holds what was computed before the interrupt."""
    (tmp_path / "ids.json").write_text(json.dumps(list(range(300, 2348))))
    t = on_terminal("logits", "-t", tmp_path / "ids.json", "-o", tmp_path / "out.npy", "--max-step-rows", "16")
    t.read_until(" positions, ")
    t.send(INTERRUPT)
    assert t.wait() == INTERRUPTED
    n = int(re.search(rb"interrupted after (\d+) of 2048 positions, whose logits are in the file", t.shown)[1])
    assert 0 < n < 2048 and np.load(tmp_path / "out.npy", mmap_mode="r").shape == (n, 49152)


def test_bench_grammar_on_a_terminal(on_terminal, hold, grammar_library):
    """The pair of runs in which the interrupt comes is completed, and its workload's line printed."""
    t = on_terminal("bench", "grammar", "--grammar-library", grammar_library, "--streams", "4", "--tg", "128", "--rounds", "1")
    t.read_until("1/4 pairs of runs, ")
    with hold("step"):
        t.send(INTERRUPT)
    assert t.wait() == INTERRUPTED
    n = int(re.search(rb"interrupted after (\d) of 4 pairs of runs; the workloads that are done are printed", t.shown)[1])
    assert 2 <= n < 4 and len(re.findall(rb"\r\x1b\[K\| (?:text|json|records) +\|", t.shown)) == n


def test_loading_a_model(on_terminal, hold):
    """A model that takes more than half a second to load, since the clock goes ahead by an hour meanwhile, shows a bar."""
    with contextlib.ExitStack() as ahead:
        with hold("pread", reached=False):
            t = on_terminal("logits", "-t", "/none", "-o", "/dev/null")
            hold.wait("pread")
            ahead.enter_context(hold("hour", reached=False))
        assert t.wait() == 1 << 8
    bar = rb"\r\[[#.]+\] \d+/\d+ layers of the model loaded(, [\d:]+:\d\d left)?\x1b\[K"
    assert re.search(bar + rb".*\r\x1b\[Kchunkllama logits: cannot open /none", t.shown)
