#!/usr/bin/env python3
"""What nvcc makes of the kernels: registers, local memory, and the instructions of each main loop, against a table.

sass.py SOURCE_DIR NVDISASM CUOBJDUMP FILE ... [--print] [--llama]

FILE is a cubin, or an object file that holds one for each architecture. A kernel must use no local memory, and so must not
spill, and take at most the registers that its blocks of a multiprocessor leave (kernels.def). The loops over chunks must have the
instructions of LOOPS: fewer mean that the compiler left something out, more that it unrolled or duplicated what it should not.
With --llama the kernels are those of chunkllama/cuda, whose products of quantised weights must multiply integers.
Exits with 77, which ctest counts as skipped, without one of the tools.
"""
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

ARCHS = ("80", "90a")
REGISTERS = 65536  # of a multiprocessor


def decode_loops(d):
    """One loop over chunks for each size of tile, n tiles of 8 rows a warp. Where d = 256, two warps share a quarter's copies, and
    meet at a barrier before they read them. In each step of 16 dimensions:

    HMMA  n for scores, and n for each of three ways to add V (plain, without hidden slots, row by row)
    LDSM  one for K; for V one plain, one without hidden slots, one in search of what is not finite, and n row by row; n / 2 for
          queries that registers do not hold

    In all: two MOVM for the weights of each tile; MUFU for four weights of each tile, three for the soft-cap of each, and two where
    M rises.
    """
    split, steps = 2 if d == 256 else 1, d // 16
    return [{"HMMA": 4 * n * steps, "LDSM": (4 + n) * steps + (n * steps // 2 if n * d > 256 else 0), "MOVM": 2 * n,
             "MUFU": 18 * n, "VOTE": 2, "BAR": split - 1, "LDGSTS": d // 8 // split} for n in (1, 2, 4)[: 3 - (split > 1)]]


def prefill_loops(d):
    """The loop over the chunks of a stage. Scores are computed in two places (for whole chunks, and for others), and V is added in
    three (for all rows, and row by row for each of a lane's two rows), each by two HMMA in a step of 16 dimensions. LDSM: one in
    each of these places, and one in search of what is not finite; two more for queries where d = 256, since registers do not hold
    them then. MUFU: 8 weights, three for the soft-cap of each, and two where M rises."""
    steps = d // 16
    return [{"HMMA": 10 * steps, "LDSM": (2 + 4) * steps + (2 * steps if d == 256 else 0), "MOVM": 0, "MUFU": 34, "VOTE": 2,
             "BAR": 0, "LDGSTS": 0}]


def decode_e4m3_loops(d):
    """decode of e4m3. There is one way to add V; a warp copies 512 bytes at a time, and scales in one copy. "most" limits all
    instructions of a loop: d / 4 registers of four elements become f16, by 5 instructions each; nvcc 13.0 stays 5 % below."""
    split = 2 if d == 256 else 1
    return [{"HMMA": 2 * n * d // 16, "MOVM": 2 * n, "LDGSTS": d // 16 // split + 1,
             "most": 200 + 260 * n + d * (13 + 6 * n) // 10} for n in (1, 2, 4)[: 3 - (split > 1)]]


def prefill_e4m3_loops(d):
    """prefill of e4m3: scores twice, V once."""
    return [{"HMMA": 3 * d // 8, "MOVM": 0, "LDGSTS": 0, "most": 720 + d * 34 // 10}]


def prefill_wgmma_loops(d):
    """The way by mma, for stages that hide values which are not finite: every chunk counts as one that is not seen whole, so scores
    are computed in one place; otherwise as prefill_loops."""
    steps = d // 16
    return [{"HMMA": 8 * steps, "LDSM": (1 + 4) * steps + (steps if d == 256 else 0), "MOVM": 0, "MUFU": 34, "VOTE": 2, "BAR": 0,
             "LDGSTS": 0}]


def prefill_wgmma_stages(d):
    """The loop over the stages. HGMMA: a step for 16 dimensions of K; for V one for each of four chunks (two where d = 96), in two
    places: together and one by one. WARPGROUP: a fence and a wait for the scores, for the four chunks together, and for each of the
    four; ptxas would add waits if it had to serialise the products. BAR: the votes of the group."""
    return [{"HGMMA": d // 16 + 2 * 4 * (2 if d == 96 else 1), "WARPGROUP": 2 * (1 + 1 + 4), "BAR": 2, "LDGSTS": 0}]


LOOPS = {"decode": decode_loops, "decode_pages": decode_loops, "decode_e4m3": decode_e4m3_loops, "prefill": prefill_loops,
         "prefill_pages": prefill_loops, "prefill_wgmma": prefill_wgmma_loops, "prefill_e4m3": prefill_e4m3_loops}
STAGES = {"prefill_wgmma": prefill_wgmma_stages}


def kernels(source):
    """name -> (threads, blocks, sm) of kernels.def"""
    with open(f"{source}/chunkattn/cuda/kernels.def") as f:
        rows = f.read()
    numbers = {}
    for both, name, d, threads, blocks, sm in re.findall(r"^ATTEND(_16)?\((\w+), (\d+), (\d+), (\d+), \d+, (\d+),", rows, re.M):
        for kind in ("_bf16", "_f16") if both else ("",):
            numbers[f"{name}{kind}_{d}"] = (int(threads), int(blocks), int(sm))
    for d in re.findall(r"_(\d+), 256, 4, 0, 80,", rows):
        numbers.update({f"{name}_{d}": (256, 4, 80) for name in re.findall(r"^OF_EACH_SIZE\((\w+),", rows, re.M)})
    for name, *row in re.findall(r"^CA_CUDA_KERNEL\(check, (\w+), (\d+), (\d+), \d+, (\d+),", rows, re.M):
        numbers[name] = tuple(map(int, row))
    return numbers


def run(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options).stdout


def cubins(files, cuobjdump, folder):
    """architecture -> path"""
    paths = [path for path in files if path.endswith(".cubin")]
    for path in files:
        if not path.endswith(".cubin"):
            run(cuobjdump, "-xelf", "all", os.path.abspath(path), cwd=folder)
    paths += [os.path.join(folder, name) for name in os.listdir(folder)]
    return {re.search(r"\.sm_(\w+)\.cubin$", path).group(1): path for path in paths}


def llama_kernels(found):
    """The same of chunkllama/cuda/kernels.def, whose rows are made by macros, by the names in a cubin."""
    limits = {name: (128, 1, 80) if name.startswith("linear_") else (256, 4, 80) for name in found}
    if len([name for name in limits if name.startswith("linear_Q")]) < 40:
        sys.exit("there are fewer kernels than layouts")
    return limits


def judge_product(name, code):
    """What is wrong with a product of quantised weights: IMMA are its integer products."""
    if name.startswith(("linear_Q", "linear_TERNARY")) and not count(code)["IMMA"]:
        yield "no IMMA"


def properties(cuobjdump, cubin):
    """name -> (registers, bytes of local memory)"""
    found = re.findall(r"Function c[al]_cuda_(\w+):\s+REG:(\d+) STACK:(\d+) .*?LOCAL:(\d+)", run(cuobjdump, "-res-usage", cubin))
    return {name: (int(registers), int(stack) + int(local)) for name, registers, stack, local in found}


def disassemble(nvdisasm, cubin):
    """name -> its code: ("label", name) and ("op", opcode, target of a branch or None)"""
    code, name = {}, None
    for line in run(nvdisasm, "-c", cubin).splitlines():
        section = re.match(r"\s*\.section\s+\.text\.c[al]_cuda_(\w+)", line)
        label = re.match(r"(\.L_x_\d+):", line)
        op = re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][A-Z0-9_]*)(.*);", line)
        if section:
            name = section.group(1)
            code[name] = []
        elif name and label:
            code[name].append(("label", label.group(1)))
        elif name and op:
            target = re.search(r"\.L_x_\d+", op.group(2)) if op.group(1) == "BRA" else None
            code[name].append(("op", op.group(1), target and target.group(0)))
    return code


def count(code):
    return collections.Counter(c[1] for c in code if c[0] == "op")


def spans(code):
    """(begin, end) of what each branch back repeats"""
    at = {c[1]: i for i, c in enumerate(code) if c[0] == "label"}
    return [(at[c[2]], i) for i, c in enumerate(code) if c[0] == "op" and c[2] and at.get(c[2], i) < i]


def stage_loops(code):
    """Instructions of the smallest loop that has all products of the warp group."""
    total = count(code)["HGMMA"]
    found = [(e - b, b, e) for b, e in spans(code) if total and count(code[b:e])["HGMMA"] == total]
    return [count(code[b : e + 1]) for _, b, e in sorted(found)[:1]]


def loops(code):
    """Instructions of the loops over chunks, those with most matrix products last. A loop over chunks has matrix products and a
    vote (does M rise?), at most one barrier, and no such loop inside. Branches back to code that was moved out of a loop over
    work items look like loops, too, but have the barriers of an item's end."""
    found = [(b, e) for b, e in spans(code) if {"HMMA", "VOTE"} <= set(count(code[b:e])) and count(code[b:e])["BAR"] <= 1]
    inner = {(b, e) for b, e in found if not any(b <= x and y <= e and (b, e) != (x, y) for x, y in found)}
    return sorted((count(code[b : e + 1]) for b, e in inner), key=lambda c: c["HMMA"])


def judge(limits, found):
    """What is wrong with one kernel's registers, as sentences."""
    threads, blocks, _ = limits
    registers, local = found
    most = min(255, REGISTERS // (threads * blocks) // 8 * 8)
    if registers > most:
        yield f"{registers} registers, more than the {most} that {blocks} blocks a multiprocessor leave"
    if local:
        yield f"{local} bytes of local memory"


def judge_code(name, code):
    ops = count(code)
    if ops["LDL"] + ops["STL"]:
        yield f"{ops['LDL'] + ops['STL']} accesses of local memory"
    family, kv_type, d = name.rsplit("_", 2) if name.count("_") > 1 else (name, "", "")
    if kv_type == "e4m3":
        family += "_e4m3"
    if family not in LOOPS:
        return
    yield from judge_loops("loop over chunks", LOOPS[family](int(d)), loops(code), int(d))
    if family in STAGES:
        yield from judge_loops("loop over stages", STAGES[family](int(d)), stage_loops(code), int(d))


def judge_loops(kind, want, got, d):
    if len(want) != len(got):
        yield f"{len(got)} of the kind {kind} instead of {len(want)}"
    for w, g in zip(want, got):
        most = w.pop("most", None)
        if most and sum(g.values()) > most:
            yield f"{sum(g.values())} instructions in a {kind}, more than {most}"
        for op, n in w.items():
            if not n <= g[op] <= n + (d // 16 if op in ("HMMA", "LDSM") else 0):  # one tile's products may be duplicated
                yield f"{g[op]} {op} in a {kind} instead of {n}"


def mix(ops):
    shown = ("HGMMA", "WARPGROUP", "HMMA", "LDSM", "LDGSTS", "MUFU", "MOVM", "SHFL", "VOTE", "BAR")
    return f"{sum(ops.values())} instructions: " + ", ".join(f"{ops[op]} {op}" for op in shown if ops[op])


def main():
    source, nvdisasm, cuobjdump, *files = [word for word in sys.argv[1:] if not word.startswith("--")]
    if not all(os.access(tool, os.X_OK) for tool in (nvdisasm, cuobjdump)):
        print("skipped: nvdisasm or cuobjdump is not found; the set-up of ./test.sh installs both in .venv")
        sys.exit(77)
    limits, failures = kernels(source), 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor() as pool:
        paths = cubins(files, cuobjdump, folder)
        if set(paths) != set(ARCHS):
            sys.exit(f"there is code for sm_{', sm_'.join(sorted(paths)) or 'nothing'}, not for sm_{' and sm_'.join(ARCHS)}")
        read = pool.map(lambda arch: (properties(cuobjdump, paths[arch]), disassemble(nvdisasm, paths[arch])), ARCHS)
        for arch, (found, code) in zip(ARCHS, read):
            if "--llama" in sys.argv:
                limits = llama_kernels(found)
            for name in (n for n, limit in limits.items() if limit[2] <= int(arch[:2])):
                wrong = [*judge(limits[name], found[name]), *judge_code(name, code[name]), *judge_product(name, code[name])]
                failures += len(wrong)
                if wrong or "--print" in sys.argv:
                    print(f"sm_{arch} {name}: {found[name][0]} registers")
                    for loop in stage_loops(code[name]) + loops(code[name]):
                        print(f"    loop of {mix(loop)}")
                for sentence in wrong:
                    print(f"    WRONG: {sentence}")
    print(f"{len(limits)} kernels, {failures} failures")
    sys.exit(failures != 0)


main()
