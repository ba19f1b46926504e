/*
 * Matrix products of a warp group: wgmma.mma_async, its fence, commit and wait.
 *
 * A product is computed when the last of the four warps issues it, but its sums are stored at the wait: until then the
 * accumulators hold a NaN that other primitives recognise. From the issue to the wait the 16-byte units of the operands count
 * as being read: each lane stands for some of those that its warp reads. Layouts are those of the PTX ISA, section
 * "Asynchronous Warpgroup Level Matrix Instructions" (register fragments, shared memory matrix layout, matrix descriptor
 * format).
 */
#include "state.h"

namespace emu {
namespace {

struct layout {                            /* what a descriptor says */
    u32 start, leading, stride, row_bytes; /* row_bytes: 128 or 64 by the swizzle */
    bool sound;                            /* no reserved bits, and a swizzle that kernels use */
};

layout decode(u64 descriptor) {
    layout l;
    l.start = (u32)(descriptor & 0x3fff) << 4;
    l.leading = (u32)(descriptor >> 16 & 0x3fff) << 4;
    l.stride = (u32)(descriptor >> 32 & 0x3fff) << 4;
    l.row_bytes = descriptor >> 62 == 1 ? 128 : 64;
    l.sound = !(descriptor & ~(u64)0xc0003fff3fff3fff) && (descriptor >> 62 == 1 || descriptor >> 62 == 2);
    return l;
}

/* Where the unit of 8 elements that begins at (mn, k) lies. They run along k if K-major, along mn if MN-major. */
u32 unit_at(const layout &l, major order, u32 mn, u32 k) {
    const u32 per_row = l.row_bytes / 2;
    const u32 at =
        l.start + (order == K_MAJOR ? mn / 8 * l.stride + mn % 8 * l.row_bytes + k * 2
                                    : mn / per_row * l.leading + k / 8 * l.stride + k % 8 * l.row_bytes + mn % per_row * 2);
    return at ^ (at >> 7 & (l.row_bytes / 16 - 1)) << 4;
}

/* The i-th of the 2 n units of an operand with n rows (or columns) in m (or n), and 16 in k. */
void unit_index(major order, u32 i, u32 &mn, u32 &k) {
    mn = order == K_MAJOR ? i / 2 : i / 16 * 8;
    k = order == K_MAJOR ? i % 2 * 8 : i % 16;
}

/* Atoms begin at multiples of their size, and an operand that starts within a row does not go beyond that row's end. */
bool well_placed(const layout &l, major order, u32 n) {
    const u32 in_atom = l.start % (8 * l.row_bytes);
    if (!l.sound || in_atom >= l.row_bytes) return false;
    if (order == K_MAJOR) return in_atom % 32 == 0;
    return in_atom == 0 || in_atom + 2 * n <= l.row_bytes;
}

struct product_lane {
    float (*d)[4];
    int n;
    operands of;
    bool add;
    element e;
    place at;
};

float widen(u16 v, element e) { return e == F16 ? half_to_float(v) : as_float((u32)v << 16); }

/* The operand as [mn][16]. */
void gather(u64 descriptor, major order, u32 n, element e, std::vector<float> &to) {
    const layout l = decode(descriptor);
    to.assign(n * 16, 0);
    for (u32 i = 0; i < 2 * n; i++) {
        u32 mn, k;
        unit_index(order, i, mn, k);
        const u32 at = unit_at(l, order, mn, k);
        if ((u64)at + 16 > own->shared.size()) continue; /* reported by the thread that stands for it */
        u16 v[8];
        memcpy(v, &own->shared[at], 16);
        for (u32 j = 0; j < 8; j++) to[order == K_MAJOR ? mn * 16 + k + j : (mn + j) * 16 + k] = widen(v[j], e);
    }
}

void gather_registers(product_lane **lanes, std::vector<float> &to) {
    to.assign(64 * 16, 0);
    for (u32 t = 0; t < GROUP; t++)
        for (u32 i = 0; i < 8; i++) {
            const u32 row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, k = t % 4 * 2 + i % 2 + i / 4 * 8;
            to[row * 16 + k] = widen((u16)(lanes[t]->of.registers[i / 2] >> i % 2 * 16), lanes[t]->e);
        }
}

/* C [64][n] = A [64][16] B, B as [n][16]; 8 columns at a time. Sums are in f32 with k ascending, and added to D last. */
void multiply_matrices(const std::vector<float> &a, const std::vector<float> &b, u32 n, std::vector<float> &c) {
    for (u32 first = 0; first < n; first += 8) {
        floats8 columns[16];
        for (u32 k = 0; k < 16; k++)
            for (u32 i = 0; i < 8; i++) columns[k][i] = b[(first + i) * 16 + k];
        for (u32 m = 0; m < 64; m++) {
            floats8 sum = {};
            for (u32 k = 0; k < 16; k++) sum += a[m * 16 + k] * columns[k];
            memcpy(&c[m * n + first], &sum, sizeof sum);
        }
    }
}

/* A unit is readable now, and being read from now on. */
void begin_reading(const layout &l, major order, u32 i, read_operands &reading, place at) {
    u32 mn, k;
    unit_index(order, i, mn, k);
    const u32 unit = unit_at(l, order, mn, k);
    if (!check_shared(unit, 16, 16, at)) return;
    check_proxy(unit, 16, at);
    check_read(unit, 16, at);
    for (u32 c = unit / 4; c < unit / 4 + 4; c++) own->cells[c].operands++;
    reading.units.push_back(unit);
}

/* A warp reads its own 16 rows of A, which are 32 units with consecutive indices, and all of B. */
void begin_reading(const product_lane &call, u32 thread, read_operands &reading) {
    if (!call.of.registers) begin_reading(decode(call.of.a), K_MAJOR, thread, reading, call.at);
    const layout b = decode(call.of.b);
    for (u32 i = thread % WARP; i < 2 * (u32)call.n; i += WARP) begin_reading(b, call.of.order, i, reading, call.at);
}

accumulator &begin_sums(fiber &f, const product_lane &call) {
    const size_t n = (size_t)call.n / 2;
    float *d = &call.d[0][0];
    for (accumulator &a : f.accumulators) {
        if (a.d != call.d) continue;
        if (a.sums.size() != n) fail(kind::accumulator_early, call.at, "an accumulator with another N");
        for (size_t i = 0; i < n; i++)
            if (!is_poison(d[i])) fail(kind::accumulator_early, call.at, "changed while a wgmma was under way");
        if (!call.add) std::fill(a.sums.begin(), a.sums.end(), 0.0f);
        a.sums.resize(n);
        return a;
    }
    f.accumulators.push_back({call.d, std::vector<float>(n, 0), 0, call.at});
    accumulator &a = f.accumulators.back();
    for (size_t i = 0; i < n; i++) {
        if (call.add) a.sums[i] = watch(d[i], call.at);
        d[i] = as_float(poison);
    }
    return a;
}

void product(void **args) {
    product_lane **lanes = reinterpret_cast<product_lane **>(args);
    const product_lane &call = *lanes[0];
    const u32 n = (u32)call.n;
    fiber *const caller = self;
    fiber *threads = &own->fibers[(size_t)self->thread / GROUP * GROUP];
    const bool a_fits = call.of.registers || well_placed(decode(call.of.a), K_MAJOR, 64);
    if (!a_fits || !well_placed(decode(call.of.b), call.of.order, n)) fail(kind::descriptor, call.at, "malformed or misplaced");

    std::vector<float> a, b, c(64 * n);
    if (call.of.registers)
        gather_registers(lanes, a);
    else
        gather(call.of.a, K_MAJOR, 64, call.e, a);
    gather(call.of.b, call.of.order, n, call.e, b);
    multiply_matrices(a, b, n, c);

    for (u32 t = 0; t < GROUP; t++) {
        const product_lane &lane = *lanes[t];
        fiber &f = threads[t];
        self = &f;
        if (lane.of.a != call.of.a || lane.of.b != call.of.b || lane.add != call.add)
            fail(kind::descriptor, lane.at, "threads of the warp group differ");
        if (f.open_group != caller->open_group) fail(kind::divergent, lane.at, "warps have committed different groups");
        read_operands reading = {f.open_group, {}, lane.of.registers, {}, lane.at};
        if (lane.of.registers) memcpy(reading.values, lane.of.registers, sizeof reading.values);
        begin_reading(lane, t, reading);
        f.operands.push_back(std::move(reading));
        accumulator &sums = begin_sums(f, lane);
        sums.group = f.open_group;
        for (u32 i = 0; i < n / 2; i++) {
            const u32 row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
            sums.sums[i] += c[row * n + column];
        }
    }
    self = caller;
    tally(&counts::wgmma);
}

/* The registers may lie in a scope that has ended, which is an error of the kernel and found here. */
__attribute__((no_sanitize("address"))) bool changed(const read_operands &o) {
    for (int i = 0; i < 4; i++)
        if (reinterpret_cast<const volatile u32 *>(o.registers)[i] != o.values[i]) return true;
    return false;
}

void finish_reading(const read_operands &o) {
    for (const u32 unit : o.units) {
        for (u32 c = unit / 4; c < unit / 4 + 4; c++) own->cells[c].operands--;
        note_read(unit, 16);
    }
    if (o.registers && changed(o)) fail(kind::accumulator_early, o.at, "A's registers changed");
}

void store_sums(const accumulator &a, float (*const *named)[4], int n_named, place at) {
    float *d = &a.d[0][0];
    if (std::find(named, named + n_named, a.d) == named + n_named)
        fail(kind::accumulator_unnamed, at, "of line " + std::to_string(a.at.line));
    for (size_t i = 0; i < a.sums.size(); i++) {
        if (as_bits(d[i]) != poison)
            fail(kind::accumulator_early, a.at, "changed before the wait in line " + std::to_string(at.line));
        d[i] = a.sums[i];
    }
}

void nothing(void **) {}

} // namespace

void report_poison(place at) {
    if (self) fail(kind::accumulator_early, at, "used");
}

void group_multiply(float (*d)[4], int n, const operands &of, bool add, element e, place at) {
    need_sm(90, at);
    if (!self->group_fenced) fail(kind::wgmma_fence, at);
    product_lane me = {d, n, of, add, e, at};
    meet_group("wgmma", at, &me, product);
}

void group_fence(place at) {
    need_sm(90, at);
    meet("wgmma_fence", at, nullptr, nothing);
    self->group_fenced = true;
}

void wgmma_commit(place at) {
    need_sm(90, at);
    meet("wgmma_commit", at, nullptr, nothing);
    self->open_group++;
}

void group_wait(int pending, float (*const *named)[4], int n_named, place at) {
    need_sm(90, at);
    meet("wgmma_wait", at, nullptr, nothing);
    self->group_fenced = false;
    const auto complete = [pending](u64 group) { return group + (u64)pending < self->open_group; };
    for (const read_operands &o : self->operands)
        if (complete(o.group)) finish_reading(o);
    for (const accumulator &a : self->accumulators)
        if (complete(a.group)) store_sums(a, named, n_named, at);
    auto &operands = self->operands;
    operands.erase(std::remove_if(operands.begin(), operands.end(), [&](auto &o) { return complete(o.group); }),
                   operands.end());
    auto &sums = self->accumulators;
    sums.erase(std::remove_if(sums.begin(), sums.end(), [&](auto &a) { return complete(a.group); }), sums.end());
}

void end_wgmmas() {
    for (const accumulator &a : self->accumulators) fail(kind::copies_left, a.at, "wgmma without a wait");
}

} // namespace emu
