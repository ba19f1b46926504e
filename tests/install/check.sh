#!/usr/bin/env bash
# Installs into a fresh prefix, looks for the program, its pages and its unit, then builds and runs foreign.c and the documented
# programs against it as others would: with pkg-config, shared and static, and with CMake; static programs have no CUDA unless they
# link its module. Then other projects take this one in, and each library is built alone with nothing but what it needs. Last, each shared library must export
# its public interface and nothing else. docs/example_llama.c is run where CHUNKLLAMA_MODEL names a model.
set -euo pipefail
build=$1 prefix=$2
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$prefix"
cmake --install "$build" --prefix "$prefix" >/dev/null
libdir=$(dirname "$(find "$prefix" -name libchunkattn.a)")
export PKG_CONFIG_PATH=$libdir/pkgconfig
work=$prefix/work
mkdir -p "$work"

echo "the program, its manual pages and completions"
"$prefix/bin/chunkllama" --version >/dev/null
for command in "" -run -chat -batch -serve -bench-serve; do
  [[ -s $prefix/share/man/man1/chunkllama$command.1 ]] || { echo "there is no page chunkllama$command"; exit 1; }
done
for file in bash-completion/completions/chunkllama zsh/site-functions/_chunkllama fish/vendor_completions.d/chunkllama.fish; do
  [[ -s $prefix/share/$file ]] || { echo "there is no $file"; exit 1; }
done

echo "the unit of the service"
unit=$prefix/lib/systemd/system/chunkllama.service
grep -q "^ExecStart=$prefix/bin/chunkllama serve " "$unit" || { echo "the unit starts another program"; exit 1; }
if command -v systemd-analyze >/dev/null; then
  systemd-analyze verify --man=no "$unit" 2>&1 | tee "$work/unit.txt"
  [[ ! -s $work/unit.txt ]] || exit 1
  systemd-analyze security --offline=true --threshold=15 "$unit" >"$work/unit.txt" || { cat "$work/unit.txt"; exit 1; }
else
  echo "not verified: there is no systemd-analyze"
fi

echo "pkg-config, shared"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror -pedantic "$here/foreign.c" -o "$work/shared" $(pkg-config --cflags --libs chunkattn)
readelf -d "$work/shared" | grep -q 'NEEDED.*\[libchunkattn\.so\.0\]' || { echo "not linked by its soname"; exit 1; }
LD_LIBRARY_PATH=$libdir "$work/shared"

echo "pkg-config, static"
# shellcheck disable=SC2046
cc -std=c11 -static "$here/foreign.c" -o "$work/static" $(pkg-config --static --cflags --libs chunkattn)
"$work/static"

echo "CUDA"
nm "$work/static" | grep -q ' cuda' && { echo "a static program has CUDA's runtime in it, which it does not use"; exit 1; }
# shellcheck disable=SC2046
cc -std=c11 "$here/foreign_cuda.c" -o "$work/cpu" -Wl,-Bstatic $(pkg-config --cflags --libs chunkattn) -Wl,-Bdynamic -lm -pthread
"$work/cpu" && { echo "a program that links libchunkattn.a only has CUDA"; exit 1; }
if pkg-config --exists chunkattn-cuda; then
  # shellcheck disable=SC2046
  cc -std=c11 "$here/foreign_cuda.c" -o "$work/cuda_shared" $(pkg-config --cflags --libs chunkattn-cuda)
  LD_LIBRARY_PATH=$libdir "$work/cuda_shared"
  # shellcheck disable=SC2046
  cc -std=c11 -static "$here/foreign_cuda.c" -o "$work/cuda_static" $(pkg-config --static --cflags --libs chunkattn-cuda) \
    2>"$work/ld.txt" || { cat "$work/ld.txt"; exit 1; } # the runtime makes the linker warn of dlopen
  "$work/cuda_static"
  cmake -S "$here/package_cuda" -B "$work/package_cuda" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
  cmake --build "$work/package_cuda" >/dev/null
  "$work/package_cuda/with_cuda"
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  if [ -x "$nvcc" ]; then # they end with 77 without a device
    for program in example_cuda example_cuda_pages; do
      # shellcheck disable=SC2046
      "$nvcc" -std=c++17 -Xcompiler=-Wall,-Wextra,-Werror -o "$work/$program" "$here/../../docs/$program.cu" \
        $(pkg-config --cflags --libs chunkattn)
      LD_LIBRARY_PATH=$libdir "$work/$program" || [ $? = 77 ]
    done
  else
    echo "docs/example_cuda.cu and docs/example_cuda_pages.cu are not compiled: there is no nvcc"
  fi
elif cmake -S "$here/package_cuda" -B "$work/package_cuda" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.txt" 2>&1; then
  echo "the CMake package has component cuda in a build without CUDA"; exit 1
else
  grep -q 'built without CUDA' "$work/cmake.txt" || { cat "$work/cmake.txt"; exit 1; }
fi

for program in example decode example_batch example_export example_pages example_threads; do
  echo "docs/$program.c"
  # shellcheck disable=SC2046
  cc -std=c11 -Wall -Wextra -Werror "$here/../../docs/$program.c" -o "$work/$program" $(pkg-config --cflags --libs chunkattn)
  LD_LIBRARY_PATH=$libdir "$work/$program"
done

# It answers two prompts; the second must find most of its tokens in the cache.
run_llama() {
  [[ -n ${CHUNKLLAMA_MODEL:-} ]] || { echo "not run: no model; name a GGUF file in CHUNKLLAMA_MODEL"; return; }
  "$@" "$CHUNKLLAMA_MODEL" >"$work/llama.txt"
  grep -q '^\[1\] 0 of 9 prompt tokens were cached$' "$work/llama.txt" || { cat "$work/llama.txt"; exit 1; }
  grep -q '^\[2\] 6 of 9 prompt tokens were cached$' "$work/llama.txt" || { cat "$work/llama.txt"; exit 1; }
}

echo "docs/example_llama.c, shared"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror -pedantic "$here/../../docs/example_llama.c" -o "$work/llama_shared" \
  $(pkg-config --cflags --libs chunkllama)
readelf -d "$work/llama_shared" | grep -q 'NEEDED.*\[libchunkllama\.so\.0\]' || { echo "not linked by its soname"; exit 1; }
run_llama env LD_LIBRARY_PATH="$libdir" "$work/llama_shared"

echo "docs/example_llama_poll.c"
# shellcheck disable=SC2046
cc -std=gnu11 -Wall -Wextra -Werror "$here/../../docs/example_llama_poll.c" -o "$work/llama_poll" \
  $(pkg-config --cflags --libs chunkllama)
[[ -z ${CHUNKLLAMA_MODEL:-} ]] || LD_LIBRARY_PATH=$libdir "$work/llama_poll" "$CHUNKLLAMA_MODEL" >"$work/poll.txt" ||
  { cat "$work/poll.txt"; exit 1; }

echo "docs/example_llama.c, static"
# shellcheck disable=SC2046
cc -std=c11 -static "$here/../../docs/example_llama.c" -o "$work/llama_static" $(pkg-config --static --cflags --libs chunkllama) \
  2>"$work/ld.txt" || { cat "$work/ld.txt"; exit 1; } # CUDA's runtime makes the linker warn of dlopen
run_llama "$work/llama_static"

echo "CMake package, both"
cmake -S "$here/package" -B "$work/package" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/package" >/dev/null
"$work/package/with_chunkattn"
"$work/package/with_static"

echo "CMake package, both, where the CUDA Toolkit is not"
cmake -S "$here/package" -B "$work/package" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON \
  --no-warn-unused-cli --fresh -G Ninja >/dev/null
cmake --build "$work/package" >/dev/null

echo "CMake package chunkllama, both"
cmake -S "$here/package_llama" -B "$work/package_llama" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/package_llama" >/dev/null
run_llama "$work/package_llama/with_chunkllama"
run_llama "$work/package_llama/with_static"

echo "CMake package chunkllama, shared, where pkg-config is not"
cmake -S "$here/package_llama" -B "$work/package_llama" -DLIBRARIES=chunkllama -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON --fresh -G Ninja >/dev/null

# take_in FOLDER OPTIONS: build a project of which this one is a part, and which must get its libraries and nothing else.
take_in() {
  local folder=$work/$1
  cmake -S "$here/subproject" -B "$folder" -G Ninja -DCATTN_CUDA=OFF -DCATTN_WERROR=ON "${launcher[@]}" "${@:2}" >/dev/null
  grep -q '^  FLAGS = .*-O3' "$folder/build.ninja" || { echo "not optimized where no build type is named"; exit 1; }
  cmake --build "$folder" >/dev/null
  "$folder/with_chunkattn"
  "$folder/with_static"
  DESTDIR=$folder/root cmake --install "$folder" >/dev/null
  [[ ! -d $folder/root ]] || { echo "the project installs what it has taken in"; exit 1; }
  ctest --test-dir "$folder" -N | grep -q 'Total Tests: 0' || { echo "the project has tests of what it has taken in"; exit 1; }
}
launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)

echo "a folder of another build"
take_in subproject
[[ ! -f $work/subproject/llama_with_static ]] || { echo "more than libchunkattn was built"; exit 1; }

echo "FetchContent, with libchunkllama"
take_in fetched -DFETCH=ON -DCATTN_CHUNKLLAMA=ON
run_llama "$work/fetched/llama_with_chunkllama"
run_llama "$work/fetched/llama_with_static"

echo "the library alone, where there are only CMake, Ninja and a C compiler"
mkdir -p "$work/bin"
for tool in cc cmake ninja ar ranlib as ld uname; do ln -sf "$(command -v $tool)" "$work/bin/$tool"; done
env -i PATH="$work/bin" cmake -S "$here/../.." -B "$work/alone" -G Ninja -DCATTN_APPS=OFF -DCATTN_CUDA=OFF >/dev/null
env -i PATH="$work/bin" cmake --build "$work/alone" >/dev/null
[[ -f $work/alone/chunkattn/libchunkattn.a && ! -d $work/alone/cli ]] || { echo "more or less than the library was built"; exit 1; }

echo "libchunkllama alone, where there are only its own packages"
mkdir -p "$work/modules"
for module in jansson libpcre2-8 libutf8proc; do ln -sf "$(pkg-config --variable=pcfiledir $module)/$module.pc" "$work/modules/"; done
PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$work/modules cmake -S "$here/../.." -B "$work/engine" -G Ninja -DCATTN_APPS=OFF \
  -DCATTN_CHUNKLLAMA=ON -DCATTN_CUDA=OFF -DCATTN_WERROR=ON >/dev/null
cmake --build "$work/engine" >/dev/null
cmake --install "$work/engine" --prefix "$work/engine/prefix" >/dev/null
[[ ! -d $work/engine/prefix/bin && ! -d $work/engine/tests ]] || { echo "more than the libraries was built"; exit 1; }
cmake -S "$here/package_llama" -B "$work/package_engine" -G Ninja -DCMAKE_PREFIX_PATH="$work/engine/prefix" >/dev/null
cmake --build "$work/package_engine" >/dev/null
run_llama "$work/package_engine/with_chunkllama"
cmake "$work/engine" -DCATTN_TESTS=ON >/dev/null
ctest --test-dir "$work/engine" -N >"$work/tests.txt"
grep -q ' engine_fields$' "$work/tests.txt" || { echo "there are no tests of the engine"; exit 1; }
! grep -qE ' (protocol|http|batches|cattn_bench|install)' "$work/tests.txt" || { echo "there are tests of the server"; exit 1; }
cmake --build "$work/engine" --target engine_fields_test fuzz_jinja_test >/dev/null
ctest --test-dir "$work/engine" -R '^(engine_fields|fuzz_jinja)$' >/dev/null

echo "headers for a parser that knows no attributes"
for header in "$prefix"/include/chunk*.h; do
  if cc -std=c11 -DCATTN_EXPERIMENTAL -DCATTN_API= -DCL_API= -I"$prefix/include" -E "$header" | grep visibility; then
    echo "$header has attributes left"
    exit 1
  fi
done

echo "exported symbols"
"$here/symbols.sh" "$libdir/libchunkattn.so" CHUNKATTN_0.1 cattn "$prefix"/include/chunkattn*.h
"$here/symbols.sh" "$libdir/libchunkllama.so" CHUNKLLAMA_0.1 cl "$prefix"/include/chunkllama.h

echo "a static program with a grammar library"
# shellcheck disable=SC2046
cc -std=c11 -static "$here/static_grammar.c" -o "$work/static_grammar" $(pkg-config --static --cflags --libs chunkllama) \
  2>"$work/ld.txt" || { cat "$work/ld.txt"; exit 1; }
[[ -z ${CHUNKLLAMA_MODEL:-} ]] || "$work/static_grammar" "$CHUNKLLAMA_MODEL" "$libdir/libchunkattn.so"
