#!/usr/bin/env bash
# Install what is missing, build, and run ChunkLlama with the default model, SmolLM2-135M-Instruct.
#
#   ./run.sh                 an OpenAI-compatible server on 127.0.0.1:8080
#   ./run.sh batch           256 templated prompts as one offline job; writes build/batch.jsonl
#   ./run.sh COMMAND ...     any other command of chunkllama: ./run.sh chat, ./run.sh run "Hello", ./run.sh --help
set -euo pipefail
cd "$(dirname "$0")"
. scripts/setup.sh

setup_packages
setup_python
mkdir -p build
build release --target chunkllama >build/run.log 2>&1 || { tail -n 50 build/run.log >&2; exit 1; }

export CHUNKLLAMA_MODEL=${CHUNKLLAMA_MODEL:-$MODEL}
chunkllama=build/release/bin/chunkllama
if [ $# = 0 ]; then exec $chunkllama serve --host 127.0.0.1 --port 8080; fi
if [ "$*" != batch ]; then exec $chunkllama "$@"; fi
$chunkllama batch -i workloads/tool_planning.jsonl -o build/batch.jsonl --max-tokens 16 --temperature 0
echo "Results: build/batch.jsonl"
