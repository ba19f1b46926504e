#!/usr/bin/env bash
# Builds Debian packages of what is checked out: libchunkattn0, libchunkattn-dev, libchunkllama0, libchunkllama-dev and chunkllama.
#
#     packaging/build_deb.sh [--build-dir DIR] [--without-grammars] OUT
#
# OUT is the folder for the packages. Without --build-dir everything is compiled anew, without the CUDA backend. With it the
# programs and libraries are those that DIR has, such as build/release, also if they are older than the sources: build everything
# there first. If it was configured with CUDA, the packages of libchunkattn have the backend, too. The packages debhelper, dpkg-dev
# and those of packages.txt that are marked "run" are needed. The library of grammars, llguidance, is that of .venv, or else is
# taken out of its wheel from PyPI; --without-grammars leaves it out.
set -euo pipefail

fail() { echo "$0: $1" >&2; exit 1; }
usage="usage: packaging/build_deb.sh [--build-dir DIR] [--without-grammars] OUT"
build=''
grammars=yes
while [[ ${1:-} = --* ]]; do
    case $1 in
    --build-dir)
        [ -f "${2:-}/CMakeCache.txt" ] || fail "--build-dir must name a folder that CMake has configured; $usage"
        build=$(realpath "$2")
        shift ;;
    --without-grammars) grammars='' ;;
    *) fail "$usage" ;;
    esac
    shift
done
[[ $# = 1 && $1 != -* ]] || fail "$usage"
for tool in cmake ninja dh_install dpkg-architecture; do
    command -v "$tool" >/dev/null || fail "$tool is not installed: see packages.txt"
done
mkdir -p "$1"
out=$(realpath "$1")
root=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ---- The files, as they are installed below /usr ----

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
cuda=OFF
if [ -n "$build" ]; then
    cuda=$(cached CATTN_CUDA)
    [ -z "$(cached CATTN_SANITIZE)" ] || fail "$build has sanitizers: name the folder of a release build"
fi
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
cmake -S "$root" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCATTN_CUDA="${cuda:-OFF}" -DCATTN_TESTS=OFF \
    -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR="lib/$multiarch" -DCMAKE_SKIP_RPATH=ON >"$work/cmake.txt" || {
    cat "$work/cmake.txt" >&2
    exit 1
}

# What is installed and does not exist yet is built, or taken from the other folder.
mapfile -t files < <(find "$work/build" -mindepth 2 -name cmake_install.cmake -exec cat {} + |
    grep -o "\"$work/build/[^\":]*\"" | tr -d '"' | sort -u)
made=()
for file in "${files[@]}"; do
    [ -e "$file" ] || made+=("${file#"$work/build/"}")
done
if [ -z "$build" ]; then
    ninja -C "$work/build" "${made[@]}"
else
    for file in "${made[@]}"; do
        [ -e "$build/$file" ] || fail "$build/$file is missing: build everything there first"
        mkdir -p "$(dirname "$work/build/$file")"
        cp -d "$build/$file" "$work/build/$file"
    done
fi
DESTDIR=$work/debian/tmp cmake --install "$work/build" >/dev/null
# Libraries of the other folder search for each other there.
find "$work/debian/tmp" -type f \( -name chunkllama -o -name '*.so.*' \) -printf 'file(RPATH_REMOVE FILE "%p")\n' \
    >"$work/rpath.cmake"
cmake -P "$work/rpath.cmake"

# ---- The library of grammars ----

cp -R "$root/packaging/debian" "$work/"

# The folder with llguidance and its dist-info, of the version that run.sh installs.
find_wheel() {
    local package folder
    package=$(sed -n 's/^GRAMMAR_PACKAGE=//p' "$root/scripts/setup.sh")
    folder=$(compgen -G "$root/.venv/lib/python3*/site-packages/${package/==/-}.dist-info" | head -n 1 || true)
    if [ -n "$folder" ]; then dirname "$folder"; return; fi
    python3 -m venv "$work/venv" &&
        "$work/venv/bin/pip" install -q --no-deps --only-binary :all: --disable-pip-version-check --target "$work/wheel" "$package" >&2 &&
        echo "$work/wheel"
}

if [ -n "$grammars" ]; then
    wheel=$(find_wheel) || fail "llguidance cannot be installed; look at pip's message, or use --without-grammars"
    # It is found by this name (docs/api.md). Its undefined symbols of Python are those of this system's.
    install -D -m 644 "$wheel"/llguidance/_lib*.so "$work/debian/tmp/usr/lib/$multiarch/libllguidance.so"
    install -D -m 644 "$wheel"/llguidance-*.dist-info/licenses/LICENSE "$work/debian/tmp/usr/share/doc/chunkllama/llguidance-LICENSE"
    /usr/bin/python3 -c 'import sys; print("grammars:Depends=libpython%d.%d" % sys.version_info[:2])' >"$work/debian/chunkllama.substvars"
else
    # Nothing else of the package has the licence Expat.
    sed -i '/llguidance/d' "$work/debian/chunkllama.install"
    sed -i '/^ Answers can be held/,/^ \.$/d' "$work/debian/control"
    sed -i -e '/^Files: libllguidance/,/^$/d' -e '/^License: Expat$/,$d' "$work/debian/copyright"
    echo 'grammars:Depends=' >"$work/debian/chunkllama.substvars"
fi

# ---- The packages ----

cd "$work"
upstream=$(sed -n 's/^CMAKE_PROJECT_VERSION:[A-Z]*=//p' build/CMakeCache.txt)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
cat >debian/changelog <<END
chunkllama ($upstream-1) unstable; urgency=medium

  * Version $upstream; changelog.gz says what changed.

 -- $(sed -n 's/^Maintainer: //p' debian/control)  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END
dh_install
dh_installdocs
dh_installchangelogs "$root/CHANGELOG.md"
# Without a model in its configuration the service cannot start, so the installation does not enable it. An upgrade restarts it.
dh_installsystemd --no-enable
dh_strip --no-automatic-dbgsym
# Prometheus, Grafana and kubectl read these as they are.
dh_compress -X.json -X.yml -X.yaml
dh_fixperms
# Until 1.0.0 another minor version may have another interface under the same soname.
next_minor=$(awk -F. '{ print $1 "." $2 + 1 "~" }' <<<"$upstream")
for library in chunkattn chunkllama; do
    dh_makeshlibs -p "lib${library}0" -V "lib${library}0 (>= $upstream), lib${library}0 (<< $next_minor)"
done
dh_shlibdeps
dh_missing --fail-missing
dh_installdeb
dh_gencontrol
dh_md5sums
dh_builddeb --destdir="$out"
