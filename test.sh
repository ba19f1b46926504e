#!/usr/bin/env bash
# Install what is missing, then build and check everything. The stages are listed at the end of this file. The last lines of the
# output are the duration of each stage and "N passed, N failed"; the exit status is 0 if nothing failed.
#
# With CHUNKLLAMA_SKIP_SETUP=1 in the environment nothing is installed or downloaded (scripts/setup.sh).
set -uo pipefail
cd "$(dirname "$0")"
. scripts/setup.sh
begin_setup
setup_packages test
setup_python test
setup_grammars
end_setup
set +e

export CHUNKLLAMA_MODEL=$MODEL CHUNKLLAMA_GRAMMAR_LIBRARY=$GRAMMAR_LIBRARY CHUNKLLAMA_BIN_DIR=$PWD/build/release/bin PYTHON=$PWD/.venv/bin/python

n_passed=0 n_failed=0 table=''
log=build/test.log
mkdir -p build

# heading NAME: begin a stage.
heading() {
    printf '\n=== %s\n' "$1"
    stage=$1 started=$SECONDS
}
# count PASSED FAILED: end the stage, and add its row to the table.
count() {
    n_passed=$((n_passed + $1)) n_failed=$((n_failed + $2))
    local row
    row=$(printf '%-28s %6d passed %4d failed %6d s' "$stage" "$1" "$2" $((SECONDS - started)))
    table+="$row"$'\n'
    printf '%s\n' "$row"
}

# check NAME COMMAND ...: a stage that passes or fails as a whole. The last 100 lines of its output are shown if it fails.
check() {
    heading "$1"
    if "${@:2}" >$log 2>&1; then count 1 0; else tail -n 100 $log; count 0 1; fi
}

# run_ctest NAME PRESET [ARGS]: a stage that runs ctest in a build folder, and counts its tests.
run_ctest() {
    heading "$1"
    ctest --test-dir "build/$2" --output-on-failure -j2 "${@:3}" 2>&1 | tee $log
    local totals
    totals=$(sed -n 's/.*tests passed, \([0-9]*\) tests* failed out of \([0-9]*\)$/\1 \2/p' $log)
    # shellcheck disable=SC2086
    set -- ${totals:-1 1}
    count $(($2 - $1)) "$1"
}

# run_pytest NAME FOLDER ...: a stage that runs pytest, and counts its tests; skipped ones count as neither. Options of pytest may
# come before the folders: -n 2 runs two tests at a time, and --dist loadfile those of a file one after another, since they share
# servers.
run_pytest() {
    heading "$1"
    local report=build/pytest.xml
    rm -f $report
    $PYTHON -m pytest -q --junitxml=$report "${@:2}"
    # shellcheck disable=SC2046
    count $($PYTHON - $report <<'PY'
import sys, xml.etree.ElementTree as tree
try:
    suites = tree.parse(sys.argv[1]).getroot().findall("testsuite")
    total, bad, skipped = (sum(int(s.get(k, 0)) for s in suites for k in keys)
                           for keys in (["tests"], ["failures", "errors"], ["skipped"]))
    print(total - bad - skipped, bad)
except OSError:
    print(0, 1)
PY
    )
}

# build_strict PRESET [ARGS]: configure and build with warnings as errors. ARGS are for cmake --build.
build_strict() { cmake --preset "$1" -DCATTN_WERROR=ON && cmake --build --preset "$@"; }
# build_label PRESET LABEL: the same for the programs of the tests with this label. The program of the test NAME is NAME_test.
build_label() {
    # shellcheck disable=SC2046
    cmake --preset "$1" -DCATTN_WERROR=ON && cmake --build --preset "$1" --target $(
        ctest --test-dir "build/$1" -N -L "$2" | sed -n 's/^ *Test *#[0-9]*: \(.*\)/\1_test/p')
}
c_files() { git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cpp' '*.cu' '*.cuh'; }
format() { c_files | xargs clang-format --dry-run -Werror; }
# clang-tidy on each file once; run-clang-tidy would repeat a file that is in several programs. Only findings are printed: the
# "N warnings generated." of every file counts what the configuration ignores.
tidy() {
    sed -n 's/^ *"file": "\(.*\)",*$/\1/p' build/release/compile_commands.json | sort -u |
        xargs -d '\n' -P "$(nproc)" -n 1 clang-tidy -p build/release --quiet 2>&1 |
        sed -E '/^[0-9]+ (warnings?|errors?)( and [0-9]+ errors?)? generated\.$/d'
}
# Check all files that are shell scripts by their first line.
scripts() {
    git ls-files --cached --others --exclude-standard | xargs -d '\n' grep -lE '^#!.*\b(ba)?sh\b|^# shellcheck shell=' -- |
        xargs shellcheck -x
}

check "release build, -Werror" build_strict release
check "clang-format" format
check "shellcheck" scripts
run_ctest "tests" release
run_pytest "set-up" -n 2 tests/setup
# Files with tests that measure times, which another file beside them would make longer.
alone=(tests/e2e/test_hostile.py tests/e2e/test_tenants.py)
run_pytest "end to end" -n 2 --dist loadfile --no-loadscope-reorder "${alone[@]/#/--ignore=}" tests/e2e tests/model
run_pytest "end to end, alone" "${alone[@]}"
run_pytest "page" -n 2 --dist loadfile tests/page
run_pytest "templates" -n 2 tests/jinja
check "aarch64 build" build_strict aarch64
check "asan build" build_strict asan
run_ctest "tests, ASan and UBSan" asan -LE no_sanitizer
CHUNKLLAMA_BIN_DIR=$PWD/build/asan/bin CHUNKLLAMA_HOSTILE_STEP=4 CHUNKLLAMA_HOSTILE_LIMIT_S=60 \
    run_pytest "hostile bodies, ASan" tests/e2e/test_hostile.py
check "tsan build" build_label tsan threads
run_ctest "concurrent tests, TSan" tsan -L threads
check "fuzz build" build_strict fuzz
check "fuzz, 20 s each" tests/fuzz/run.sh 20
check "clang-tidy" tidy

printf '\n=== Summary\n%s%-28s %30d s\n' "$table" "in all" $SECONDS
printf '\n%d passed, %d failed\n' $n_passed $n_failed
[ $n_failed = 0 ]
