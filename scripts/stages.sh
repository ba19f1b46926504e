# shellcheck shell=bash
# Sourced by test.sh in the project's root: stages, each of which runs one command, and the table of what they counted.
#
#   check NAME COMMAND ...            passes or fails as a whole
#   run_ctest NAME PRESET [ARGS]      the C tests of a build folder, three at a time, since some wait for seconds
#   run_pytest NAME [ARGS] FOLDER ... Python tests; a test that fails is run once more alone (run_pytest.py)
#   summary                           prints the table; returns whether nothing failed
n_passed=0 n_failed=0 flaky='' table=''
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
    row=$(printf '%-34s %6d passed %4d failed %6d s' "$stage" "$1" "$2" $((SECONDS - started)))
    table+="$row"$'\n'
    printf '%s\n' "$row"
}

# The last 100 lines of the output are shown if it fails.
check() {
    heading "$1"
    if "${@:2}" >$log 2>&1; then count 1 0; else tail -n 100 $log; count 0 1; fi
}

run_ctest() {
    heading "$1"
    ctest --test-dir "build/$2" --output-on-failure -j3 "${@:3}" 2>&1 | tee $log
    local totals
    totals=$(sed -n 's/.*tests passed, \([0-9]*\) tests* failed out of \([0-9]*\)$/\1 \2/p' $log)
    # shellcheck disable=SC2086
    set -- ${totals:-1 1}
    count $(($2 - $1)) "$1"
}

run_pytest() {
    heading "$1"
    $PYTHON scripts/run_pytest.py "${@:2}" 2>&1 | tee $log
    flaky+=$(sed -n 's/^FLAKY: \(.*\)\. Its first output was:$/    \1\\n/p' $log)
    # shellcheck disable=SC2046
    set -- $(tail -n 1 $log)
    count "$1" "$2"
}

summary() {
    printf '\n=== Summary\n%s%-34s %30d s\n' "$table" "in all" $SECONDS
    if [ -n "$flaky" ]; then
        local n_flaky
        n_flaky=$(printf %b "$flaky" | wc -l)
        printf '\nFLAKY, which failed and then passed alone; more than two are a failure:\n%b' "$flaky"
        [ "$n_flaky" -le 2 ] || n_failed=$((n_failed + n_flaky))
    fi
    printf '\n%d passed, %d failed\n' $n_passed $n_failed
    [ $n_failed = 0 ]
}
