#!/usr/bin/env bash
# Install what is missing, build, and run ChunkLlama with the default model, SmolLM2-135M-Instruct.
#
#   ./run.sh                 an OpenAI-compatible server on 127.0.0.1:8080
#   ./run.sh batch           256 templated prompts as one offline job; writes build/batch.jsonl
#   ./run.sh COMMAND ...     any other command of chunkllama: ./run.sh chat, ./run.sh run "Hello", ./run.sh --help
#
# Environment:
#   CHUNKLLAMA_MODEL=FILE     another model; the default one is not downloaded then
#   CHUNKLLAMA_SKIP_SETUP=1   install and download nothing, only build and run
set -euo pipefail
cd "$(dirname "$0")"
. scripts/setup.sh

begin_setup
setup_packages run
if [ -z "${CHUNKLLAMA_MODEL:-}" ]; then
    setup_python run
    [ -z "$MODEL" ] || export CHUNKLLAMA_MODEL=$MODEL
fi
build release --target chunkllama
end_setup

chunkllama=$PWD/build/release/bin/chunkllama
case "$*" in
'') exec "$chunkllama" serve --host 127.0.0.1 --port 8080 ;;
batch) ;;
*) cd "$OLDPWD" && exec "$chunkllama" "$@" ;; # paths among the arguments are the caller's
esac
trap 'echo "Interrupted: build/batch.jsonl lacks the remaining results." >&2; exit 130' INT
"$chunkllama" batch -i workloads/tool_planning.jsonl -o build/batch.jsonl --max-tokens 16 --temperature 0
echo "Results: build/batch.jsonl"
