#!/usr/bin/env python3
"""What nvcc makes of the kernels: registers, spills, and the instructions of each main loop, against a table.

sass.py NVCC NVDISASM SOURCE_DIR [--print]

Compiles lib/cuda/kernels.cu for sm_80 and sm_90a. A kernel must not spill, use no local memory, and take at most the registers
that its blocks of a multiprocessor leave (kernels.def). The loops over chunks must have the instructions of LOOPS: fewer mean that
the compiler left something out, more that it unrolled or duplicated what it should not. Without nvdisasm only the first half is
checked. Exits with 77, which ctest counts as skipped, without nvcc.
"""
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

ARCHS = ("80", "90a")
FLAGS = ["-O3", "-std=c++17", "-Xptxas=-v,--register-usage-level=0"]
REGISTERS = 65536  # of a multiprocessor


def decode_loops(d):
    """One loop over chunks for each size of tile; of 8 n rows a warp, scores and three ways to add V (plain, hidden slots, row by
    row) are n d / 16 products each. Two warps share a quarter's copies where d = 256."""
    split = 2 if d == 256 else 1
    return [{"HMMA": 4 * n * d // 16, "MOVM": 2 * n, "LDGSTS": d // 8 // split} for n in (1, 2, 4)[: 3 - (split > 1)]]


def prefill_loops(d):
    """The loop over the chunks of a stage: d / 8 products for scores, twice (whole chunks, and others), and three ways to add V."""
    return [{"HMMA": 5 * d // 8, "MOVM": 0, "LDGSTS": 0}]


def bulk_loops(d):
    """The same where one lane requests: a bulk copy for each part of 64 dimensions."""
    return [{**loop, "LDGSTS": 0} for loop in decode_loops(d)]


LOOPS = {"decode": decode_loops, "decode_bulk": bulk_loops, "prefill": prefill_loops, "prefill_bulk": prefill_loops}


def kernels(source):
    """name -> (threads, blocks, sm) of kernels.def"""
    with open(f"{source}/lib/cuda/kernels.def") as f:
        rows = re.findall(r"^CA_CUDA_KERNEL\(\w+, (\w+), (\d+), (\d+), \d+, (\d+),", f.read(), re.M)
    return {name: (int(threads), int(blocks), int(sm)) for name, threads, blocks, sm in rows}


def compile_for(arch, nvcc, source, folder):
    cubin = f"{folder}/{arch}.cubin"
    command = [nvcc, *FLAGS, f"-gencode=arch=compute_{arch},code=sm_{arch}", f"-I{source}", f"-I{source}/include", "-cubin",
               "-o", cubin, f"{source}/lib/cuda/kernels.cu"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"nvcc fails for sm_{arch}:\n{done.stdout}")
    return cubin, done.stdout


def properties(log):
    """name -> (registers, stack bytes, spill bytes) of ptxas -v"""
    found = {}
    for block in log.split("Compiling entry function '")[1:]:
        name = block.split("'")[0].removeprefix("ca_cuda_")
        stack, stores, loads = map(int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
                                                  block).groups())
        found[name] = (int(re.search(r"Used (\d+) registers", block).group(1)), stack, stores + loads)
    return found


def disassemble(nvdisasm, cubin):
    """name -> its code: ("label", name) and ("op", opcode, target of a branch or None)"""
    text = subprocess.run([nvdisasm, "-c", cubin], stdout=subprocess.PIPE, text=True, check=True).stdout
    code, name = {}, None
    for line in text.splitlines():
        section = re.match(r"\s*\.section\s+\.text\.ca_cuda_(\w+)", line)
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


def loops(code):
    """Instructions of the loops over chunks, those with most matrix products last. A loop over chunks has matrix products and a
    vote (does M rise?), at most one barrier, and no such loop inside. Branches back to code that was moved out of a loop over
    jobs look like loops, too, but have the barriers of a job's end."""
    at = {c[1]: i for i, c in enumerate(code) if c[0] == "label"}
    spans = [(at[c[2]], i) for i, c in enumerate(code) if c[0] == "op" and c[2] and at.get(c[2], i) < i]
    found = [(b, e) for b, e in spans if {"HMMA", "VOTE"} <= set(count(code[b:e])) and count(code[b:e])["BAR"] <= 1]
    inner = {(b, e) for b, e in found if not any(b <= x and y <= e and (b, e) != (x, y) for x, y in found)}
    return sorted((count(code[b : e + 1]) for b, e in inner), key=lambda c: c["HMMA"])


def judge(name, limits, found):
    """What ptxas says is wrong with one kernel, as sentences."""
    threads, blocks, _ = limits
    registers, stack, spills = found
    most = min(255, REGISTERS // (threads * blocks) // 8 * 8)
    if registers > most:
        yield f"{registers} registers, more than the {most} that {blocks} blocks a multiprocessor leave"
    if stack or spills:
        yield f"{stack} bytes of stack, {spills} bytes of spills"


def judge_code(name, code):
    ops = count(code)
    if ops["LDL"] + ops["STL"]:
        yield f"{ops['LDL'] + ops['STL']} accesses of local memory"
    family, _, d = name.rsplit("_", 2) if name.count("_") > 1 else (name, "", "")
    if family not in LOOPS:
        return
    want, got = LOOPS[family](int(d)), loops(code)
    if len(want) != len(got):
        yield f"{len(got)} loops over chunks instead of {len(want)}"
    for w, g in zip(want, got):
        for op, n in w.items():
            if not n <= g[op] <= n + (int(d) // 16 if op == "HMMA" else 0):  # one tile's products may be duplicated
                yield f"{g[op]} {op} in a loop over chunks instead of {n}"


def mix(ops):
    shown = ("HMMA", "LDSM", "LDGSTS", "MUFU", "MOVM", "SHFL", "VOTE", "BAR")
    return f"{sum(ops.values())} instructions: " + ", ".join(f"{ops[op]} {op}" for op in shown if ops[op])


def main():
    nvcc, nvdisasm, source = sys.argv[1:4]
    if not os.access(nvcc, os.X_OK):
        print("skipped: nvcc is not found")
        sys.exit(77)
    limits, failures = kernels(source), 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor() as pool:
        compiled = pool.map(lambda arch: compile_for(arch, nvcc, source, folder), ARCHS)
        for arch, (cubin, log) in zip(ARCHS, compiled):
            found = properties(log)
            code = disassemble(nvdisasm, cubin) if os.access(nvdisasm, os.X_OK) else {}
            for name in (n for n, limit in limits.items() if limit[2] <= int(arch[:2])):
                wrong = list(judge(name, limits[name], found[name]))
                wrong += judge_code(name, code[name]) if code else []
                failures += len(wrong)
                if wrong or "--print" in sys.argv:
                    print(f"sm_{arch} {name}: {found[name][0]} registers")
                    for loop in loops(code[name]) if code else []:
                        print(f"    loop of {mix(loop)}")
                for sentence in wrong:
                    print(f"    WRONG: {sentence}")
    print(f"{len(limits)} kernels, {failures} failures")
    sys.exit(failures != 0)


main()
