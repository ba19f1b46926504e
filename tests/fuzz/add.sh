#!/usr/bin/env bash
# Add inputs to the corpus of a fuzz target, the archive tests/fuzz/corpus/TARGET.tar, under the names of their files:
#
#   tests/fuzz/add.sh TARGET FILE ...
#
# The same inputs always give the same archive: names are sorted, and times, owners and modes fixed. It is not compressed, since git
# compresses what it stores, and finds in a new archive what it has of the last one.
set -euo pipefail
[ $# -gt 0 ] || { sed -n 's/^# *//; 2,4p' "$0" >&2; exit 2; }
archive=$(dirname "$0")/corpus/$1.tar
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
mkdir "$folder/$1"
[ ! -e "$archive" ] || tar -xf "$archive" -C "$folder"
[ $# -eq 1 ] || cp -- "${@:2}" "$folder/$1"
tar --sort=name --format=ustar --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf "$archive" -C "$folder" "$1"
