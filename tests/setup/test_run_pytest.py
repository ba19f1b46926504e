"""scripts/run_pytest.py: a test that fails runs once more alone, but not where that would hide something."""
import subprocess
import sys
import textwrap

import pytest
from conftest import ROOT
from waiting import LIMIT_S

CONFTEST = f"""
    import importlib.util
    import sys
    sys.path.insert(0, {str(ROOT / "tests")!r})
    spec = importlib.util.spec_from_file_location("tests_conftest", {str(ROOT / "tests/conftest.py")!r})
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pytest_configure, pytest_collection_modifyitems = module.pytest_configure, module.pytest_collection_modifyitems
"""
# Passes from the second time on.
FLAKY = """
    import pathlib
    import pytest

    {mark}
    def test_it():
        file = pathlib.Path("ran")
        again = file.exists()
        file.touch()
        assert again, {text!r}

    def test_another():
        pass
"""


@pytest.fixture
def run(tmp_path):
    def run(test, *arguments):
        (tmp_path / "build").mkdir()
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        (tmp_path / "conftest.py").write_text(textwrap.dedent(CONFTEST))
        (tmp_path / "test_file.py").write_text(textwrap.dedent(test))
        done = subprocess.run([sys.executable, ROOT / "scripts/run_pytest.py", *arguments], cwd=tmp_path, capture_output=True, text=True,
                              timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stdout.splitlines()[-1]

    return run


@pytest.mark.parametrize("arguments", [(), ("-n", "2")])
def test_what_passes_the_second_time_is_flaky(run, arguments):
    out, counts = run(FLAKY.format(mark="", text="too slow"), *arguments)
    assert counts == "2 0 1" and "\nFLAKY: test_file.py::test_it. Its first output was:\n" in out and out.count("too slow") > 1


@pytest.mark.parametrize("mark, text", [
    ("@pytest.mark.exact", "other bits"),
    ("", "assert -11 == 0"),
    ("", "ERROR: AddressSanitizer: heap-use-after-free"),
    ("", "runtime error: signed integer overflow"),
    ("", "waited 300 s for the server"),
])  # fmt: skip
def test_what_counts_at_once(run, mark, text):
    out, counts = run(FLAKY.format(mark=mark, text=text))
    assert counts == "1 1 0" and "FLAKY" not in out


def test_what_fails_twice_has_failed(run):
    out, counts = run("def test_it():\n    assert False\n\ndef test_another():\n    pass\n")
    assert counts == "1 1 0" and "FLAKY" not in out


def test_nothing_that_ran_is_a_failure(run):
    assert run("import nothing_of_that_name\n")[1] == "0 1 0"
