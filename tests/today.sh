#!/bin/sh
# usage: today.sh PROGRAM ARGUMENTS ...
#
# Run a test with the seeds of the day, so that the gate tests other cases each day of the year: an argument @N becomes
# 1 + N * (days of the year that have passed). The command is printed first; it repeats the test.
#
# CATTN_TEST_DAY=0 to 365 in the environment chooses the day.
day=${CATTN_TEST_DAY:-$(($(date -u +%-j) - 1))}
program=$1
shift
for argument; do
    case $argument in
    @*) argument=$((1 + ${argument#@} * day)) ;;
    esac
    shift
    set -- "$@" "$argument"
done
echo "$program $*"
exec "$program" "$@"
