#!/usr/bin/env python3
"""What nvcc makes of the kernels: registers, spills, and the instructions of each main loop, against a table.

sass.py NVCC NVDISASM SOURCE_DIR [--print]

Compiles lib/cuda/kernels.cu for sm_80 and sm_90a. A kernel must not spill, use no local memory, and take at most the registers
that its blocks of a multiprocessor leave (kernels.def). LOOPS says how many matrix products the hot path has per chunk. Exits with
77, which ctest counts as skipped, where a tool is missing.
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

# Kernels: the least number of each instruction that the loop over chunks has. A smaller number means that the compiler moved
# work out of the loop that belongs there; more of LDL or STL, that it spilled.
HMMA_PER_CHUNK = {"decode": lambda d: 2 * (d // 16), "prefill": lambda d: 4 * (d // 16)}


def kernels(source):
    """name -> (threads, blocks) of kernels.def"""
    rows = re.findall(r"^CA_CUDA_KERNEL\(\w+, (\w+), (\d+), (\d+), \d+, (\d+),", open(f"{source}/lib/cuda/kernels.def").read(), re.M)
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


def instructions(nvdisasm, cubin):
    """name -> counts of its instructions"""
    text = subprocess.run([nvdisasm, "-c", cubin], stdout=subprocess.PIPE, text=True, check=True).stdout
    counts, name = {}, None
    for line in text.splitlines():
        section = re.match(r"\s*\.section\s+\.text\.ca_cuda_(\w+)", line)
        if section:
            name = section.group(1)
            counts[name] = collections.Counter()
        op = re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][A-Z0-9_]*)", line)
        if op and name:
            counts[name][op.group(1)] += 1
    return counts


def judge(name, limits, found, ops):
    """What is wrong with one kernel, as sentences."""
    threads, blocks, _ = limits
    registers, stack, spills = found
    most = min(255, REGISTERS // (threads * blocks) // 8 * 8)
    if registers > most:
        yield f"{registers} registers, more than the {most} that {blocks} blocks a multiprocessor leave"
    if stack or spills:
        yield f"{stack} bytes of stack, {spills} bytes of spills"
    if ops["LDL"] + ops["STL"]:
        yield f"{ops['LDL'] + ops['STL']} accesses of local memory"
    family, *_, d = name.split("_")
    if family in HMMA_PER_CHUNK and ops["HMMA"] < HMMA_PER_CHUNK[family](int(d)):
        yield f"only {ops['HMMA']} HMMA"


def main():
    nvcc, nvdisasm, source = sys.argv[1:4]
    if not os.access(nvcc, os.X_OK) or not os.access(nvdisasm, os.X_OK):
        print("skipped: nvcc or nvdisasm is not found")
        sys.exit(77)
    limits, failures = kernels(source), 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor() as pool:
        for arch, (cubin, log) in zip(ARCHS, pool.map(lambda arch: compile_for(arch, nvcc, source, folder), ARCHS)):
            found, ops = properties(log), instructions(nvdisasm, cubin)
            for name in limits:
                wrong = list(judge(name, limits[name], found[name], ops[name]))
                failures += len(wrong)
                mix = ", ".join(f"{ops[name][op]} {op}" for op in ("HMMA", "LDSM", "LDGSTS", "MUFU", "MOVM", "SHFL", "BAR") if ops[name][op])
                if wrong or "--print" in sys.argv:
                    print(f"sm_{arch} {name}: {found[name][0]} registers, {sum(ops[name].values())} instructions: {mix}")
                for sentence in wrong:
                    print(f"    {sentence}")
    print(f"{failures} failures")
    sys.exit(failures != 0)


main()
