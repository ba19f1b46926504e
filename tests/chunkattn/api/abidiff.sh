#!/usr/bin/env bash
# Compares the public functions and structs of this tree with those of version 0.1.0 (abi_0_1_0.xml): what programs compiled
# with that version use must not have changed. New functions and new enumerators are allowed, and so are new fields at the end of
# the structs that abi.suppr names.
# Exits with 77, which skips the test, where abidiff is not installed.
#
#   abidiff.sh LIBRARY            compares
#   abidiff.sh LIBRARY XML        writes XML instead, for a new version
set -euo pipefail
library=$1
here=$(cd "$(dirname "$0")" && pwd)
command -v abidiff >/dev/null || { echo "abidiff is not installed (Debian: abigail-tools)"; exit 77; }

if [ $# -gt 1 ]; then
  abidw --suppr "$here/abi.suppr" --drop-undefined-syms --exported-interfaces-only --no-show-locs --no-corpus-path \
    --no-comp-dir-path --no-elf-needed --no-architecture --out-file "$2" "$library"
  exit
fi
status=0
abidiff --suppressions "$here/abi.suppr" --no-added-syms --no-show-locs --no-architecture "$here/abi_0_1_0.xml" "$library" ||
  status=$?
[ $((status & ~12)) = 0 ] || { echo "abidiff failed"; exit 1; }
[ $status = 0 ] || {
  echo "The interface of 0.1.0 has changed, as listed above, and programs compiled with it would break. A struct that has a"
  echo "struct_size may grow at its end: name it in tests/chunkattn/api/abi.suppr. Anything else stays as it is; give what is new a new name."
  exit 1
}
