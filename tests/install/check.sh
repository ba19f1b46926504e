#!/usr/bin/env bash
# Installs into a fresh prefix, then builds and runs foreign.c and the documented programs against it as others would: with
# pkg-config, shared and static, and with CMake. Last, the shared library must export the public interface and nothing else.
set -euo pipefail
build=$1 prefix=$2
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$prefix"
cmake --install "$build" --prefix "$prefix" >/dev/null
libdir=$(dirname "$(find "$prefix" -name libchunkattn.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig
work=$prefix/work
mkdir -p "$work"

echo "pkg-config, shared"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror -pedantic "$here/foreign.c" -o "$work/shared" $(pkg-config --cflags --libs chunkattn)
readelf -d "$work/shared" | grep -q 'NEEDED.*\[libchunkattn\.so\.0\]' || { echo "not linked by its soname"; exit 1; }
LD_LIBRARY_PATH=$libdir "$work/shared"

echo "pkg-config, static"
# shellcheck disable=SC2046
cc -std=c11 -static "$here/foreign.c" -o "$work/static" $(pkg-config --static --cflags --libs chunkattn)
"$work/static"

for program in example decode; do
  echo "docs/$program.c"
  # shellcheck disable=SC2046
  cc -std=c11 -Wall -Wextra -Werror "$here/../../docs/$program.c" -o "$work/$program" $(pkg-config --cflags --libs chunkattn)
  LD_LIBRARY_PATH=$libdir "$work/$program"
done

echo "CMake package, both"
cmake -S "$here/package" -B "$work/package" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/package" >/dev/null
"$work/package/with_chunkattn"
"$work/package/with_static"

echo "CMake package, shared, where the CUDA Toolkit is not"
cmake -S "$here/package" -B "$work/package" -DLIBRARIES=chunkattn -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON --fresh -G Ninja >/dev/null

echo "a folder of another build"
cmake -S "$here/subproject" -B "$work/subproject" -G Ninja -DCATTN_CUDA=OFF >/dev/null
grep -q '^  FLAGS = .*-O3' "$work/subproject/build.ninja" || { echo "not optimized where no build type is named"; exit 1; }
cmake --build "$work/subproject" >/dev/null
"$work/subproject/with_chunkattn"
"$work/subproject/with_static"

echo "exported symbols"
exported=$(nm -D --defined-only "$libdir/libchunkattn.so" | awk '{print $3}' | sort)
declared=$(grep -oh '\<cattn_[a-z_]*(' "$prefix"/include/chunkattn*.h | tr -d '(' | sort -u | grep -v '^cattn_$')
diff <(echo "$exported") <(echo "$declared") || { echo "exported (<) and declared (>) differ"; exit 1; }
