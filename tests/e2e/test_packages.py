"""The Debian packages of packaging/build_deb.sh: what they contain and need, and that they can be installed, used and removed in a
root folder that has nothing but the packages which they name. The container is tested in it, too."""
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from conftest import ROOT

from test_serve import read_hello
from waiting import LIMIT_S

INSTALLED = ["libchunkattn0", "libchunkattn-dev", "libchunkllama0", "chunkllama"]  # libchunkllama-dev needs many more
# Packages that all Debian systems have, so that none names them: a shell for the packages' scripts, and what these call.
ESSENTIAL = ["coreutils", "dash", "init-system-helpers"]
IN_CONTAINER = ["curl"]  # what the Containerfile installs beside them
ENVIRONMENT = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("dh_install"), reason="this system cannot build Debian packages"),
    pytest.mark.skipif(os.geteuid() != 0, reason="installing into a root folder needs root"),
]


def output(*command, **more):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **more)
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


@pytest.fixture(scope="module")
def packages(bin_dir, tmp_path_factory):
    """The packages' files by their names."""
    out = tmp_path_factory.mktemp("deb")
    little = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}  # to save time
    output(ROOT / "packaging/build_deb.sh", "--build-dir", bin_dir.parent, out, env={**os.environ, **little})
    return {path.name.split("_")[0]: path for path in out.glob("*.deb")}


def field(package, name):
    return output("dpkg-deb", "--field", package, name).strip()


def names(relations):
    """The packages of a field such as Depends, without versions and alternatives."""
    return [re.split(r"[\s:(|]", relation.strip())[0] for relation in relations.split(",") if relation.strip()]


def depends(package):
    """The packages that it needs, apart from ours."""
    return [name for name in names(field(package, "Depends")) if not name.startswith("libchunk")]


def closure(roots):
    """The installed packages that these need, and those that they need in turn."""
    rows = output("dpkg-query", "-W", "-f", "${Package}\t${Pre-Depends}, ${Depends}\t${Provides}\n").splitlines()
    rows = [row.split("\t") for row in rows]
    needs = {name: names(relations) for name, relations, _ in rows}
    providers = {virtual: name for name, _, provides in rows for virtual in names(provides)}
    found, left = set(), list(roots)
    while left:
        name = left.pop()
        name = name if name in needs else providers.get(name)
        if name and name not in found:
            found.add(name)
            left += needs[name]
    return sorted(found)


def copy_packages(root, wanted):
    """Make a root folder in which these packages of this system are installed."""
    for name in ("bin", "sbin", "lib", "lib64"):  # links into /usr, through which packages may name their files
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    paths = set(output("dpkg-query", "-L", *wanted).splitlines()) - {"/bin", "/sbin", "/lib", "/lib64", "/.", ""}
    paths = sorted(path for path in paths if path[0] == "/" and not path.startswith("/usr/share/") and os.path.lexists(path))
    packed = subprocess.run(["tar", "-C", "/", "-c", "--no-recursion", "-T", "-"], input="\n".join(p[1:] for p in paths).encode(),
                            capture_output=True, check=True)
    subprocess.run(["tar", "-C", root, "-x", "--keep-directory-symlink"], input=packed.stdout, check=True)
    database = root / "var/lib/dpkg"
    for name in ("info", "updates", "triggers"):
        (database / name).mkdir(parents=True, exist_ok=True)
    (database / "status").write_text(output("dpkg-query", "-s", *wanted))
    for name in wanted:
        (database / f"info/{name}.list").touch()


@pytest.fixture(scope="module")
def root(packages, model_path, tmp_path_factory):
    """The folder, with our packages and a model in it."""
    path = tmp_path_factory.mktemp("root")
    path.chmod(0o755)
    copy_packages(path, closure([*ESSENTIAL, *IN_CONTAINER, *(need for name in INSTALLED for need in depends(packages[name]))]))
    (path / "proc").mkdir(exist_ok=True)
    for name in ("cpuinfo", "meminfo"):
        (path / "proc" / name).write_bytes(open(f"/proc/{name}", "rb").read())
    shutil.copyfile(model_path, path / "model.gguf")
    dpkg(path, "-i", *(packages[name] for name in INSTALLED))
    return path


def dpkg(root, *args):
    return output("dpkg", f"--root={root}", *args)


def inside(root, *command, status=(0,)):
    """What a program writes that runs with the folder as its root, which is an error if it is nothing else."""
    done = subprocess.run(["chroot", root, *command], capture_output=True, text=True, env=ENVIRONMENT, timeout=LIMIT_S)
    assert done.returncode in status, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout or done.stderr


def test_what_is_in_the_packages(packages):
    assert sorted(packages) == sorted([*INSTALLED, "libchunkllama-dev"])
    multiarch = output("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()
    lib = f"./usr/lib/{multiarch}"
    files = {name: re.findall(r" (\./\S*)(?: -> \S+)?$", output("dpkg-deb", "-c", path), re.M) for name, path in packages.items()}
    wanted = {
        "libchunkattn0": [f"{lib}/libchunkattn.so.0"],
        "libchunkattn-dev": [f"{lib}/libchunkattn.so", f"{lib}/libchunkattn.a", f"{lib}/pkgconfig/chunkattn.pc",
                             f"{lib}/cmake/chunkattn/chunkattn-config.cmake", "./usr/include/chunkattn.h"],
        "libchunkllama0": [f"{lib}/libchunkllama.so.0"],
        "libchunkllama-dev": [f"{lib}/libchunkllama.so", f"{lib}/libchunkllama.a", "./usr/include/chunkllama.h"],
        "chunkllama": ["./usr/bin/chunkllama", "./usr/share/man/man1/chunkllama-serve.1.gz", "./etc/chunkllama/config.toml",
                       "./lib/systemd/system/chunkllama.service", "./usr/share/bash-completion/completions/chunkllama",
                       f"{lib}/libllguidance.so", "./usr/share/doc/chunkllama/llguidance-LICENSE"],
    }
    for name, paths in wanted.items():
        paths += [f"./usr/share/doc/{name}/{file}" for file in ("copyright", "changelog.gz", "changelog.Debian.gz")]
        assert set(paths) <= set(files[name]), name
    assert output("dpkg-deb", "-I", packages["chunkllama"], "conffiles").split() == ["/etc/chunkllama/config.toml"]


def test_depends_name_all_libraries(packages, tmp_path):
    """Directly, not by what another package happens to need."""
    for name, pattern in {"chunkllama": "usr/bin/chunkllama", "libchunkllama0": "usr/lib/*/libchunkllama.so.*.*"}.items():
        output("dpkg-deb", "-x", packages[name], tmp_path / name)
        program = next((tmp_path / name).glob(pattern))
        dynamic = output("readelf", "-d", program)
        assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
        needed = [n for n in re.findall(r"NEEDED.*\[(.*)\]", dynamic) if not n.startswith("libchunk")]
        provided = {os.path.basename(path) for path in output("dpkg-query", "-L", *depends(packages[name])).splitlines()}
        assert len(needed) > 3 and set(needed) <= provided, set(needed) - provided


def test_the_program(packages, root, chunkllama_bin, model_path):
    version = re.search(r"project\(.* VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert inside(root, "/usr/bin/chunkllama", "--version") == f"chunkllama {version}\n"
    assert field(packages["chunkllama"], "Version") == f"{version}-1"
    doctor = inside(root, "/usr/bin/chunkllama", "doctor", status=(0, 1))  # 1: with warnings
    assert re.search(r"^ok +cpu +kernel levels ref", doctor, re.M)
    assert re.search(r"^ok +grammars +llguidance: libllguidance.so$", doctor, re.M)
    run = ["run", "--raw", "--temperature", "0", "-n", "16", "Once upon a time", "-m"]
    answer = inside(root, "/usr/bin/chunkllama", *run, "/model.gguf")
    assert answer.strip() and answer == output(chunkllama_bin, *run, model_path)
    # The service, whose configuration lacks a model.
    unit = (root / "lib/systemd/system/chunkllama.service").read_text()
    assert "--model" in inside(root, *re.search(r"^ExecStart=(.*)$", unit, re.M)[1].split(), status=(1,))


def test_the_library(root, tmp_path):
    lib = next(root.glob("usr/lib/*/libchunkattn.so")).parent
    flags = output("pkg-config", "--cflags", "--libs", "chunkattn", env={**os.environ, "PKG_CONFIG_PATH": str(lib / "pkgconfig")})
    output("cc", ROOT / "tests/install/foreign.c", "-o", root / "foreign", *flags.split())
    assert inside(root, "/foreign") == "ok\n"
    output("cmake", "-S", ROOT / "tests/install/package", "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={root}/usr")
    assert f"{lib}/libchunkattn.a" in output("ninja", "-C", tmp_path, "-t", "commands")


def instructions():
    """The instructions of the Containerfile, a list for each of its stages."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(), flags=re.M))
    stages = []
    for word, rest in (line.split(" ", 1) for line in text.splitlines() if line):
        stages += [[]] if word == "FROM" else []
        stages[-1].append((word, rest))
    return stages


def test_the_container_is_built_from_what_there_is():
    """An image cannot be built here: its steps are those that other tests carry out."""
    build, image = instructions()
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] != "#"]
    copied = [source for word, rest in build if word == "COPY" for source in rest.split()[:-1]]
    assert copied == ["packages.txt", "."] and all((ROOT / path).exists() for path in copied)
    assert not {"packages.txt", "packaging", "CMakeLists.txt", "CHANGELOG.md"} & set(ignored)
    install, script = [rest for word, rest in build if word == "RUN"]
    wanted = output("bash", "-c", "echo " + re.search(r"\$\(.*\)", install)[0], cwd=ROOT).split()
    assert {"cmake", "gcc", "ninja-build", "libjansson-dev"} < set(wanted) and "clang" not in wanted
    assert os.access(ROOT / script.split()[0], os.X_OK)
    assert ("COPY", f"--from=build {script.split()[1]}/chunkllama_*.deb /tmp/") in image
    installed = re.search(r"--no-install-recommends (.*?) &&", dict(image)["RUN"])[1].split()
    assert set(installed) == {"ca-certificates", "/tmp/chunkllama_*.deb", *IN_CONTAINER}


def test_the_container_runs(root):
    """As the first process, as the user, and with the environment and the command that the Containerfile sets."""
    image = dict(instructions()[1])
    for command in image["RUN"].split(" && "):
        if command.split()[0] not in ("apt-get", "rm"):
            inside(root, "/bin/sh", "-c", command)
    environment = {**ENVIRONMENT, **dict([image["ENV"].split("=")])}
    given = {"CHUNKLLAMA_PORT": "0", "CHUNKLLAMA_MODEL": "/model.gguf", "CHUNKLLAMA_FILES_DIR": "files"}
    command = ["chroot", f"--userspec={image['USER']}", root, "sh", "-c", 'cd "$1" && shift && exec "$@"', "-", image["WORKDIR"],
               *json.loads(image["ENTRYPOINT"]), *json.loads(image["CMD"])]
    server = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", *command], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env={**environment, **given})
    try:
        address, port = re.search(r"//(.*):(\d+)", read_hello(server)[0]).groups()
        assert address == "0.0.0.0"

        def is_healthy():
            check = ["chroot", root, "sh", "-c", image["HEALTHCHECK"].split(" CMD ")[1]]
            done = subprocess.run(check, capture_output=True, env={**environment, "CHUNKLLAMA_PORT": port}, timeout=LIMIT_S)
            return done.returncode == 0

        assert is_healthy()
        assert (root / image["WORKDIR"][1:] / "files").stat().st_uid == int(image["USER"].split(":")[0])
        os.kill(int(open(f"/proc/{server.pid}/task/{server.pid}/children").read()), signal.SIGTERM)
        assert server.wait(timeout=LIMIT_S) == 0 and not is_healthy()
    finally:
        server.kill()
        server.communicate()


def test_what_a_removal_leaves(packages, root):
    """The configuration, until the package is purged."""
    config = root / "etc/chunkllama/config.toml"
    config.write_text('[serve]\nmodel = "/model.gguf"\n')
    dpkg(root, "-r", "chunkllama")
    assert not (root / "usr/bin/chunkllama").exists() and "model.gguf" in config.read_text()
    dpkg(root, "-i", packages["chunkllama"])
    assert "model.gguf" in config.read_text()
    dpkg(root, "-P", *INSTALLED)
    assert [path for path in root.rglob("*chunk[al]*") if "/var/lib/" not in str(path)] == []
