#!/usr/bin/env bash
# Show that no test depends on a clock: run the stages end to end, page and threads of ./test.sh (which must have built) three times
# beside two spinning processes for each CPU, and once with delays in system calls and locks (tests/delays). Takes hours.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/setup.sh
. scripts/stages.sh
CHUNKLLAMA_MODEL=$(find_model) CHUNKLLAMA_GRAMMAR_LIBRARY=$(find_grammar_library)
export CHUNKLLAMA_MODEL CHUNKLLAMA_GRAMMAR_LIBRARY CHUNKLLAMA_BIN_DIR=$PWD/build/release/bin PYTHON=$PWD/.venv/bin/python

stages() {
    run_ctest "threads, $1" release -L threads -LE long
    run_pytest "end to end, $1" -n 2 --dist loadfile -m "not long" --ignore=tests/e2e/test_hostile.py --ignore=tests/e2e/test_tenants.py tests/e2e
    run_pytest "page, $1" -n 2 --dist loadfile tests/serve/web
}

spinning=()
for ((i = 0; i < 2 * $(nproc); i++)); do
    while :; do :; done &
    spinning+=($!)
done
trap 'kill "${spinning[@]}" 2>/dev/null' EXIT
for round in 1 2 3; do stages "spinning $round"; done
kill "${spinning[@]}"
LD_PRELOAD=$(find "$PWD/build/release/tests/delays" -name '*delays.so')
export LD_PRELOAD
stages "delays"
unset LD_PRELOAD
summary
