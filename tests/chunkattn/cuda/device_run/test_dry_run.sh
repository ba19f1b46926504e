#!/usr/bin/env bash
# Rehearses scripts/device_first_run.sh: test_dry_run.sh SOURCE_DIR BIN_DIR. The programs are those for the emulation; the tools
# of a device are stand-ins, which say what they would do. Every step must leave its file, a step that fails or hangs must not stop
# the next ones, and a second call must run only those steps that have not succeeded.
set -uo pipefail
source_dir=$1 bin=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tools" "$work/programs" "$work/programs/cases"
touch "$work/programs/cases/none.txt"
n_failures=0
fail() {
    echo "FAILED: $*"
    n_failures=$((n_failures + 1))
}

# stand_in PATH COMMANDS: a program that says how it is called, then executes the commands.
# shellcheck disable=SC2016
stand_in() {
    printf '#!/usr/bin/env bash\necho "would run: ${0##*/} $*"\n%s\n' "$2" >"$1"
    chmod +x "$1"
}
stand_in "$work/tools/nvidia-smi" "[ ! -e '$work/hangs' ] || sleep 60"
# shellcheck disable=SC2016
{
    # The programs behind a tool's options run all the same.
    stand_in "$work/tools/compute-sanitizer" 'while [[ $1 == --* ]]; do [[ $1 == --tool || $1 == --error-exitcode ]] && shift; shift; done; exec "$@"'
    stand_in "$work/tools/ncu" 'while [[ $1 == --* ]]; do shift 2; done; exec "$@"'
    stand_in "$work/programs/primitives" "[ -e '$work/mended' ]"
    # The emulation is slow, so one problem is checked, whatever number the script passes.
    stand_in "$work/programs/check" "exec '$bin/cuda_kernels_attend_test' \$1 1 1 64"
    stand_in "$work/programs/worlds" "exec '$bin/cuda_device_worlds_test' --rows \$2 --worlds 1"
    stand_in "$work/programs/limits" "[ \$1 = chase ] && [ ! -e '$work/mended' ] && exit 3; exec '$bin/cuda_device_dry_limits' \"\$@\""
}
for example in example_cuda example_cuda_pages; do stand_in "$work/programs/$example" :; done # they call CUDA itself
ln -s "$bin/cuda_device_graphs_test" "$work/programs/graphs"
ln -s "$bin/cuda_device_dry_bench" "$work/programs/bench"
ln -s "$bin/cuda_device_dry_products" "$work/programs/products"
ln -s "$source_dir/tests/chunkattn/cuda/device_run/peers.py" "$work/programs/peers.py"

run() {
    # An emulation with sanitizers on a busy machine takes longer than a device.
    PATH=$work/tools:$PATH CUDA_VISIBLE_DEVICES='' DEVICE_RUN_DIR=$work/programs DEVICE_RUN_S=${1:-1500} DEVICE_RUN_TIMES=10 \
        "$source_dir/scripts/device_first_run.sh" "$work/out" "$work/out.tar.gz" >"$work/log" 2>&1
}
# expect_steps N STATUS: the number of lines of steps.tsv with an exit status.
expect_steps() {
    local n
    n=$(awk -F'\t' -v s="$2" '$2 == s' "$work/out/steps.tsv" | wc -l)
    [ "$n" -eq "$1" ] || fail "$n steps ended with status $2, not $1"
}

run && fail "the first run succeeds, though two steps fail"
n_steps=$(wc -l <"$work/out/steps.tsv")
expect_steps $((n_steps - 3)) 0
expect_steps 1 1
expect_steps 1 3
expect_steps 1 77
grep -q '^PyTorch .*\(imported\|no CUDA device\)' "$work/out/peers.txt" || fail "peers does not say why it measures nothing"
for name in smi device primitives check_decode check_pages products check_wgmma worlds_trees worlds_pages graphs example_cuda_pages memcheck_prefill bandwidth ncu_private smi_after $("$work/programs/bench" --list); do
    grep -q "^$name"$'\t' "$work/out/steps.tsv" || fail "$name is not run"
done
while IFS=$'\t' read -r name _; do
    [ "$(wc -l <"$work/out/$name.txt")" -ge 2 ] || fail "$name left no result"
done <"$work/out/steps.tsv"
for kernel in decode decode_pages decode_e4m3; do
    grep -q "^shared_1024"$'\t'".*"$'\t'"$kernel"$'\t' "$work/out/shared_1024.txt" || fail "shared_1024 has no line for $kernel"
done

# Continued on another machine: only the archive is there.
rm -rf "$work/out"
touch "$work/mended"
run || fail "the second run fails"
[ "$(grep -c 'skipped, it succeeded before' "$work/log")" -eq $((n_steps - 3)) ] || fail "the second run skips other steps"
expect_steps $((n_steps - 1)) 0
expect_steps 2 77
[ "$(wc -l <"$work/out/steps.tsv")" -eq $((n_steps + 3)) ] || fail "the second run repeats steps"

# A step that hangs is ended when the call's time is over, and its output is kept.
rm -rf "$work/out" "$work/out.tar.gz"
touch "$work/hangs"
run 4 && fail "a run that is cut succeeds"
expect_steps 1 124
grep -q 'would run: nvidia-smi' "$work/out/smi.txt" || fail "the output of a step that hangs is lost"
[ "$(grep -c "not started, the call's time is over" "$work/log")" -eq $((n_steps - 1)) ] || fail "steps are started without time"

# products: a sum that is changed in one way is found in this way alone, and in all others if it is what they are compared with.
for way in 0 1 2 3 7 11 14 18; do
    "$bin/cuda_device_dry_products" 1 $way >"$work/products"
    status=$?
    [ $status -eq $((way < 3)) ] || fail "products exits with $status where way $way is changed"
    n=$(awk -F'\t' 'NR > 1 && $4 == 1' "$work/products" | wc -l)
    [ "$n" -eq $((way == 0 ? 36 : 2)) ] || fail "products finds $n ways with a difference where way $way is changed"
done
# A shape that peers.py does not know is refused before anything is imported.
"$work/programs/peers.py" table3_1024_512 short_64 2>"$work/refused" && fail "peers.py takes any shape"
grep -q '^short_64: a shape is' "$work/refused" || fail "peers.py does not say which shapes it takes"

[ $n_failures -eq 0 ] || cat "$work/log"
echo "$n_failures failures"
[ $n_failures -eq 0 ]
