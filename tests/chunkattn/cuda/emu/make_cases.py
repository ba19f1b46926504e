#!/usr/bin/env python3
"""
Writes cases/*.txt: for each device primitive, small inputs and the outputs that the PTX ISA prescribes.

It knows the formulas of the ISA's text and nothing of the emulation, so that a mistake in one is not a mistake in both. Every case
names the section that its formula is from (sections by title; their numbers change from version to version). Matrix elements are
small integers, so that sums are exact in every order and a device's results must be equal bit by bit.

A file is a list of cases, in lines of words:

    case NAME            begins a case
    source TEXT          the section of the PTX ISA
    run KERNEL           a kernel of case_kernels.cuh
    threads N            of the one block
    arg W ...            numbers that all threads get
    device W ...         words of device memory
    shared AT W ...      words of shared memory at byte AT before the kernel (memory that no line names is not initialised)
    in R W ...           register R of each thread
    out R W ...          what register R of each thread must hold afterwards; - where the case says nothing
    after AT W ...       what shared memory must hold afterwards at byte AT
    within X             registers are f32 that may differ by X times the larger of 1 and the prescribed size
    blocks               the kernel must never end: it waits for something that does not come
    end

A word is hexadecimal; A..B stands for consecutive words; after an f32 on the line, words are decimal and mean the bits of that
number in f32.
"""
import math
import os
import random
import struct

rng = random.Random(1)


def f32(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def bf16(x):
    """The nearest bf16, ties to even. Only for finite numbers."""
    u = f32(x)
    return (u + 0x7FFF + (u >> 16 & 1)) >> 16 & 0xFFFF


def f16(x):
    return struct.unpack("<H", struct.pack("<e", x))[0]


def low_high(low, high):
    return low | high << 16


class Number(int):
    """An integer whose f32 bits are meant."""


def words(values):
    values = list(values)
    if all(isinstance(v, Number) for v in values):
        return "f32 " + " ".join("%d" % v for v in values)
    if len(values) > 2 and all(v == values[0] + i for i, v in enumerate(values) if not isinstance(values[0], str)):
        if not isinstance(values[0], str):
            return "%x..%x" % (values[0], values[-1])
    return " ".join(v if isinstance(v, str) else "%x" % v for v in values)


class File:
    def __init__(self, name, about):
        self.name = name
        self.lines = ["# " + line for line in about.split("\n")] + ["# Made by make_cases.py, which explains the format."]

    def case(self, name, source, run, threads, arg=(), device=(), shared=(), inputs=(), outputs=(), after=(), blocks=False,
             within=None):
        out = self.lines
        out += ["", "case " + name, "source " + source, "run " + run, "threads %d" % threads]
        if arg:
            out.append("arg " + words(arg))
        if device:
            out.append("device " + words(device))
        for at, values in shared:
            out.append("shared %x %s" % (at, words(values)))
        for r, values in enumerate(inputs):
            out.append("in %x %s" % (r, words(values)))
        for r, values in enumerate(outputs):
            out.append("out %x %s" % (r, words(values)))
        for at, values in after:
            out.append("after %x %s" % (at, words(values)))
        if within:
            out.append("within %g" % within)
        if blocks:
            out.append("blocks")
        out.append("end")

    def write(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases")
        with open(os.path.join(folder, self.name), "w") as f:
            f.write("\n".join(self.lines) + "\n")


def image(memory):
    """{byte address: 16-bit element} as runs of consecutive 32-bit words."""
    of_word = {}
    for at, v in memory.items():
        of_word.setdefault(at // 4 * 4, [0, 0])[at % 4 // 2] = v
    runs = []
    for at in sorted(of_word):
        if not runs or runs[-1][0] + 4 * len(runs[-1][1]) != at:
            runs.append((at, []))
        runs[-1][1].append(low_high(*of_word[at]))
    return runs


# ---- Matrices of a warp ----


def fragment_8x8(lane, half):
    """ldmatrix, "The following figure shows the fragment layout": a thread holds two consecutive elements of row lane / 4."""
    return lane // 4, 2 * (lane % 4) + half


def warp_matrices():
    f = File("warp_matrices.txt", "Matrix operations of a warp: ldmatrix, movmatrix, mma.m16n8k16, mma.m16n8k32.")

    # Four matrices with rows in arbitrary places; element values tell matrix, row and column.
    def element(m, r, c):
        return m << 12 | r << 8 | c << 4 | 0xB

    for name, places in (("in_order", list(range(32))), ("scattered", rng.sample(range(64), 32))):
        rows = [16 * p for p in places]  # of lane 8 m + r: the address of row r of matrix m
        memory = {rows[8 * m + r] + 2 * c: element(m, r, c) for m in range(4) for r in range(8) for c in range(8)}
        for trans in (False, True):
            registers = []
            for m in range(4):
                values = []
                for lane in range(32):
                    places_of = [fragment_8x8(lane, h) for h in (0, 1)]
                    if trans:  # "each matrix is loaded in column-major format"
                        places_of = [(c, r) for r, c in places_of]
                    values.append(low_high(*(element(m, r, c) for r, c in places_of)))
                registers.append(values)
            suffix = "_trans" if trans else ""
            f.case("ldmatrix%s_%s" % (suffix, name), "Warp-level matrix load instruction: ldmatrix", "ldmatrix" + suffix, 32,
                   shared=image(memory), inputs=[rows], outputs=registers)

    matrix = [[r << 4 | c | 0x100 for c in range(8)] for r in range(8)]

    def registers_of(m):
        return [low_high(*(m[r][c] for r, c in (fragment_8x8(lane, 0), fragment_8x8(lane, 1)))) for lane in range(32)]

    transposed = [list(column) for column in zip(*matrix)]
    f.case("movmatrix", "Warp-level matrix transpose instruction: movmatrix", "movmatrix", 32, inputs=[registers_of(matrix)],
           outputs=[registers_of(transposed)])

    # "The row and column of a matrix fragment can be computed as": i counts 16-bit elements of A and B, registers of C.
    def place_a(lane, i):
        row = lane >> 2 if i < 2 or 4 <= i < 6 else (lane >> 2) + 8
        return row, lane % 4 * 2 + (i & 1) + (0 if i < 4 else 8)

    def place_b(lane, i):
        return lane % 4 * 2 + (i & 1) + (0 if i < 2 else 8), lane >> 2

    def place_c(lane, i):
        return (lane >> 2) + (0 if i < 2 else 8), lane % 4 * 2 + (i & 1)

    for kind, narrow in (("bf16", bf16), ("f16", f16)):
        for name in ("one_each", "random"):
            a = [[0] * 16 for _ in range(16)]
            b = [[0] * 8 for _ in range(16)]
            c = [[0] * 8 for _ in range(16)]
            if name == "one_each":  # A [m][k] = 1 for one k: C [m][n] is one element of B
                for m in range(16):
                    a[m][m * 5 % 16] = 1
                b = [[k * 8 + n - 60 for n in range(8)] for k in range(16)]
            else:
                a = [[rng.randint(-7, 7) for _ in range(16)] for _ in range(16)]
                b = [[rng.randint(-7, 7) for _ in range(8)] for _ in range(16)]
                c = [[rng.randint(-99, 99) for _ in range(8)] for _ in range(16)]
            d = [[c[m][n] + sum(a[m][k] * b[k][n] for k in range(16)) for n in range(8)] for m in range(16)]

            def take(matrix, place, i):
                return [matrix[r][q] for r, q in (place(lane, i) for lane in range(32))]

            def pairs(matrix, place, n):
                return [[low_high(narrow(x), narrow(y)) for x, y in zip(take(matrix, place, i), take(matrix, place, i + 1))]
                        for i in range(0, n, 2)]

            f.case("mma_%s_%s" % (kind, name), "Matrix Fragments for mma.m16n8k16 with floating point type", "mma_" + kind, 32,
                   inputs=pairs(a, place_a, 8) + pairs(b, place_b, 4) + [[Number(v) for v in take(c, place_c, i)] for i in range(4)],
                   outputs=[[Number(v) for v in take(d, place_c, i)] for i in range(4)])
    byte_matrices(f, place_c)
    f.write()


def byte_matrices(f, place_c):
    """A of u8 and B of s8; the formulas count bytes of A and B."""
    of_bytes = random.Random(2)
    for k in (32, 16):

        def place_a(lane, i):
            rows_below = 4 <= i < 8 or i >= 12
            return (lane >> 2) + (8 if rows_below else 0), lane % 4 * 4 + (i & 3) + (0 if i < 8 else 16)

        def place_b(lane, i):
            return lane % 4 * 4 + (i & 3) + (0 if i < 4 else 16), lane >> 2

        a = [[of_bytes.choice((0, 1, 127, 128, 255, of_bytes.randint(0, 255))) for _ in range(k)] for _ in range(16)]
        b = [[of_bytes.choice((-128, -1, 0, 127, of_bytes.randint(-128, 127))) for _ in range(8)] for _ in range(k)]
        c = [[of_bytes.randint(-(10**6), 10**6) for _ in range(8)] for _ in range(16)]
        d = [[c[m][n] + sum(a[m][i] * b[i][n] for i in range(k)) for n in range(8)] for m in range(16)]

        def fours(matrix, place, n):
            return [[sum((matrix[r][q] & 255) << 8 * j for j, (r, q) in enumerate(place(lane, i + j) for j in range(4)))
                     for lane in range(32)] for i in range(0, n, 4)]

        def sums(matrix):
            return [[matrix[r][q] & 0xFFFFFFFF for r, q in (place_c(lane, i) for lane in range(32))] for i in range(4)]

        f.case("mma_u8s8_k%d" % k, "Matrix Fragments for mma.m16n8k%d with integer type" % k, "mma_u8s8_k%d" % k, 32,
               inputs=fours(a, place_a, k // 2) + fours(b, place_b, k // 4) + sums(c), outputs=sums(d))


# ---- Matrices of a warp group ----


def unit_offset(order, swizzle, leading, stride, mn, k):
    """
    Byte offset, before the swizzle, of the 16-byte unit of element (mn, k), 16-bit elements. Canonical layouts in units of 16 bytes,
    shape : stride, with W units in a row of the swizzle:
        K-major   ((8, n), 2) : ((W, SBO), 1)
        MN-major  ((W, n), (8, k)) : ((1, LBO), (W, SBO))
    """
    w = swizzle // 16
    if order == "K":
        return 16 * (w * (mn % 8) + k // 8) + stride * (mn // 8)
    row = mn // 8
    return 16 * (row % w) + leading * (row // w) + 16 * w * (k % 8) + stride * (k // 8)


def swizzled(address, swizzle):
    """Swizzle<B, 4, 3>: B bits from bit 4 on are exclusive-ored with those from bit 7 on; B is 3 or 2."""
    bits = {128: 3, 64: 2}[swizzle]
    return address ^ (address >> 7 & (1 << bits) - 1) << 4


class Operand:
    def __init__(self, order, swizzle, at, leading, stride):
        self.order, self.swizzle, self.at, self.leading, self.stride = order, swizzle, at, leading, stride

    def place(self, mn, k):
        inner = k % 8 if self.order == "K" else mn % 8
        address = self.at + unit_offset(self.order, self.swizzle, self.leading, self.stride, mn, k)
        return swizzled(address, self.swizzle) + 2 * inner

    def args(self):
        return [self.at, self.leading, self.stride, self.swizzle]


def place_d(thread, i):
    """WGMMA .m64nNk16 register fragment layout for accumulator matrix D: warp w has rows 16 w .."""
    lane = thread % 32
    row = 16 * (thread // 32) + lane // 4 + 8 * (i // 2 % 2)
    return row, 8 * (i // 4) + 2 * (lane % 4) + i % 2


def place_a_registers(thread, i):
    lane = thread % 32
    row = 16 * (thread // 32) + lane // 4 + 8 * (i // 2 % 2)
    return row, 2 * (lane % 4) + i % 2 + 8 * (i // 4)


def warp_groups():
    f = File("warp_groups.txt", "wgmma.mma_async.m64nNk16: operands by descriptors in two swizzle modes, B in both majors, or A in registers.")
    source = "Asynchronous warpgroup level matrix: register fragments, shared memory matrix layout, matrix descriptor format"
    wide = 8192  # where B begins
    # type, A, B, N, add; A None: in registers
    cases = (
        ("k128_k128", "bf16", Operand("K", 128, 0, 16, 1024), Operand("K", 128, wide, 16, 1024), 32, True),
        ("k128_second_step", "bf16", Operand("K", 128, 32, 16, 1024), Operand("K", 128, wide + 96, 16, 1024), 32, False),
        ("k128_f16", "f16", Operand("K", 128, 64, 16, 1024), Operand("K", 128, wide, 16, 1024), 32, True),
        ("k64_k128_wide_strides", "f16", Operand("K", 64, 0, 16, 1536), Operand("K", 128, 4 * wide, 16, 3072), 32, False),
        ("k64_k64", "f16", Operand("K", 64, 32, 16, 512), Operand("K", 64, wide, 16, 512), 32, False),
        ("k128_n128", "bf16", Operand("K", 128, 0, 16, 1024), Operand("MN", 128, wide, 16, 1024), 64, False),
        ("k128_n128_two_atoms", "f16", Operand("K", 128, 0, 16, 1024), Operand("MN", 128, wide, 4096, 1024), 128, False),
        ("k128_n64", "bf16", Operand("K", 128, 0, 16, 1024), Operand("MN", 64, wide, 16, 512), 32, True),
        ("registers_k128", "bf16", None, Operand("K", 128, wide, 16, 1024), 32, True),
        ("registers_k64", "f16", None, Operand("K", 64, wide + 32, 16, 512), 32, False),
        ("registers_n128", "f16", None, Operand("MN", 128, wide, 16, 1024), 64, False),
        ("k128_256", "bf16", Operand("K", 128, 0, 16, 1024), Operand("K", 128, wide, 16, 1024), 256, False),
    )
    for name, kind, of_a, of_b, n, add in cases:
        narrow = bf16 if kind == "bf16" else f16
        largest = 1 if n > 100 else 2
        a = [[rng.randint(-largest, largest) for _ in range(16)] for _ in range(64)]
        b = [[rng.randint(-largest, largest) for _ in range(n)] for _ in range(16)]
        c = [[rng.randint(-9, 9) if add else 0 for _ in range(n)] for _ in range(64)]
        d = [[c[m][j] + sum(a[m][k] * b[k][j] for k in range(16)) for j in range(n)] for m in range(64)]
        memory = {}
        if of_a:
            memory.update({of_a.place(m, k): narrow(a[m][k]) for m in range(64) for k in range(16)})
        placed = {of_b.place(j, k): narrow(b[k][j]) for j in range(n) for k in range(16)}
        assert not set(memory) & set(placed)
        memory.update(placed)
        assert len(memory) == (64 * 16 if of_a else 0) + 16 * n
        inputs = []
        if add:
            inputs = [[Number(c[r][q]) for r, q in (place_d(t, i) for t in range(128))] for i in range(n // 2)]
        if not of_a:
            pair = [[low_high(*(narrow(a[r][q]) for r, q in (place_a_registers(t, i), place_a_registers(t, i + 1))))
                     for t in range(128)] for i in range(0, 8, 2)]
            inputs = pair + inputs
        run = "wgmma_%s_%s_%s_%d" % (kind, "S" if of_a else "R", of_b.order, n)
        f.case(name, source, run, 128, arg=(of_a.args() if of_a else [0, 0, 0, 0]) + of_b.args() + [int(add)], shared=image(memory),
               inputs=inputs, outputs=[[Number(d[r][q]) for r, q in (place_d(t, i) for t in range(128))] for i in range(n // 2)])
    f.write()


# ---- Votes, shuffles, barriers ----


def exchange():
    f = File("exchange.txt", "What lanes and warps exchange: shuffles, votes, barriers with reduction, named barriers, atomics.")
    lanes = range(32)
    values = [0x1000 + 7 * l for l in lanes]
    for mask in (1, 4, 16, 31):
        f.case("shfl_xor_%d" % mask, "Data movement: shfl.sync, mode .bfly", "shfl_xor", 32, arg=[mask], inputs=[values],
               outputs=[[values[l ^ mask] for l in lanes]])
    source = [l * 11 + 3 for l in lanes]  # beyond 31: the lower five bits count
    f.case("shfl_idx", "Data movement: shfl.sync, mode .idx", "shfl", 32, inputs=[values, source], outputs=[[values[s % 32] for s in source]])
    for name, bits in (("none", 0), ("all", 0xFFFFFFFF), ("some", 0x80010204)):
        f.case("any_" + name, "Parallel synchronization: vote.sync, mode .any", "any_sync", 32,
               inputs=[[bits >> l & 1 for l in lanes]], outputs=[[int(bits != 0)] * 32])
    # Warps 0 and 2 meet at barrier 3, warp 1 is not concerned; 0 reads what 2 wrote.
    f.case("named_barrier", "Parallel synchronization: barrier.sync with a thread count", "sync_named", 96,
           inputs=[[0xA00 + t for t in range(96)]], outputs=[[0xA00 + 64 + t if t < 32 else "-" for t in range(96)]])
    # Each of two halves of the block votes at a barrier of its own.
    f.case("named_or", "Parallel synchronization: barrier.red.or with a thread count", "sync_named_or", 128,
           inputs=[[int(t == 70) for t in range(128)]], outputs=[[int(t >= 64) for t in range(128)]])
    for run in ("atomic_add_acq_rel", "atomic_add_relaxed"):
        f.case(run, "Parallel synchronization: atom.add.u32 returns the old value and wraps around", run, 32,
               device=[0xFFFFFFF0 + (l % 16) for l in lanes], inputs=[[l + 1 for l in lanes]],
               outputs=[[0xFFFFFFF0 + (l % 16) for l in lanes], [(0xFFFFFFF0 + (l % 16) + l + 1) % 2**32 for l in lanes]])
    # 8 and 16 bytes: the element with the lower address comes first.
    f.case("vectors", "Data movement: ld.v2, ld.v4, st.v2, st.v4", "vectors", 32, device=[0x100 + i for i in range(128)],
           outputs=[[0x100 + 4 * l + i for l in lanes] for i in range(4)] + [[0x100 + 2 * l + i for l in lanes] for i in range(2)],
           after=[(0, [0x100 + i for i in range(128)])])
    f.write()


# ---- Arithmetic ----


def arithmetic():
    f = File("arithmetic.txt", "Arithmetic and conversions at points where the result is exact or prescribed.")

    def case(name, source, run, columns, results, within=None):
        n = len(columns[0])
        pad = (32 - n % 32) % 32
        padded = [list(c) + [c[-1]] * pad for c in columns]
        f.case(name, source, run, n + pad, inputs=padded, outputs=[list(r) + [r[-1]] * pad for r in results],
               within=within)

    inf, nan, largest = 0x7F800000, 0x7FFFFFFF, 0x7F7FFFFF
    minus = 0x80000000
    # Exact are only the inputs of the ISA's tables; elsewhere it bounds the error, by 2^-22 relative (ex2) or absolute (lg2).
    case("ex2_special", "Floating point: ex2.approx.ftz.f32, table of special inputs", "ex2", [[inf, inf | minus, 0, minus, 1, 1 | minus]],
         [[inf, 0, f32(1.0), f32(1.0), f32(1.0), f32(1.0)]])
    xs = [-126.0, -20.5, -1.0, -0.3, 0.1, 0.5, 1.0, 3.0, 12.75, 20.0]
    case("ex2", "Floating point: ex2.approx.ftz.f32", "ex2", [[f32(x) for x in xs]], [[f32(2.0**x) for x in xs]], 2.0**-21)
    case("lg2_special", "Floating point: lg2.approx.ftz.f32, table of special inputs", "lg2", [[inf, 0, minus, 1]],
         [[inf, inf | minus, inf | minus, inf | minus]])
    xs = [2.0**-126, 0.001, 0.5, 0.9, 1.0, 1.1, 2.0, 3.0, 1024.0, 1e30]
    case("lg2", "Floating point: lg2.approx.ftz.f32", "lg2", [[f32(x) for x in xs]], [[f32(math.log2(x)) for x in xs]], 2.0**-21)
    case("max", "Floating point: max.f32 gives the operand that is not NaN", "max_f32",
         [[f32(1.0), nan, f32(-3.0), minus | inf, inf], [f32(2.0), f32(5.0), nan, f32(-1.0), f32(7.0)]],
         [[f32(2.0), f32(5.0), f32(-3.0), f32(-1.0), inf]])
    case("ceil", "Conversion: cvt.rpi.f32.f32", "ceil_f32", [[f32(x) for x in (0.25, -0.25, 2.0, -2.5, 1e10)]],
         [[f32(1.0), minus, f32(2.0), f32(-2.0), f32(1e10)]])
    tiny = 2.0**-12
    case("fma", "Floating point: fma.rn.f32 rounds once", "fma_rn",
         [[f32(1 + tiny), f32(2.0), f32(1e30)], [f32(1 + tiny), f32(3.0), f32(1e30)], [f32(-(1 + 2 * tiny)), f32(4.0), f32(1.0)]],
         [[f32(tiny * tiny), f32(10.0), inf]])
    # Separately rounded, the square loses its last term: the sum is 0 and not tiny squared.
    case("mul_add", "Floating point: mul.rn.f32, add.rn.f32; a program must not fuse them", "mul_add",
         [[f32(1 + tiny), f32(3.0)], [f32(1 + tiny), f32(7.0)], [f32(-(1 + 2 * tiny)), f32(0.5)]], [[0, f32(21.5)]])
    case("rcp", "Floating point: rcp.rn.f32", "rcp_rn", [[f32(x) for x in (1.0, 2.0, -4.0, 3.0)] + [0, minus, inf]],
         [[f32(1.0), f32(0.5), f32(-0.25), 0x3EAAAAAB, inf, inf | minus, 0]])

    selects = [0x0000, 0x3210, 0x7654, 0x0246, 0x7531, 0x4703]
    eight = [0x10, 0x21, 0x32, 0xC3, 0x54, 0xE5, 0x76, 0x87]
    case("byte_permute", "Data movement: prmt.b32, default mode", "byte_permute",
         [[0xC3322110] * len(selects), [0x8776E554] * len(selects), selects],
         [[sum(eight[s >> 4 * i & 7] << 8 * i for i in range(4)) for s in selects]])

    half_ulp = 2.0**-8  # of bf16 at 1
    numbers = [1.0, -2.0, 1 + half_ulp, 1 + 3 * half_ulp, 1 + half_ulp * 1.5, 2.0**-130, -0.0, 3.0e38]
    pairs = list(zip(numbers, numbers[1:] + numbers[:1]))
    case("pack_bf16", "Conversion: cvt.rn.bf16x2.f32, to nearest even", "pack_bf16",
         [[f32(x) for x, _ in pairs] + [nan, inf, largest], [f32(y) for _, y in pairs] + [f32(1.0), minus | inf, f32(0.0)]],
         [[low_high(bf16(x), bf16(y)) for x, y in pairs] + [low_high(0x7FFF, 0x3F80), low_high(0x7F80, 0xFF80), low_high(0x7F80, 0)]])
    half_ulp = 2.0**-11
    numbers = [1.0, -2.0, 1 + half_ulp, 1 + 3 * half_ulp, 65504.0, 65519.0, 2.0**-24, 2.0**-25, 3 * 2.0**-25, 2.0**-14 - 2.0**-26, 6.1e-5, -0.0]
    pairs = list(zip(numbers, numbers[1:] + numbers[:1]))
    case("pack_f16", "Conversion: cvt.rn.f16x2.f32, to nearest even, subnormals kept", "pack_f16",
         [[f32(x) for x, _ in pairs] + [nan, f32(65520.0), f32(-1e9)], [f32(y) for _, y in pairs] + [f32(1.0), inf, f32(0.0)]],
         [[low_high(f16(x), f16(y)) for x, y in pairs] + [low_high(0x7FFF, 0x3C00), low_high(0x7C00, 0x7C00), low_high(0xFC00, 0)]])
    halves = [0, 0x8000, 1, 0x3FF, 0x400, 0x3C00, 0xC000, 0x7BFF, 0x7C00, 0xFC00, 0x3555, 0x8001]

    def widened(h):
        return f32(struct.unpack("<e", struct.pack("<H", h))[0])

    case("halves_f16", "Conversion: cvt.f32.f16", "halves_f16", [[low_high(h, g) for h, g in zip(halves, halves[1:] + halves[:1])]],
         [[widened(h) for h in halves], [widened(g) for g in halves[1:] + halves[:1]]])
    case("halves_bf16", "bf16 is the upper half of f32", "halves_bf16", [[low_high(h, h ^ 0x1234) for h in halves]],
         [[h << 16 for h in halves], [(h ^ 0x1234) << 16 for h in halves]])
    f.write()


# ---- Copies and mbarriers ----

INIT, ARRIVE, EXPECT, COPY, WAIT = range(5)  # operations of the kernel mbar_ops: operation, operand


def copies():
    f = File("copies.txt", "Asynchronous copies and mbarriers.")
    lanes = range(32)
    # Each lane copies four times 16 bytes, a group each, and reads back what must have arrived when at most `pending` are under way.
    data = [0x5000 + i for i in range(32 * 16)]
    for pending in (0, 1, 2, 3):
        arrived = 4 - pending
        f.case("cp_async_wait_%d" % pending, "Data movement: cp.async.wait_group waits until at most N of the most recent groups are pending",
               "cp_async_wait_%d" % pending, 32, device=data,
               outputs=[[data[l * 16 + 4 * g] if g < arrived else "-" for l in lanes] for g in range(4)])
    f.case("cp_async_empty_groups", "Data movement: cp.async.commit_group may commit an empty group, which counts", "cp_async_empty", 32,
           device=data, outputs=[[data[l * 4] for l in lanes]])
    f.case("cp_async_or_zero", "Data movement: cp.async with src-size less than cp-size writes zeros", "cp_async_or_zero", 32, device=data,
           inputs=[[l % 3 != 0 for l in lanes]],
           after=[(0, [data[l * 4 + i] if l % 3 else 0 for l in lanes for i in range(4)])])
    for size, to, source in ((16, 0, 0), (16, 48, 32), (512, 16, 64), (1024, 0, 16)):
        f.case("bulk_%d_from_%d_to_%d" % (size, source, to), "Data movement: cp.async.bulk, completion by mbarrier complete_tx", "bulk_copy", 32,
               arg=[to, source, size], device=data, after=[(to, data[source // 4 : (source + size) // 4])])

    phases = "Parallel synchronization: mbarrier, phase completion, tx-count; mbarrier.try_wait.parity"
    ordered = (
        ("previous_phase", [INIT, 1, WAIT, 1]),
        ("one_arrival", [INIT, 1, ARRIVE, 0, WAIT, 0]),
        ("two_phases", [INIT, 1, ARRIVE, 0, WAIT, 0, ARRIVE, 0, WAIT, 1]),
        ("three_arrivals", [INIT, 3, ARRIVE, 0, ARRIVE, 0, ARRIVE, 0, WAIT, 0]),
        ("arrivals_again", [INIT, 2, ARRIVE, 0, ARRIVE, 0, ARRIVE, 0, ARRIVE, 0, WAIT, 1]),
        ("bytes", [INIT, 1, EXPECT, 256, COPY, 256, WAIT, 0]),
        ("bytes_of_two_copies", [INIT, 1, EXPECT, 288, COPY, 256, COPY, 32, WAIT, 0]),
        ("copy_before_expectation", [INIT, 1, COPY, 64, EXPECT, 64, WAIT, 0]),
        ("bytes_and_arrivals", [INIT, 2, EXPECT, 128, COPY, 128, ARRIVE, 0, WAIT, 0]),
    )
    for name, ops in ordered:
        f.case("mbar_" + name, phases, "mbar_ops", 32, arg=ops, device=data, outputs=[[len(ops) // 2] + ["-"] * 31])
    blocked = (
        ("no_arrival", [INIT, 1, WAIT, 0]),
        ("one_arrival_of_two", [INIT, 2, ARRIVE, 0, WAIT, 0]),
        ("next_phase", [INIT, 1, ARRIVE, 0, WAIT, 1]),
        ("bytes_missing", [INIT, 1, EXPECT, 256, COPY, 128, WAIT, 0]),
        ("arrival_missing", [INIT, 2, EXPECT, 128, COPY, 128, WAIT, 0]),
    )
    for name, ops in blocked:
        f.case("mbar_blocks_" + name, phases, "mbar_ops", 32, arg=ops, device=data, blocks=True)
    f.write()


if __name__ == "__main__":
    warp_matrices()
    warp_groups()
    exchange()
    arithmetic()
    copies()
