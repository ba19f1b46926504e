"""tests/fuzz/add.sh: the archives of the fuzz targets' corpora, which the same inputs always give."""
import shutil
import subprocess
import tarfile

import pytest
from conftest import ROOT
from waiting import LIMIT_S

FUZZ = ROOT / "tests/fuzz"


@pytest.fixture
def add(tmp_path):
    """Runs a copy of the script beside a copy of the archives; returns the archive."""
    shutil.copytree(FUZZ / "corpus", tmp_path / "corpus")
    shutil.copy(FUZZ / "add.sh", tmp_path)

    def add(target, *files):
        subprocess.run([tmp_path / "add.sh", target, *files], check=True, timeout=LIMIT_S)
        return tmp_path / f"corpus/{target}.tar"

    return add


def inputs_of(archive):
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def test_each_target_has_an_archive_with_inputs():
    targets = {path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.c")}
    assert targets == {path.stem for path in (FUZZ / "corpus").iterdir()}
    assert all(inputs_of(FUZZ / f"corpus/{target}.tar") for target in targets)


def test_archives_are_what_the_script_packs(add):
    for path in sorted((FUZZ / "corpus").iterdir()):
        assert add(path.stem).read_bytes() == path.read_bytes(), f"pack it again: tests/fuzz/add.sh {path.stem}"


def test_an_input_is_added(add, tmp_path):
    """Beside those that are there, or in the place of the one with its name; a target may have none before."""
    before = inputs_of(FUZZ / "corpus/gbnf.tar")
    (tmp_path / "c").write_bytes(b"\0new")
    after = inputs_of(add("gbnf", tmp_path / "c"))
    assert list(after) == sorted(before) and after == before | {"gbnf/c": b"\0new"}
    assert inputs_of(add("another", tmp_path / "c")) == {"another/c": b"\0new"}
