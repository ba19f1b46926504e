#!/usr/bin/env bash
# Run fuzz targets of the preset `fuzz` on new inputs, two at a time, each for some seconds:
#
#   tests/fuzz/run.sh SECONDS [TARGET ...]     a target is the <name> of fuzz_<name>; without any, all run
#
# New inputs that reach new code stay in build/fuzz/corpus/TARGET, where the next run begins with them. An input that is a finding
# stays in build/fuzz/findings; it is printed with the command that repeats it, and the exit status is not 0.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
seconds=$1
shift
if [ ! -d build/fuzz/bin ]; then
    echo "build/fuzz/bin is missing; build the preset fuzz first"
    exit 1
fi
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(cd build/fuzz/bin && printf '%s\n' fuzz_* | sed 's/^fuzz_//')
mkdir -p build/fuzz/findings

# fuzz TARGET SECONDS: run one; what libFuzzer says is shown only if there is a finding.
fuzz() {
    local log=build/fuzz/findings/$1.log finding
    mkdir -p "build/fuzz/corpus/$1"
    rm -f build/fuzz/findings/"$1"-*
    if build/fuzz/bin/fuzz_"$1" -max_total_time="$2" -timeout=60 -rss_limit_mb=4096 -max_len=4096 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/findings/$1-" "build/fuzz/corpus/$1" "build/fuzz/tests/fuzz/corpus/$1" >"$log" 2>&1; then
        printf '%-12s %s inputs, coverage %s\n' "$1" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
            "$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)"
        return 0
    fi
    grep -av '^#[0-9]' "$log" | tail -n 60
    for finding in build/fuzz/findings/"$1"-*; do
        printf '%s: a finding, in base64: %s\n' "$1" "$(base64 -w 0 "$finding")"
        printf 'Repeat it: build/fuzz/bin/fuzz_%s %s\n' "$1" "$finding"
    done
    return 1
}
export -f fuzz

printf '%s\n' "$@" | xargs -P 2 -I '{}' bash -c 'fuzz {} '"$seconds"
