"""Progress and Ctrl-C of long commands, on a terminal and as lines. test_batch.py has batch, test_bench_serve.py bench serve."""
import json
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from conftest import ROOT
from terminal import INTERRUPT, Terminal

TEXT = ROOT / "README.md"
INTERRUPTED = 130 << 8  # as os.waitpid reports it


@pytest.fixture
def on_terminal(chunkllama_bin, model_path, terminals):
    begun = []

    def run(*args):
        begun.append(Terminal([chunkllama_bin, *args, "-m", model_path]))
        return begun[-1]

    yield run
    for t in begun:
        t.__exit__()


def test_perplexity_on_a_terminal(on_terminal):
    t = on_terminal("perplexity", "-f", TEXT, "--ctx", "64")
    t.read_until("so far, 0:")
    t.send(INTERRUPT)
    assert t.wait() == INTERRUPTED
    bars = re.findall(rb"\r\[(#*)(\.*)\] (\d+)/(\d+) chunks(?:, PPL [\d.]+ so far)?(?:, (\d+:\d\d) left)?\x1b\[K", t.shown)
    assert bars[0][2] == b"0" and bars[-1][4] and len({len(b[0] + b[1]) for b in bars}) <= 2 and b"[1]" not in t.shown
    assert re.search(rb"\r\nFinal estimate: PPL = [\d.]+ .*\r\nchunkllama perplexity: interrupted after (\d+) of (\d+) chunks, whose", t.shown)


def test_perplexity_as_lines(chunkllama_bin, model_path):
    """Stopped for longer than the gap between two lines, it prints one when it goes on."""
    with subprocess.Popen([chunkllama_bin, "perplexity", "-f", TEXT, "--ctx", "64", "-m", model_path], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as p:
        assert p.stdout.read(3) == b"[1]"
        p.send_signal(signal.SIGSTOP)
        time.sleep(2)
        p.send_signal(signal.SIGCONT)
        assert re.fullmatch(rb"\d+/\d+ chunks(, PPL [\d.]+ so far)?, \d+:\d\d left\n", p.stderr.readline())
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        assert p.returncode == 130 and b"\r" not in err and b"\x1b" not in err
        assert b"Final estimate: PPL = " in out and re.search(rb"interrupted after \d+ of \d+ chunks", err)


def test_short_commands_show_no_lines(chunkllama):
    assert chunkllama("perplexity", "-f", TEXT, "--ctx", "64", "--chunks", "2").stderr == ""


def test_bench_on_a_terminal(on_terminal):
    t = on_terminal("bench", "--pp", "16,4096", "--batch", "1,2", "--tg", "1", "--max-step-rows", "64")
    t.read_until(" left\x1b[K")
    t.read_until("2/4 measurements")
    t.send(INTERRUPT)
    assert t.wait() == INTERRUPTED
    assert len(re.findall(rb"\r\x1b\[K\| +16 \|", t.shown)) == 2  # each row has its line for itself
    assert t.shown.endswith(b"interrupted after 2 of 4 measurements; the next is --pp 4096 --batch 1\r\n")


def test_logits_on_a_terminal(on_terminal, tmp_path):
    """The file holds what was computed before the interrupt."""
    (tmp_path / "ids.json").write_text(json.dumps(list(range(300, 2348))))
    t = on_terminal("logits", "-t", tmp_path / "ids.json", "-o", tmp_path / "out.npy", "--max-step-rows", "16")
    t.read_until(" positions, ")
    t.send(INTERRUPT)
    assert t.wait() == INTERRUPTED
    n = int(re.search(rb"interrupted after (\d+) of 2048 positions, whose logits are in the file", t.shown)[1])
    assert 0 < n < 2048 and np.load(tmp_path / "out.npy", mmap_mode="r").shape == (n, 49152)


def test_bench_grammar_on_a_terminal(on_terminal, grammar_library):
    """The pair of runs in which the interrupt comes is completed, and its workload's line printed."""
    t = on_terminal("bench", "grammar", "--grammar-library", grammar_library, "--streams", "4", "--tg", "128", "--rounds", "1")
    t.read_until("1/4 pairs of runs, ")
    time.sleep(0.1)  # the bar is drawn just before the pair begins, which takes longer than this
    t.send(INTERRUPT)
    assert t.wait() == INTERRUPTED
    n = int(re.search(rb"interrupted after (\d) of 4 pairs of runs; the workloads that are done are printed", t.shown)[1])
    assert 2 <= n < 4 and len(re.findall(rb"\r\x1b\[K\| (?:text|json|records) +\|", t.shown)) == n


def test_loading_a_model(chunkllama_bin, model_path, terminals):
    """A model that loads quickly shows nothing; one that takes half a second, because the process is often stopped, a bar."""

    def load(slowly):
        with Terminal([chunkllama_bin, "logits", "-m", model_path, "-t", "/none", "-o", "/dev/null"]) as t:
            while slowly and os.waitid(os.P_PID, t.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                os.kill(t.process, signal.SIGSTOP)
                time.sleep(0.05)
                os.kill(t.process, signal.SIGCONT)
                time.sleep(0.002)
            assert t.wait() == 1 << 8
            return t.shown

    shown = load(slowly=True)
    assert re.search(rb"\r\[[#.]+\] \d+/30 layers of the model loaded(, 0:00 left)?\x1b\[K.*\r\x1b\[Kchunkllama logits: cannot open /none", shown)
