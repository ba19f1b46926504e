#!/usr/bin/env bash
# Install what is missing, build, and run ChunkLlama with the default model, SmolLM2-135M-Instruct.
#
#   ./run.sh                  an OpenAI-compatible server on 127.0.0.1:8080
#   ./run.sh batch            256 templated prompts as one offline job; writes build/batch.jsonl
#   ./run.sh COMMAND ...      any other command of chunkllama, such as ./run.sh chat or ./run.sh run "Hello"
#   ./run.sh COMMAND --help   the options of a command: run, chat, batch, serve, info, tokenize, logits, perplexity or bench
#
# Environment:
#   CHUNKLLAMA_MODEL=FILE     use another model; the default model is not downloaded then
#   CHUNKLLAMA_GRAMMAR_LIBRARY=FILE   the same for llguidance, the library that constrains answers to JSON schemas and grammars
#   CHUNKLLAMA_SKIP_SETUP=1   install and download nothing, only build and run
set -euo pipefail
cd "$(dirname "$0")"
case ${1:-} in
-h | --help | help)
    sed -n '2,/^set/ { /^set/d; s/^# \{0,1\}//; p; }' run.sh # the comment above
    exit
    ;;
esac
. scripts/setup.sh

begin_setup
setup_packages run
if [ -z "${CHUNKLLAMA_MODEL:-}" ]; then
    setup_python run
    [ -z "$MODEL" ] || export CHUNKLLAMA_MODEL=$MODEL
fi
if [ -z "${CHUNKLLAMA_GRAMMAR_LIBRARY:-}" ]; then
    setup_grammars
    [ -z "$GRAMMAR_LIBRARY" ] || export CHUNKLLAMA_GRAMMAR_LIBRARY=$GRAMMAR_LIBRARY
fi
build release --target chunkllama
end_setup

root=$PWD chunkllama=$PWD/build/release/bin/chunkllama
cd "$OLDPWD" # paths among the arguments and in CHUNKLLAMA_MODEL are relative to the caller's folder
case "$*" in
'') exec "$chunkllama" serve ;; # on 127.0.0.1:8080, or as CHUNKLLAMA_HOST and CHUNKLLAMA_PORT say
batch) ;;
*) exec "$chunkllama" "$@" ;;
esac
trap 'echo "Interrupted: build/batch.jsonl has only the first results." >&2; exit 130' INT
"$chunkllama" batch -i "$root/bench/workloads/tool_planning.jsonl" -o "$root/build/batch.jsonl" --max-tokens 16 --temperature 0
echo "Results: build/batch.jsonl"
