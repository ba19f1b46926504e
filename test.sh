#!/usr/bin/env bash
# Install what is missing, then build and check everything. Ends with "N passed, N failed"; the exit status says the same.
set -uo pipefail
cd "$(dirname "$0")"
. scripts/setup.sh
begin_setup
setup_packages test
setup_python test
end_setup
set +e
export CHUNKLLAMA_MODEL=$MODEL CHUNKLLAMA_BIN_DIR=$PWD/build/release/bin PYTHON=$PWD/.venv/bin/python

n_passed=0 n_failed=0 failed=()
log=build/test.log
mkdir -p build

heading() {
    printf '\n=== %s\n' "$1"
    stage=$1 started=$SECONDS
}
count() { # passed, failed
    n_passed=$((n_passed + $1)) n_failed=$((n_failed + $2))
    [ "$2" = 0 ] || failed+=("$stage")
    printf '%s: %d passed, %d failed, %d s\n' "$stage" "$1" "$2" $((SECONDS - started))
}

# A stage that passes or fails as a whole; what it prints is shown where it fails.
check() {
    heading "$1"
    if "${@:2}" >$log 2>&1; then count 1 0; else tail -n 100 $log; count 0 1; fi
}

# ctest in a build folder; its own totals count.
run_ctest() {
    heading "$1"
    ctest --test-dir "build/$2" --output-on-failure -j2 "${@:3}" 2>&1 | tee $log
    local totals
    totals=$(sed -n 's/.*tests passed, \([0-9]*\) tests* failed out of \([0-9]*\)$/\1 \2/p' $log)
    # shellcheck disable=SC2086
    set -- ${totals:-1 1}
    count $(($2 - $1)) "$1"
}

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

configure_and_build() { cmake --preset "$1" -DCATTN_WERROR=ON && cmake --build --preset "$1"; }
c_files() { git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu'; }
format() { c_files | xargs clang-format --dry-run -Werror; }
tidy() { run-clang-tidy -p build/release -j2 -quiet; }

check "release build, -Werror" configure_and_build release
check "clang-format" format
run_ctest "tests" release
run_pytest "set-up" tests/setup
run_pytest "end to end" tests/e2e tests/model
check "aarch64 build" configure_and_build aarch64
check "asan build" configure_and_build asan
run_ctest "tests, ASan and UBSan" asan -LE no_sanitizer
check "tsan build" configure_and_build tsan
run_ctest "concurrent tests, TSan" tsan -L threads
check "clang-tidy" tidy

printf '\n'
[ $n_failed = 0 ] || printf 'failed: %s\n' "${failed[@]}"
printf '%d s in all\n%d passed, %d failed\n' $SECONDS $n_passed $n_failed
[ $n_failed = 0 ]
