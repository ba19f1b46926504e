"""Runs `chunkllama bench serve` against a system."""

import contextlib
import fcntl
import json
import subprocess


@contextlib.contextmanager
def machine(args):
    """Exclusive use of the machine among processes that lock the same --lock file."""
    if not args.lock:
        yield
        return
    with open(args.lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def about_machine(args):
    """CPU, compiler and limits, as an object."""
    command = [args.bin / "cattn-bench", "machine", "--json", *(["--quick"] if args.quick else [])]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0])


def run(args, system, **options):
    """The results that the client prints, as an object. options: those of the client, with _ for -; True for a flag."""
    command = [str(args.bin / "chunkllama"), "bench", "serve", "--url", system.url, "--json"]
    for name, value in options.items():
        if value is not None and value is not False:
            command += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    with system.awake():
        done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def kv_megabytes(system, result):
    """The peak, or None if the system does not report it."""
    peak = result["peak"]
    if peak["kv_bytes"] is not None:
        return peak["kv_bytes"] / 1e6
    if peak["kv_usage"] is not None and system.kv_capacity:
        return peak["kv_usage"] * system.kv_capacity / 1e6
    return None


def figures(system, result):
    """The figures of a row; None for those without an answered request."""

    def of(name, what, scale=1e3):
        return result[name][what] * scale if result[name] else None

    failed = result["requests"]["total"] - result["requests"]["ok"]
    return {
        "system": system.name,
        "normalized_ms": of("normalized_latency_s", "mean"),
        "normalized_p99_ms": of("normalized_latency_s", "p99"),
        "ttft_ms": of("ttft_s", "mean"),
        "tpot_ms": of("tpot_s", "mean"),
        "itl_p99_ms": of("itl_s", "p99"),
        "output_tokens_per_s": result["output_tokens_per_s"],
        "kv_mb": kv_megabytes(system, result),
        "batch": result["peak"]["batch"],
        "requests": result["requests"]["total"],
        "failed": failed,
        "errors": result["errors"],
    }
