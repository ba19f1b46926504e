#!/usr/bin/env bash
# Install what is missing, then build and check.
#
#   ./test.sh         the gate: what decides about a change, in a quarter of an hour
#   ./test.sh --all   everything
#
# CONTRIBUTING.md says what only --all runs, and why. The stages are listed at the end of this file. The last lines of the output are
# the duration of each stage and "N passed, N failed"; the exit status is 0 if nothing failed.
#
# Environment:
#   CATTN_TEST_DAY=0 to 365   the day whose seeds are taken; without it today
#   CHUNKLLAMA_SKIP_SETUP=1   install and download nothing (scripts/setup.sh)
set -uo pipefail
cd "$(dirname "$0")"
case $* in
'') tier=gate ;;
--all) tier=all ;;
*)
    sed -n '2,/^set/ { /^set/d; s/^# \{0,1\}//; p; }' test.sh # the comment above
    exit 2
    ;;
esac
. scripts/setup.sh
begin_setup
setup_packages $tier
setup_python $tier
setup_grammars
end_setup
set +e
. scripts/stages.sh

export CHUNKLLAMA_MODEL=$MODEL CHUNKLLAMA_GRAMMAR_LIBRARY=$GRAMMAR_LIBRARY CHUNKLLAMA_BIN_DIR=$PWD/build/release/bin PYTHON=$PWD/.venv/bin/python
CATTN_TEST_DAY=${CATTN_TEST_DAY:-$(($(date -u +%-j) - 1))}
export CATTN_TEST_DAY

# build_strict PRESET [ARGS]: configure and build with warnings as errors. ARGS are for cmake.
build_strict() { cmake --preset "$1" -DCATTN_WERROR=ON "${@:2}" && cmake --build --preset "$1"; }
# build_tests PRESET LEVEL ARGS: the same for the programs of the tests that ctest chooses with ARGS, with kernels up to LEVEL.
build_tests() {
    cmake --preset "$1" -DCATTN_WERROR=ON -DCATTN_HIGHEST_LEVEL="$2" || return
    # ctest itself names no program that does not exist yet.
    local tests
    tests=$(ctest --test-dir "build/$1" -N "${@:3}" | sed -n 's/^ *Test *#[0-9]*: //p')
    # shellcheck disable=SC2046
    cmake --build --preset "$1" --target $(find "build/$1/tests" -name CTestTestfile.cmake -exec cat {} + |
        awk -v tests="$tests" 'BEGIN { n = split(tests, name, "\n"); for (i = 1; i <= n; i++) chosen["[=[" name[i] "]=]"] }
            sub(/^add_test\(/, "") && $1 in chosen' | sed -n 's|.*/bin/\([^"/ ]*\)".*|\1|p' | sort -u)
}
c_files() { git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cpp' '*.cu' '*.cuh'; }
format() { c_files | xargs clang-format --dry-run -Werror; }
compiled_files() { sed -n "s|^ *\"file\": \"$PWD/\(.*\)\",*\$|\1|p" build/release/compile_commands.json | sort -u; }
# The fifty compiled files that changed last, those with uncommitted changes first. They are that few also after a merge of many
# changes, so that the gate takes as long as ever. A file that was moved and hardly changed is none of them.
changed_files() {
    {
        git ls-files --others --exclude-standard
        git diff --name-only -M90% --diff-filter=AM HEAD
        git log --first-parent -m -M90% --diff-filter=AM --name-only --format=
    } | awk 'NF && !seen[$0]++' | grep -Fxf <(compiled_files) | head -n 50
}
# tidy FILE ...: clang-tidy on each file once; run-clang-tidy would repeat a file that is in several programs. Only findings are
# printed: the "N warnings generated." of every file counts what the configuration ignores.
tidy() {
    printf '%s\n' "$@" | xargs -d '\n' -P "$(nproc)" -n 1 clang-tidy -p build/release --quiet 2>&1 |
        sed -E '/^[0-9]+ (warnings?|errors?)( and [0-9]+ errors?)? generated\.$/d'
}
tidy_all() { mapfile -t files < <(compiled_files) && tidy "${files[@]}"; }
tidy_changed() { mapfile -t files < <(changed_files) && tidy "${files[@]}"; }
# Check all files that are shell scripts by their first line.
scripts() {
    git ls-files --cached --others --exclude-standard | xargs -d '\n' grep -lE '^#!.*\b(ba)?sh\b|^# shellcheck shell=' -- |
        xargs shellcheck -x
}
# The kernel levels of this CPU from avx2 up.
levels() { build/release/bin/chunkllama doctor | sed -n 's/.* kernel levels ref, //p' | tr -d ','; }

# Files that may compare times (scripts/check_clocks.sh), which another file beside them would make longer.
alone=(tests/e2e/test_hostile.py tests/e2e/test_tenants.py)
# Two files at a time, the tests of each one after another, since they share servers.
e2e=(-n 2 --dist loadfile --no-loadscope-reorder "${alone[@]/#/--ignore=}" tests/e2e tests/chunkllama/model)

# Tests that take more than ten seconds of CPU under ASan, which the gate runs plain.
long_sanitized='^(api_(budget|cache|export)|cache_(fit|plan)|model_(linear|sampler)|protocol_memory|cattn_bench_.*'
long_sanitized+='|exact_(groups|tier|views|faults)|pages_plan'
long_sanitized+='|engine_(beam|exact|fairness|grammar|llguidance|preemption|reasoning|rules|scheduler|speculation))$'

# What looks at the sources alone.
sources() {
    check "clang-format" format
    check "shellcheck" scripts
    check "floors" scripts/check_floors.py
    check "no clocks in tests" scripts/check_clocks.sh
}

gate() {
    check "release build, -Werror" build_strict release -DCATTN_CUDA=OFF
    sources
    check "clang-tidy, changed files" tidy_changed
    run_pytest "end to end, whole model" -n 2 --dist loadfile -m "whole_model and not long" tests/e2e
    export CHUNKLLAMA_MODEL=$PWD/build/first_layers.gguf
    check "model of six layers" "$PYTHON" tests/chunkllama/model/first_layers.py "$MODEL" 6 "$CHUNKLLAMA_MODEL"
    run_ctest "tests" release -LE long
    run_pytest "set-up" -n 2 tests/setup
    run_pytest "end to end" --durations=20 -m "not long and not whole_model" "${e2e[@]}"
    CHUNKLLAMA_HOSTILE_STEP=4 run_pytest "end to end, alone" -m "not long" "${alone[@]}"
    run_pytest "page" -n 2 --dist loadfile -m "not long" tests/serve/web
    run_pytest "templates" -n 2 -m "not long" tests/chunkllama/jinja
    export CATTN_LEVEL=avx2
    local sanitized=(-LE 'long|no_sanitizer|emulation' -E "$long_sanitized")
    check "asan build" build_tests asan avx2 "${sanitized[@]}"
    run_ctest "tests, ASan and UBSan" asan "${sanitized[@]}"
    # The others take minutes under TSan.
    local concurrent=(-L threads -LE long -E '^(batches_memory|engine_(embedding|grammar|llguidance)|exact_tier)$')
    check "tsan build" build_tests tsan avx2 "${concurrent[@]}"
    run_ctest "concurrent tests, TSan" tsan "${concurrent[@]}"
}

all() {
    export PATH="$PWD/.venv/cuda/bin:$PATH" # nvcc
    check "release build, -Werror, CUDA" build_strict release -DCATTN_CUDA=ON
    check "rehearsal for a CUDA device" cmake --build --preset release --target cuda_device_dry
    sources
    run_ctest "tests" release
    run_pytest "set-up" -n 2 tests/setup
    run_pytest "end to end" "${e2e[@]}"
    run_pytest "end to end, alone" "${alone[@]}"
    run_pytest "page" -n 2 --dist loadfile tests/serve/web
    run_pytest "templates" -n 2 tests/chunkllama/jinja
    local level levels
    levels=$(levels)
    for level in avx2 avx512_bf16; do # from each of these on, answers have other bits; the stages above have the highest level
        [[ " $levels " == *" $level "* && $level != "${levels##* }" ]] || continue
        CATTN_LEVEL=$level run_pytest "end to end, level $level" -m "not long" "${e2e[@]}"
    done
    check "aarch64 build" build_strict aarch64
    check "asan build" build_strict asan -DCATTN_HIGHEST_LEVEL="${levels##* }"
    run_ctest "tests, ASan and UBSan" asan -LE no_sanitizer
    # A grammar's process runs out of memory by design, which is an error of its own and not one for ASan to end it at.
    ASAN_OPTIONS=allocator_may_return_null=1 CHUNKLLAMA_BIN_DIR=$PWD/build/asan/bin CHUNKLLAMA_HOSTILE_STEP=4 \
        run_pytest "hostile bodies, ASan" tests/e2e/test_hostile.py
    check "tsan build" build_tests tsan "${levels##* }" -L threads
    run_ctest "concurrent tests, TSan" tsan -L threads
    check "fuzz build" build_strict fuzz
    check "fuzz, 20 s each" tests/fuzz/run.sh 20
    check "clang-tidy" tidy_all
}

if [ $tier = all ]; then all; else gate; fi
summary
