#!/usr/bin/env python3
"""Check that includes go down only: a file includes files of its own floor, which is a folder with those in it, and of floors below.

In the folder of LAYERED, calls go down too: a file calls only functions of files before it in the list at the head of that header.
"""
import pathlib
import re
import subprocess
import sys

# From the lowest up.
FLOORS = """
include
chunkattn/base chunkattn/tier chunkattn/cache chunkattn/attn chunkattn/cuda chunkattn/pages chunkattn/api
chunkllama/common chunkllama/tensor chunkllama/file chunkllama/linear chunkllama/text chunkllama/jinja chunkllama/schema
chunkllama/chat chunkllama/cuda chunkllama/model chunkllama/engine
serve/protocol serve/batches serve/http
bench/loadgen
cli
bench
tests
docs
""".split()


LAYERED = pathlib.Path("chunkattn/cache/tree.h")


def floor_of(path):
    return max((i for i, folder in enumerate(FLOORS) if path.is_relative_to(folder)), key=lambda i: len(FLOORS[i]), default=None)


def included_by(file):
    """The project's files that a file includes, with the numbers of the lines."""
    for line, text in enumerate(file.read_text().splitlines(), 1):
        if found := re.match(r'\s*#\s*include "(.*)"', text):
            paths = [pathlib.Path(folder) / found[1] for folder in (file.parent, ".", "include")]
            yield from ((line, path.resolve().relative_to(pathlib.Path.cwd())) for path in paths if path.exists())


def upward_calls():
    """Calls of functions of later files in LAYERED's list, and files that the list lacks or lists in vain."""
    head = LAYERED.read_text().split("*/")[0]
    order = re.findall(r"\w+\.c\b", head[head.index("from the lowest up"):])
    files = [file.name for file in LAYERED.parent.glob("*.c")]
    yield from (f"{LAYERED}: {file} is not in the list of files, or not in the folder" for file in sorted({*order} ^ {*files}))
    text = {name: re.sub(r"/\*.*?\*/", "", (LAYERED.parent / name).read_text(), flags=re.S) for name in order if name in files}
    floor = {function: i for i, name in enumerate(text)
             for function in re.findall(r"^(?!static)\w[^;={}()]*?\b(ca_\w+)\([^;{}]*\) \{", text[name], re.M)}
    yield from (f"{LAYERED.parent / name}: {function} is of a file above" for i, name in enumerate(text)
                for function in sorted({*re.findall(r"\bca_\w+(?=\()", text[name])}) if floor.get(function, -1) > i)


names = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.cpp", "*.cu", "*.cuh"], capture_output=True, text=True, check=True).stdout
upward = [f"{file}:{line}: {path} is on a floor above" for file in map(pathlib.Path, names.split()) if file.exists()
          for line, path in included_by(file) if floor_of(path) > floor_of(file)]
upward += upward_calls()
print(*upward, sep="\n")
sys.exit(bool(upward))
