#!/usr/bin/env bash
# The first 25 minutes on a CUDA device (docs/cuda.md, "The first run"):
#
#   scripts/device_first_run.sh OUT [ARCHIVE]
#
# Each step has a time limit, and appends its output to a file of its own in the folder OUT, so results are left wherever the run
# ends. After each step OUT is packed into ARCHIVE, by default OUT.tar.gz. A step that fails does not stop the next ones.
# Steps that succeeded are skipped by a later call with the same OUT; if OUT does not exist but ARCHIVE does, it is unpacked first,
# so a run may be continued on another machine. OUT/steps.tsv has a line for each step: name, exit status, seconds.
#
# The exit status is 0 if every step succeeded or lacks its tool, else 1.
#
# It needs no network and no compiler. To be built before, where nvcc is:
#
#   cmake --preset release -DCATTN_CUDA=ON && cmake --build --preset release --target cuda_device_run
#
# which gathers programs and case files in build/release/device_run. Bring along that folder and this script.
#
#   DEVICE_RUN_DIR   another folder of programs
#   DEVICE_RUN_S     seconds for the whole call, 1500 by default. Then the running step is ended, and no other one starts. Set it
#                    some seconds lower than the time after which the machine ends a command.
#   DEVICE_RUN_TIMES a whole number by which the steps' time limits are multiplied, 1 by default
set -uo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "usage: $0 OUT [ARCHIVE]" >&2
    exit 2
fi
out=$1 archive=${2:-${1%/}.tar.gz}
programs=${DEVICE_RUN_DIR:-$(dirname "$0")/../build/release/device_run}
limit_s=${DEVICE_RUN_S:-1500} limit_times=${DEVICE_RUN_TIMES:-1}
if [ ! -x "$programs/bench" ]; then
    echo "$0: no programs in $programs; build the target cuda_device_run, or set DEVICE_RUN_DIR" >&2
    exit 2
fi
if [ ! -d "$out" ] && [ -f "$archive" ]; then
    mkdir -p "$out" && tar -xzf "$archive" -C "$out" || exit 2
fi
mkdir -p "$out/done" || exit 2
n_failed=0

pack() { tar -czf "$archive.part" -C "$out" . && mv "$archive.part" "$archive"; }

# step NAME LIMIT_S COMMAND ...: status 77 means that what the step needs is not there.
step() {
    local name=$1 limit=$(($2 * limit_times)) begin=$SECONDS status left
    shift 2
    left=$((limit_s - SECONDS))
    if [ -e "$out/done/$name" ]; then
        echo "$name: skipped, it succeeded before"
        return
    fi
    if [ $left -lt 3 ]; then
        echo "$name: not started, the call's time is over"
        n_failed=$((n_failed + 1))
        return
    fi
    [ $left -lt "$limit" ] && limit=$left
    echo "# $(date -u +%FT%TZ) $*" >>"$out/$name.txt"
    timeout -k 5 "$limit" "$@" >>"$out/$name.txt" 2>&1
    status=$?
    case $status in
    0) touch "$out/done/$name" && echo "$name: succeeded in $((SECONDS - begin)) s" ;;
    77) echo "$name: what it needs is not there" ;;
    124 | 137) echo "$name: FAILED, ended after $limit s" ;;
    *) echo "$name: FAILED with status $status" ;;
    esac
    [ $status -eq 0 ] || [ $status -eq 77 ] || n_failed=$((n_failed + 1))
    printf '%s\t%d\t%d\n' "$name" $status $((SECONDS - begin)) >>"$out/steps.tsv"
    pack
}

# tool NAME ARGS: run a tool that some machines lack.
tool() {
    if ! command -v "$1" >/dev/null; then
        echo "$1 is not found"
        return 77
    fi
    "$@"
}
export -f tool
with_tool() { step "$1" "$2" bash -c 'tool "$@"' bash "${@:3}"; }

# sanitize NAME TOOL PROGRAM ARGS: a few problems under compute-sanitizer, which runs a kernel many times as long.
sanitize() { with_tool "$1" 60 compute-sanitizer --tool "$2" --error-exitcode 9 "${@:3}"; }

# profile NAME METHOD KERNEL SHAPE: the profiler's counters of one launch.
profile() {
    with_tool "$1" 45 ncu --set full --clock-control none --kernel-name "regex:decode" "$programs/bench" "$4" --once "$2" "$3" 32
}

# Whether the results are right: minutes 0 to 9.
with_tool smi 20 nvidia-smi -q -d CLOCK,POWER,MEMORY,PERFORMANCE
step device 20 "$programs/limits" device
step primitives 60 "$programs/primitives" "$programs"/cases/*.txt
step check_decode 90 "$programs/check" decode 1 64
step check_prefill 90 "$programs/check" prefill 1 32
step check_pages 60 "$programs/check" pages 1 32
step products 45 "$programs/products"
step check_wgmma 60 "$programs/check" wgmma 1 32
step worlds_trees 60 "$programs/worlds" --rows device_trees --worlds 40 --long 3
step worlds_pages 60 "$programs/worlds" --rows device_pages --worlds 24 --long 2
step graphs 30 "$programs/graphs"
step example_cuda 30 "$programs/example_cuda"
step example_cuda_pages 30 "$programs/example_cuda_pages"
sanitize memcheck_decode memcheck "$programs/check" decode 1 4
sanitize memcheck_prefill memcheck "$programs/check" prefill 1 2
sanitize memcheck_pages memcheck "$programs/check" pages 1 2
sanitize memcheck_wgmma memcheck "$programs/check" wgmma 1 2
sanitize memcheck_worlds memcheck "$programs/worlds" --rows device_trees --worlds 1
sanitize racecheck_decode racecheck "$programs/check" decode 1 2
sanitize racecheck_prefill racecheck "$programs/check" prefill 2 1
sanitize synccheck_decode synccheck "$programs/check" decode 1 2

# What the machine can do: minutes 9 to 11.
for part in launch chase mma bandwidth; do
    step "$part" 45 "$programs/limits" $part
done

# The estimate's shapes, in all ways, then short ones, then where the time goes: minutes 11 to 19.
for shape in shared_4096 shared_2048 shared_1024 private_8x32k private_32x4096; do
    step $shape 75 "$programs/bench" $shape
done
for shape in short_512 short_256 short_64; do
    step $shape 20 "$programs/bench" $shape
done
for shape in shared_4096 shared_2048 shared_1024; do
    step stamps_$shape 15 "$programs/bench" $shape --stamps 32
done

# Table 3's other rows, then all of its rows by PyTorch and FlashInfer, where the machine has them: minutes 19 to 22.
for shape in $("$programs/bench" --list | grep '^table3_'); do
    step "$shape" 40 "$programs/bench" "$shape"
done
# Of the row without sharing bench measures private_32x4096.
# shellcheck disable=SC2046
with_tool peers 75 python3 "$programs/peers.py" $("$programs/bench" --list | grep -E '^(shared|table3)_') table3_4096_0

# The profiler: minutes 22 to 25.
profile ncu_shared chunk decode shared_4096
profile ncu_private paged decode private_32x4096

with_tool smi_after 20 nvidia-smi -q -d CLOCK,POWER,MEMORY,PERFORMANCE
pack
echo "$n_failed steps failed; results are in $out and $archive"
[ $n_failed -eq 0 ]
