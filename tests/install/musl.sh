#!/usr/bin/env bash
# libchunkattn with musl: its kernels against the reference, and the documented programs, as static programs. The other tests need
# cmocka, which is there for glibc alone.
# Exits with 77, which skips the test, where musl-gcc is not installed.
#
#   musl.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
command -v musl-gcc >/dev/null || { echo "musl-gcc is not installed (Debian: musl-tools)"; exit 77; }
cmake -S "$source" -B "$build" -G Ninja -DCMAKE_C_COMPILER=musl-gcc -DCATTN_APPS=OFF -DCATTN_CUDA=OFF -DCATTN_TESTS=ON \
  -DCATTN_WERROR=ON -DCMAKE_EXE_LINKER_FLAGS=-static >/dev/null
cmake --build "$build" --target chunkattn_static kcheck -- --quiet
for program in decode example_batch example_export example_threads; do
  musl-gcc -std=c11 -Wall -Wextra -Werror -static -I"$source/include" "$source/docs/$program.c" -o "$build/$program" \
    "$build/chunkattn/libchunkattn.a" -lm
  (cd "$build" && "./$program" >/dev/null) || { echo "docs/$program.c fails"; exit 1; }
done
ctest --test-dir "$build" -R '^kcheck$' --output-on-failure
