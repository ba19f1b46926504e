#!/usr/bin/env bash
# A shared library exports what its headers declare, and nothing else, all of it with a symbol version.
#
#   symbols.sh LIBRARY VERSION PREFIX HEADER ...    PREFIX: that of the library's symbols, without the underscore
set -euo pipefail
library=$1 version=$2 prefix=$3
shift 3
exported=$(nm -D --defined-only --with-symbol-versions "$library" | awk '{ print $3 }' | grep -v "^$version" | sort)
declared=$(grep -oh "\\<${prefix}_[a-z_]*(" "$@" | tr -d '(' | sort -u | grep -v "^${prefix}_$" | sed "s/$/@@$version/")
diff <(echo "$exported") <(echo "$declared" | sort) || { echo "$library: exported (<) and declared (>) differ"; exit 1; }
