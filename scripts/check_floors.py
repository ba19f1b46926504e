#!/usr/bin/env python3
"""Check that includes go down only: a file includes files of its own floor, which is a folder with those in it, and of floors below."""
import pathlib
import re
import subprocess
import sys

# From the lowest up.
FLOORS = """
include
chunkattn/base chunkattn/tier chunkattn/cache chunkattn/attn chunkattn/cuda chunkattn/pages chunkattn/api
chunkllama/common chunkllama/tensor chunkllama/file chunkllama/linear chunkllama/text chunkllama/jinja chunkllama/chat
chunkllama/model chunkllama/engine
serve/protocol serve/batches serve/http
bench/loadgen
cli
bench
tests
docs
""".split()


def floor_of(path):
    return max((i for i, folder in enumerate(FLOORS) if path.is_relative_to(folder)), key=lambda i: len(FLOORS[i]), default=None)


def included_by(file):
    """The project's files that a file includes, with the numbers of the lines."""
    for line, text in enumerate(file.read_text().splitlines(), 1):
        if found := re.match(r'\s*#\s*include "(.*)"', text):
            paths = [pathlib.Path(folder) / found[1] for folder in (file.parent, ".", "include")]
            yield from ((line, path.resolve().relative_to(pathlib.Path.cwd())) for path in paths if path.exists())


names = subprocess.run(["git", "ls-files", "*.c", "*.h", "*.cpp", "*.cu", "*.cuh"], capture_output=True, text=True, check=True).stdout
upward = [f"{file}:{line}: {path} is on a floor above" for file in map(pathlib.Path, names.split()) if file.exists()
          for line, path in included_by(file) if floor_of(path) > floor_of(file)]
print(*upward, sep="\n")
sys.exit(bool(upward))
