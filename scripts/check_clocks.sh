#!/usr/bin/env bash
# No test may depend on a clock: refuse sleeps, and durations that are compared with numbers, in tests/. Tests wait by
# tests/waiting.py and tests/support/wait.h; these sleep. Two files measure times, and run alone.
set -euo pipefail
cd "$(dirname "$0")/.."
may_sleep=':!tests/waiting.py :!tests/support/wait.h :!tests/e2e/test_hostile.py :!tests/e2e/test_tenants.py'
# Clocks that are virtual or held, a fake engine that takes time, delays, measurements, and the test of the clock itself.
other_clocks=':!tests/chunkattn/sim :!tests/e2e/hold.c :!tests/serve/protocol/fake_engine.c :!tests/delays :!tests/chunkattn/kcheck/bench.c'
other_clocks+=' :!tests/chunkattn/cuda/device_run :!tests/chunkattn/base/test_clock.c'
sleeps='\b(u|nano|clock_nano)?sleep *\(|\bsleep [0-9]'
python_clocks='\b(monotonic|perf_counter|process_time)\b|time\.time\(|timeout=[0-9.]+ *([,)]|$)|timeout\([0-9.]+\)'
c_clocks='\b(clock_seconds|clock_gettime|gettimeofday|real_seconds)\(.* [<>]=? | [<>]=? .*\b(clock_seconds|clock_gettime)\('

# refuse REASON PATTERN PATHS ...
found=0
refuse() {
    # shellcheck disable=SC2086
    if git grep -nE -e "$2" -- "${@:3}" $may_sleep $other_clocks; then
        printf '%s\n\n' "$1"
        found=1
    fi
}
refuse 'These sleep: wait for a state instead (tests/waiting.py, tests/support/wait.h).' "$sleeps" 'tests/*.py' 'tests/*.c' 'tests/*.h' 'tests/*.cpp'
refuse 'These depend on a clock: wait for a state; limits of waits are LIMIT_S of tests/waiting.py.' "$python_clocks" 'tests/*.py'
refuse 'These compare a duration: wait for a state instead (tests/support/wait.h).' "$c_clocks" 'tests/*.c' 'tests/*.h'
exit $found
