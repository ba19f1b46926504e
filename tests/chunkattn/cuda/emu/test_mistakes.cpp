/*
 * Kernels with one mistake each: the emulation names the mistake's kind and line under every order of threads, and reports
 * nothing where the mistake is mended.
 *
 * A kernel makes its mistake if `wrong`. The line at which it is found bears the comment "found" in this file.
 */
#include "support.h"

#include "chunkattn/cuda/primitives.h"

#include <algorithm>

using emu::kind;

namespace {

/* Device memory of 4096 words each; `in` holds 0, 1, 2, .., `counter` zeros. */
struct args {
    const u32 *in;
    u32 *out, *counter;
    bool wrong;
};
enum { WORDS = 4096 };

struct launch {
    int blocks, threads;
    bool every_seed = true; /* finds the mistake; otherwise some do */
};
constexpr launch ONE_WARP = {1, 32}, TWO_WARPS = {1, 64}, THREE_WARPS = {1, 96}, WARP_GROUP = {1, 128}, THREE_GROUPS = {1, 384},
                 TWO_BLOCKS = {2, 32}, THREE_BLOCKS = {3, 32}, FOUR_BLOCKS = {4, 32};
constexpr launch sometimes(launch l) { return {l.blocks, l.threads, false}; }

struct mistake {
    const char *name;
    void (*kernel)(const args &);
    launch of;
    std::vector<kind> kinds; /* one of them, at the line that is marked */
};
std::vector<mistake> mistakes;
/* Begins a kernel and lists it: MISTAKE(name, launch, kinds). */
#define MISTAKE(name, of, ...)                                                                                                 \
    void name(const args &a);                                                                                                  \
    [[maybe_unused]] const bool name##_listed = (mistakes.push_back({#name, name, of, {__VA_ARGS__}}), true);                  \
    void name(const args &a)

int lane() { return thread_index() % 32; }
int warp() { return thread_index() / 32; }
u32 word(int i) { return shared_base() + (u32)i * 4; }
void keep(const args &a, u32 v) { st_global(a.out + block_index() * 1024 + thread_index(), v); }

/* ---- Order in shared memory ---- */

MISTAKE(no_sync_warp, ONE_WARP, kind::shared_read_race, kind::unwritten) {
    st_shared(word(thread_index()), 1u);
    if (!a.wrong) sync_warp();
    keep(a, ld_shared<u32>(word(thread_index() ^ 1))); /* found */
}
MISTAKE(a_shuffle_for_a_barrier, ONE_WARP, kind::shared_read_race) {
    st_shared(word(thread_index()), 1u);
    a.wrong ? (void)shfl_xor(1, 1) : sync_warp();
    keep(a, ld_shared<u32>(word(thread_index() ^ 1))); /* found */
}
MISTAKE(no_block_barrier, TWO_WARPS, kind::shared_read_race, kind::unwritten) {
    st_shared(word(thread_index()), 1u);
    a.wrong ? sync_warp() : sync_block();
    keep(a, ld_shared<u32>(word(thread_index() ^ 32))); /* found */
}
MISTAKE(no_barrier_before_overwriting, TWO_WARPS, kind::shared_overwrite_race) {
    st_shared(word(thread_index()), 1u);
    sync_block();
    keep(a, ld_shared<u32>(word(thread_index() ^ 32)));
    if (!a.wrong) sync_block();
    st_shared(word(thread_index()), 2u); /* found */
}
MISTAKE(one_of_few_readers, THREE_WARPS, kind::shared_overwrite_race,
        kind::shared_read_race) { /* a thread of each warp reads; the writer has met all but that of warp 1 since then */
    if (thread_index() == 0) st_shared(word(0), 1u);
    sync_block();
    if (lane() == 0) keep(a, ld_shared<u32>(word(0))); /* or here */
    if (warp() != 1) sync_named(1, 64);
    if (!a.wrong) sync_block();
    if (thread_index() == 64) st_shared(word(0), 2u); /* found */
}
MISTAKE(one_of_many_readers, THREE_WARPS, kind::shared_overwrite_race,
        kind::shared_read_race) { /* all read; the writer has met all but warp 1 since then */
    if (thread_index() == 0) st_shared(word(0), 1u);
    sync_block();
    keep(a, ld_shared<u32>(word(0))); /* or here */
    if (warp() != 1) sync_named(1, 64);
    if (!a.wrong) sync_block();
    if (thread_index() == 64) st_shared(word(0), 2u); /* found */
}
MISTAKE(two_writers, TWO_WARPS, kind::shared_write_race) {
    const int i = a.wrong ? thread_index() % 32 : thread_index();
    st_shared(word(i), 1u); /* found */
}

/* ---- Order in device memory ---- */

/* Blocks 1 and 2 arrive after they read, block 0 does not; the last to arrive writes what all read. */
MISTAKE(a_reader_that_does_not_arrive, THREE_BLOCKS, kind::device_write_race, kind::device_read_race) {
    u32 *p = a.counter + 64 + lane();
    keep(a, ld_global(p)); /* found */
    if (a.wrong && block_index() == 0) return;
    sync_warp();
    u32 before = 0;
    if (lane() == 0) before = atomic_add_acq_rel(a.counter, 1);
    sync_warp();
    if (shfl(before, 0) + 1 == (u32)block_count() - (a.wrong ? 1 : 0)) st_global(p, 1u); /* or here */
}

MISTAKE(relaxed_arrival, FOUR_BLOCKS, kind::device_read_race) {
    st_global(a.out + block_index() * 32 + lane(), 1u);
    sync_warp();
    u32 before = 0;
    if (lane() == 0) before = a.wrong ? atomic_add_relaxed(a.counter, 1) : atomic_add_acq_rel(a.counter, 1);
    sync_warp();
    if (shfl(before, 0) + 1 < (u32)block_count()) return;
    u32 sum = 0;
    for (int b = 0; b < block_count(); b++) sum += ld_global(a.out + b * 32 + lane()); /* found */
    st_global(a.out + 2048 + lane(), sum);
}
MISTAKE(no_barrier_before_the_arrival, FOUR_BLOCKS,
        kind::device_read_race) { /* lane 0 has not met the others, whose writes it is to publish */
    st_global(a.out + block_index() * 32 + lane(), 1u);
    if (!a.wrong) sync_warp();
    u32 before = 0;
    if (lane() == 0) before = atomic_add_acq_rel(a.counter, 1);
    sync_warp();
    if (shfl(before, 0) + 1 < (u32)block_count()) return;
    for (int b = 0; b < block_count(); b++) ld_global(a.out + b * 32 + lane()); /* found */
}
MISTAKE(blocks_write_the_same, TWO_BLOCKS, kind::device_write_race) {
    st_global(a.out + lane() + (a.wrong ? 0 : block_index() * 32), 1u); /* found */
}
MISTAKE(a_block_overwrites_what_another_reads, TWO_BLOCKS, kind::device_write_race, kind::device_read_race) {
    if (block_index() == 0 || !a.wrong)
        keep(a, ld_global(a.counter + block_index() * 32 + lane())); /* found */
    else
        st_global(a.counter + lane(), 1u); /* or here */
}
MISTAKE(device_memory_without_a_barrier, TWO_WARPS, kind::device_read_race) {
    st_global(a.out + thread_index(), 1u);
    if (!a.wrong) sync_block();
    ld_global(a.out + (thread_index() ^ 32)); /* found */
}

/* ---- Addresses ---- */

MISTAKE(beyond_the_list, ONE_WARP, kind::device_bounds) {
    keep(a, ld_global(a.in + WORDS - 32 + thread_index() + (a.wrong ? 1 : 0))); /* found */
}
MISTAKE(beyond_shared_memory, ONE_WARP, kind::shared_bounds) {
    st_shared(word(1024 - 32 + thread_index() + (a.wrong ? 1 : 0)), 1u); /* found */
}
MISTAKE(misaligned_copy, ONE_WARP, kind::misaligned) {
    cp_async16(word(4 * thread_index()), a.in + 4 * thread_index() + (a.wrong ? 2 : 0)); /* found */
    cp_async_commit();
    cp_async_wait<0>();
}
MISTAKE(nobody_wrote, ONE_WARP, kind::unwritten) {
    if (thread_index() < (a.wrong ? 31 : 32)) st_shared(word(thread_index()), 1u);
    sync_warp();
    keep(a, ld_shared<u32>(word(thread_index()))); /* found */
}
void forgotten_swizzle(const args &a) { /* only wavefronts tell */
    for (int i = 0; i < 8; i++) {
        const int unit = 32 * i + thread_index(), row = unit / 8, place = unit % 8 ^ row % 8;
        st_shared(word(4 * (row * 8 + place)), f4{});
    }
    sync_warp();
    u32 r[4];
    const int row = lane() % 8 + lane() / 16 * 8, unit = lane() / 8 % 2;
    ldmatrix(r, word(4 * (row * 8 + (a.wrong ? unit : unit ^ row % 8))));
    keep(a, r[0]);
}

/* ---- Collective operations ---- */

MISTAKE(divergent_shuffle, ONE_WARP, kind::divergent) {
    u32 v = (u32)lane();
    if (!a.wrong || lane() < 16) v += shfl_xor(v, 1); /* found */
    v += shfl_xor(v, 2);                              /* or here */
    keep(a, v);
}
MISTAKE(divergent_barrier, ONE_WARP, kind::divergent) {
    if (a.wrong && lane() == 3) {
        sync_block(); /* found */
        keep(a, 3);
        return;
    }
    sync_block(); /* or here */
}
MISTAKE(a_warp_leaves_out_a_barrier, THREE_WARPS, kind::deadlock) {
    if (!a.wrong || warp() != 1) sync_block(); /* found */
}
MISTAKE(lanes_end_early, ONE_WARP, kind::lanes_ended) {
    if (a.wrong && lane() > 20) return;
    keep(a, any_sync(true)); /* found */
}
MISTAKE(lanes_ended_before, ONE_WARP, kind::lanes_ended) { /* the others come to the vote after that */
    if (thread_index() == 0) mbar_init(word(512), 11);
    sync_warp();
    if (lane() > 20) {
        mbar_arrive(word(512));
        if (a.wrong) return;
    }
    mbar_wait(word(512), 0);
    for (int i = 0; i < 20; i++) mbar_wait(word(512), 0);
    keep(a, any_sync(true)); /* found */
}
MISTAKE(barrier_counts_differ, TWO_WARPS, kind::barrier_misuse, kind::deadlock) {
    sync_named(1, warp() == 0 || !a.wrong ? 64 : 32); /* found */
}
MISTAKE(no_multiple_of_a_warp, TWO_WARPS, kind::barrier_misuse) { sync_named(1, a.wrong ? 40 : 64); /* found */ }
MISTAKE(sync_for_a_reduction, TWO_WARPS, kind::barrier_misuse) {
    if (warp() == 1 && a.wrong)
        sync_named_or(1, 64, true); /* found */
    else
        sync_named(1, 64); /* or here */
}

/* ---- cp.async ---- */

MISTAKE(wait_one_group_short, ONE_WARP, kind::copy_under_way) {
    for (int i = 0; i < 2; i++) {
        cp_async16(word(4 * (32 * i + lane())), a.in + 4 * (32 * i + lane()));
        cp_async_commit();
    }
    a.wrong ? cp_async_wait<1>() : cp_async_wait<0>();
    sync_warp();
    keep(a, ld_shared<u32>(word(4 * (32 + lane() / 2)))); /* found */
    cp_async_wait<0>();
}
MISTAKE(no_commit, ONE_WARP, kind::copy_under_way) {
    cp_async16(word(4 * lane()), a.in + 4 * lane());
    if (!a.wrong) cp_async_commit();
    cp_async_wait<0>();
    keep(a, ld_shared<u32>(word(4 * lane()))); /* found */
    cp_async_commit();
    cp_async_wait<0>();
}
MISTAKE(no_barrier_after_the_wait, ONE_WARP, kind::shared_read_race, kind::copy_under_way) {
    cp_async16(word(4 * lane()), a.in + 4 * lane());
    cp_async_commit();
    cp_async_wait<0>();
    if (!a.wrong) sync_warp();
    keep(a, ld_shared<u32>(word(4 * (lane() ^ 1)))); /* found */
}
MISTAKE(the_ring_is_refilled_too_early, ONE_WARP, kind::shared_overwrite_race) {
    for (int i = 0; i < 4; i++) {
        cp_async16(word(4 * lane()), a.in + 4 * (32 * i + lane())); /* found */
        cp_async_commit();
        cp_async_wait<0>();
        sync_warp();
        keep(a, ld_shared<u32>(word(4 * (lane() ^ 1))));
        if (!a.wrong) sync_warp();
    }
}
MISTAKE(copies_at_the_end, ONE_WARP, kind::copies_left) {
    cp_async16(word(4 * lane()), a.in + 4 * lane()); /* found */
    cp_async_commit();
    if (!a.wrong) cp_async_wait<0>();
}

/* ---- mbarriers and bulk copies: data at word 0, the mbarrier at word 512 ---- */

void start_mbar(u32 arrivals) {
    if (thread_index() == 0) {
        mbar_init(word(512), arrivals);
        mbar_fence_init();
    }
    sync_block();
}
/* Copy 128 bytes, which the mbarrier expects. Errors are reported for the line of the call. */
void request(u32 to, const u32 *from, emu::place at = {__builtin_FILE(), __builtin_LINE()}) {
    mbar_arrive_expect(word(512), 128);
    ::bulk_copy(to, from, 128, word(512), at);
}
MISTAKE(no_wait_for_the_copy, ONE_WARP, kind::copy_under_way, kind::copy_not_awaited) {
    start_mbar(1);
    if (thread_index() == 0) request(word(0), a.in);
    sync_warp();
    if (!a.wrong || lane() != 7) mbar_wait(word(512), 0);
    keep(a, ld_shared<u32>(word(lane()))); /* found */
    sync_block();
    mbar_wait(word(512), 0);
}
MISTAKE(parity_does_not_flip, ONE_WARP, kind::copy_under_way, kind::copy_not_awaited) {
    start_mbar(1);
    for (int i = 0; i < 4; i++) {
        if (thread_index() == 0) request(word(32 * i), a.in + 32 * i);
        mbar_wait(word(512), a.wrong ? 0 : i % 2);
        keep(a, ld_shared<u32>(word(32 * i + lane()))); /* found */
        sync_block();
        mbar_wait(word(512), i % 2);
    }
}
MISTAKE(more_bytes_than_expected, ONE_WARP, kind::mbar_bytes, kind::copies_left) {
    start_mbar(1);
    if (thread_index() == 0) {
        mbar_arrive_expect(word(512), 2 * 128);
        bulk_copy(word(0), a.in, 128, word(512));                  /* found */
        bulk_copy(word(32), a.in, a.wrong ? 256 : 128, word(512)); /* found */
    }
    mbar_wait(word(512), 0);
}
MISTAKE(fewer_bytes_than_expected, ONE_WARP, kind::deadlock) {
    start_mbar(1);
    if (thread_index() == 0) {
        mbar_arrive_expect(word(512), a.wrong ? 256 : 128);
        bulk_copy(word(0), a.in, 128, word(512));
    }
    mbar_wait(word(512), 0); /* found */
}
MISTAKE(odd_size, ONE_WARP, kind::copy_size) {
    start_mbar(1);
    if (thread_index() == 0) {
        mbar_arrive_expect(word(512), 128);
        if (a.wrong) bulk_copy(word(32), a.in, 100, word(512)); /* found */
        bulk_copy(word(0), a.in, 128, word(512));
    }
    mbar_wait(word(512), 0);
}
MISTAKE(double_arrive, ONE_WARP, kind::mbar_arrivals) {
    start_mbar(1);
    if (thread_index() == 0) {
        mbar_arrive_expect(word(512), 128);
        if (a.wrong) mbar_arrive(word(512)); /* found */
        bulk_copy(word(0), a.in, 128, word(512));
    }
    mbar_wait(word(512), 0);
}
MISTAKE(arrival_missing, ONE_WARP, kind::deadlock) {
    start_mbar(32);
    if (!a.wrong || lane() != 9) mbar_arrive(word(512));
    mbar_wait(word(512), 0); /* found */
}
MISTAKE(a_write_after_the_arrival, TWO_WARPS, kind::shared_read_race, kind::unwritten,
        kind::shared_overwrite_race) { /* which does not publish it */
    start_mbar(1);
    if (warp() == 0) {
        if (!a.wrong && lane() == 0) st_shared(word(0), 1u);
        if (lane() == 0) mbar_arrive(word(512));
        if (a.wrong && lane() == 0) st_shared(word(0), 1u); /* found */
    } else {
        mbar_wait(word(512), 0);
        keep(a, ld_shared<u32>(word(0))); /* or here */
    }
}
MISTAKE(mbarrier_before_the_barrier, TWO_WARPS, kind::mbar_uninitialised) {
    if (thread_index() == 0) {
        mbar_init(word(512), 64);
        mbar_fence_init();
    }
    if (!a.wrong) sync_block();
    mbar_arrive(word(512)); /* found */
    sync_block();
    mbar_wait(word(512), 0);
}
MISTAKE(no_fence_after_init, ONE_WARP, kind::mbar_fence) {
    if (thread_index() == 0) {
        mbar_init(word(512), 1);
        if (!a.wrong) mbar_fence_init();
        request(word(0), a.in); /* found */
    }
    sync_block();
    mbar_wait(word(512), 0);
}
MISTAKE(data_over_an_mbarrier, ONE_WARP, kind::mbar_overwritten) {
    start_mbar(1);
    sync_block();
    if (lane() == 5) st_shared(word(a.wrong ? 513 : 514), 1u); /* found */
}
MISTAKE(data_over_a_stage_in_use, ONE_WARP,
        kind::shared_overwrite_race) { /* the producer does not wait until the stage is empty */
    start_mbar(1);
    for (int i = 0; i < 3; i++) {
        if (thread_index() == 0) request(word(0), a.in + 32 * i); /* found */
        mbar_wait(word(512), i % 2);
        keep(a, ld_shared<u32>(word(lane())));
        if (!a.wrong) sync_block();
    }
    sync_block();
}
MISTAKE(zeros_without_a_proxy_fence, ONE_WARP, kind::proxy_fence) { /* as a kernel that clears hidden slots of a stage */
    start_mbar(1);
    st_shared(word(lane()), 0u);
    if (!a.wrong) fence_async();
    sync_block();
    if (thread_index() == 0) request(word(0), a.in); /* found */
    mbar_wait(word(512), 0);
}
MISTAKE(a_phase_is_missed, sometimes(TWO_WARPS),
        kind::mbar_overrun) { /* two arrivals without asking whether the other warp saw the first */
    start_mbar(1);
    if (warp() == 0) {
        for (int i = 0; i < 200; i++) sync_warp(); /* the other warp comes first */
        if (lane() == 0) mbar_arrive(word(512));
        if (!a.wrong) sync_block();
        if (lane() == 0) mbar_arrive(word(512));
    } else {
        mbar_wait(word(512), 0); /* found */
        if (!a.wrong) sync_block();
    }
}
MISTAKE(the_wait_for_another_copy, sometimes(ONE_WARP), kind::copy_not_awaited) { /* whose data happens to be there, too */
    if (thread_index() == 0) {
        mbar_init(word(512), 1);
        mbar_init(word(514), 1);
        mbar_fence_init();
        for (int i = 0; i < 2; i++) {
            mbar_arrive_expect(word(512 + 2 * i), 128);
            bulk_copy(word(32 * i), a.in, 128, word(512 + 2 * i));
        }
    }
    sync_warp();
    mbar_wait(word(514), 0);
    if (!a.wrong) mbar_wait(word(512), 0);
    for (int i = 0; i < 200; i++) sync_warp();
    keep(a, ld_shared<u32>(word(lane()))); /* found */
    mbar_wait(word(512), 0);
}
MISTAKE(a_bulk_copy_at_the_end, ONE_WARP, kind::copies_left) {
    start_mbar(1);
    if (thread_index() == 0) request(word(0), a.in); /* found */
    if (!a.wrong) mbar_wait(word(512), 0);
}

/* ---- Warp groups: A at byte 0, 64 rows of 128; B at byte 8192, 32 rows; an mbarrier behind them ---- */

enum { B_AT = 8192, OPERANDS = (64 + 32) * 128 };
using sums = float[4][4];

void fill_operands(bool fence) {
    for (int i = thread_index(); i < OPERANDS / 16; i += 128) st_shared(shared_base() + (u32)i * 16, f4{});
    if (fence) fence_async();
    sync_block();
}
u64 operand_a() { return wgmma_descriptor<128>(shared_base(), 16, 1024); }
u64 operand_b() { return wgmma_descriptor<128>(shared_base() + B_AT, 16, 1024); }
void begin(sums &d) {
    fill_operands(true);
    wgmma_fence(d);
}
/* d += A B. Errors are reported for the line of the call. */
void multiply(sums &d, emu::place at = {__builtin_FILE(), __builtin_LINE()}) {
    wgmma<BF16, K_MAJOR>(d, operand_a(), operand_b(), true, at);
}
void finish(sums &d) {
    wgmma_commit();
    wgmma_wait<0>(d);
}
void keep_sums(const args &a, const sums &d) { st_global((float *)a.out + thread_index(), d[0][0]); }

MISTAKE(no_proxy_fence, WARP_GROUP, kind::proxy_fence) {
    fill_operands(!a.wrong);
    sums d = {};
    wgmma_fence(d);
    multiply(d); /* found */
    finish(d);
    keep_sums(a, d);
}
MISTAKE(proxy_fence_after_the_barrier, WARP_GROUP, kind::proxy_fence) { /* of warp 3 only, whose neighbours need it */
    for (int i = thread_index(); i < OPERANDS / 16; i += 128) st_shared(shared_base() + (u32)i * 16, f4{});
    if (!a.wrong || warp() != 3) fence_async();
    sync_block();
    if (a.wrong && warp() == 3) fence_async();
    sums d = {};
    wgmma_fence(d);
    multiply(d); /* found */
    finish(d);
}
MISTAKE(operand_by_cp_async, WARP_GROUP, kind::proxy_fence) { /* which is an ordinary write to wgmma */
    fill_operands(true);
    cp_async16(shared_base() + (u32)thread_index() * 16, a.in + 4 * thread_index());
    cp_async_commit();
    if (a.wrong) fence_async();
    cp_async_wait<0>();
    if (!a.wrong) fence_async();
    sync_block();
    sums d = {};
    wgmma_fence(d);
    multiply(d); /* found */
    finish(d);
}
MISTAKE(sums_before_the_wait, WARP_GROUP, kind::accumulator_early) {
    sums d = {};
    begin(d);
    multiply(d);
    wgmma_commit();
    if (!a.wrong) wgmma_wait<0>(d);
    const float twice = d[0][0] * 2;
    st_global((float *)a.out + thread_index(), twice); /* found */
    if (a.wrong) wgmma_wait<0>(d);
}
MISTAKE(maximum_before_the_wait, WARP_GROUP, kind::accumulator_early) { /* NaN would vanish in it */
    sums d = {};
    begin(d);
    multiply(d);
    wgmma_commit();
    if (!a.wrong) wgmma_wait<0>(d);
    st_global((float *)a.out + thread_index(), max_f32(d[0][0], 0)); /* found */
    if (a.wrong) wgmma_wait<0>(d);
}
MISTAKE(wait_one_wgmma_short, WARP_GROUP, kind::accumulator_early) {
    fill_operands(true);
    sums d = {}, e = {};
    wgmma_fence(d, e);
    multiply(d);
    wgmma_commit();
    multiply(e);
    wgmma_commit();
    wgmma_wait<1>(d);
    if (!a.wrong) wgmma_wait<0>(e);
    st_global((float *)a.out + thread_index(), d[0][0]);
    st_global((float *)a.out + thread_index(), e[0][0]); /* found */
    if (a.wrong) wgmma_wait<0>(e);
}
MISTAKE(sums_scaled_before_the_wait, WARP_GROUP, kind::accumulator_early) {
    sums d = {};
    begin(d);
    multiply(d); /* found */
    wgmma_commit();
    if (a.wrong) d[0][1] = 0;
    wgmma_wait<0>(d);
}
MISTAKE(registers_of_a_change, WARP_GROUP, kind::accumulator_early) {
    fill_operands(true);
    sums d = {};
    u32 p[4] = {1, 2, 3, 4};
    wgmma_fence(d, p);
    wgmma<BF16, K_MAJOR>(d, p, operand_b(), true); /* found */
    wgmma_commit();
    if (a.wrong) p[2] = 9;
    wgmma_wait<0>(d);
}
MISTAKE(operand_is_overwritten, WARP_GROUP, kind::operand_overwritten) {
    sums d = {};
    begin(d);
    multiply(d);
    wgmma_commit();
    if (!a.wrong) wgmma_wait<0>(d);
    sync_block();
    for (int i = 0; i < 4; i++) st_shared(shared_base() + (u32)(thread_index() + 128 * i) * 16, f4{}); /* found */
    if (a.wrong) wgmma_wait<0>(d);
}
MISTAKE(stage_is_refilled_before_all_warps_waited, WARP_GROUP, kind::operand_overwritten, kind::shared_overwrite_race) {
    sums d = {};
    begin(d);
    multiply(d);
    finish(d);
    if (!a.wrong) sync_block();
    if (warp() == 0) st_shared(shared_base() + B_AT + (u32)lane() * 16, f4{}); /* found */
}
MISTAKE(stage_is_refilled_after_all_warps_waited, sometimes(WARP_GROUP),
        kind::shared_overwrite_race) { /* but no barrier says so */
    sums d = {};
    begin(d);
    multiply(d);
    finish(d);
    for (int i = 0; i < 200 && warp() == 0; i++) sync_warp();
    if (!a.wrong) sync_block();
    if (warp() == 0) st_shared(shared_base() + B_AT + (u32)lane() * 16, f4{}); /* found */
}
MISTAKE(no_wgmma_fence_after_a_wait, WARP_GROUP, kind::wgmma_fence) {
    fill_operands(true);
    sums d = {};
    for (int i = 0; i < 2; i++) {
        if (!a.wrong || i == 0) wgmma_fence(d);
        multiply(d); /* found */
        wgmma_commit();
        wgmma_wait<0>(d);
        d[0][0] += 1;
    }
}
MISTAKE(no_wgmma_fence, WARP_GROUP, kind::wgmma_fence) {
    fill_operands(true);
    sums d = {};
    if (!a.wrong) wgmma_fence(d);
    multiply(d); /* found */
    finish(d);
}
MISTAKE(accumulator_is_not_named, WARP_GROUP, kind::accumulator_unnamed) {
    fill_operands(true);
    sums d = {}, e = {};
    wgmma_fence(d, e);
    multiply(d);
    multiply(e);
    wgmma_commit();
    if (a.wrong)
        wgmma_wait<0>(d); /* found */
    else
        wgmma_wait<0>(d, e);
}
MISTAKE(warps_commit_other_groups, WARP_GROUP, kind::divergent) { /* in the same lines */
    fill_operands(true);
    sums d = {};
    for (int i = 0; i < 2; i++) {
        wgmma_fence(d);
        multiply(d); /* found */
        if (!a.wrong || warp() == 0 || i == 1) wgmma_commit();
    }
    wgmma_wait<0>(d);
    keep_sums(a, d);
}
MISTAKE(operand_beside_its_atom, WARP_GROUP, kind::descriptor) {
    fill_operands(true);
    const u64 beside = wgmma_descriptor<128>(shared_base() + (a.wrong ? 128 : 32), 16, 1024);
    sums d = {};
    wgmma_fence(d);
    wgmma<BF16, K_MAJOR>(d, beside, operand_b(), true); /* found */
    finish(d);
}
MISTAKE(descriptors_differ, WARP_GROUP, kind::descriptor) {
    sums d = {};
    begin(d);
    const u32 step = a.wrong ? (u32)warp() % 2 * 32 : 0;
    wgmma<BF16, K_MAJOR>(d, wgmma_descriptor<128>(shared_base() + step, 16, 1024), operand_b(), true); /* found */
    finish(d);
}
MISTAKE(a_warp_skips_wgmma, WARP_GROUP, kind::deadlock) {
    sums d = {};
    begin(d);
    if (a.wrong && warp() == 2) return;
    multiply(d); /* found */
    finish(d);
}
MISTAKE(one_warp_waits_for_the_operands, WARP_GROUP,
        kind::copy_not_awaited) { /* the others begin with their rows before the copy is there */
    fill_operands(true);
    if (thread_index() == 0) {
        mbar_init(shared_base() + OPERANDS, 1);
        mbar_fence_init();
    }
    sync_block();
    if (thread_index() == 0) {
        mbar_arrive_expect(shared_base() + OPERANDS, 1024);
        bulk_copy(shared_base() + B_AT, a.in, 1024, shared_base() + OPERANDS);
    }
    if (warp() == 0 || !a.wrong) mbar_wait(shared_base() + OPERANDS, 0);
    sums d = {};
    wgmma_fence(d);
    multiply(d); /* found */
    finish(d);
}
MISTAKE(wgmma_without_a_wait, WARP_GROUP, kind::copies_left) {
    sums d = {};
    begin(d);
    multiply(d); /* found */
    wgmma_commit();
    if (!a.wrong) wgmma_wait<0>(d);
}

/* Three warp groups of 168 registers a thread, 504 together. */
MISTAKE(too_many_registers, THREE_GROUPS, kind::registers) {
    if (warp() < 4)
        registers_decrease<24>();
    else if (a.wrong)
        registers_increase<248>(); /* found */
    else
        registers_increase<240>();
}
MISTAKE(registers_in_the_wrong_direction, THREE_GROUPS, kind::registers) {
    if (a.wrong)
        registers_increase<160>(); /* found */
    else
        registers_decrease<160>();
}

/* ---- The test ---- */

/* The lines of the kernel that bear a comment. */
std::vector<int> marked_lines(const std::string &kernel) {
    std::ifstream file(SOURCE_FILE);
    std::vector<int> lines;
    bool inside = false;
    int n = 1;
    for (std::string text; std::getline(file, text); n++) {
        const bool begins = text.rfind("MISTAKE(" + kernel + ",", 0) == 0;
        inside = inside || begins;
        if (inside && (text.find("/* found */") != std::string::npos || text.find("/* or here */") != std::string::npos))
            lines.push_back(n);
        if (inside && (text[0] == '}' || (begins && text.back() == '}'))) break;
    }
    if (lines.empty()) fail_msg("no line of %s is marked in %s", kernel.c_str(), SOURCE_FILE);
    return lines;
}

emu::report run(const mistake &m, bool wrong, u64 seed) {
    emu::device device;
    u32 *in = device.array<u32>(WORDS, "in"), *out = device.array<u32>(WORDS, "out"),
        *counter = device.array<u32>(WORDS, "counter");
    for (int i = 0; i < WORDS; i++) in[i] = (u32)i, counter[i] = 0;
    emu::config c;
    c.blocks = m.of.blocks;
    c.threads = m.of.threads;
    c.shared_bytes = m.of.threads >= 128 ? 16384 : 4096;
    c.seed = seed;
    c.resident = 3;
    return device.launch(c, [&] { m.kernel({in, out, counter, wrong}); });
}

bool finds(const emu::report &r, const mistake &m, const std::vector<int> &lines) {
    return std::any_of(r.errors.begin(), r.errors.end(), [&](const emu::error &e) {
        return std::find(m.kinds.begin(), m.kinds.end(), e.what) != m.kinds.end() && e.file == __FILE__ &&
               std::find(lines.begin(), lines.end(), e.line) != lines.end();
    });
}

enum { SEEDS = 12 };

void the_mistake_is_found(void **state) {
    const mistake &m = *static_cast<const mistake *>(*state);
    const std::vector<int> lines = marked_lines(m.name);
    int found = 0;
    for (u64 seed = 1; seed <= SEEDS; seed++) {
        const emu::report right = run(m, false, seed), wrong = run(m, true, seed);
        if (!right.errors.empty()) fail_msg("seed %d, without the mistake: %s", (int)seed, right.text().c_str());
        found += finds(wrong, m, lines);
        if (found < (int)seed && m.of.every_seed)
            fail_msg("seed %d, expected \"%s\" at line %d, got: %s", (int)seed, emu::describe(m.kinds[0]), lines[0],
                     wrong.text().c_str());
    }
    assert_true(found > 0);
}

/* Results would be wrong, but no access is: counts tell. */
void a_forgotten_swizzle_costs_wavefronts(void **) {
    for (const bool wrong : {false, true}) {
        const emu::report r = run({"forgotten_swizzle", forgotten_swizzle, ONE_WARP, {}}, wrong, 1);
        assert_true(r.errors.empty());
        assert_int_equal(r.n.shared_least, 8 * 4 + 4);
        assert_int_equal(r.n.shared_wavefronts, 8 * 4 + (wrong ? 32 : 4));
    }
}

void a_primitive_that_the_device_lacks(void **) {
    emu::device device;
    emu::config c;
    c.shared_bytes = 4096;
    for (const int sm : {80, 90}) {
        c.sm = sm;
        const emu::report r = device.launch(c, [] { start_mbar(1); });
        assert_int_equal(r.errors.empty(), sm == 90);
        if (sm == 80) assert_true(r.errors[0].what == kind::needs_sm);
    }
}

void every_kind_has_a_mistake(void **) {
    std::vector<kind> covered = {kind::needs_sm, kind::launch_limits}; /* above, and in test_launch.cpp */
    for (const mistake &m : mistakes) covered.insert(covered.end(), m.kinds.begin(), m.kinds.end());
#define EMU_ERROR(name, text)                                                                                                  \
    if (std::find(covered.begin(), covered.end(), kind::name) == covered.end()) fail_msg("no kernel for " #name);
#include "chunkattn/cuda/emu/errors.def"
#undef EMU_ERROR
}

} // namespace

int main() {
    std::vector<CMUnitTest> tests;
    tests.reserve(mistakes.size() + 3);
    for (mistake &m : mistakes) tests.push_back({m.name, the_mistake_is_found, nullptr, nullptr, &m});
    tests.push_back(cmocka_unit_test(a_forgotten_swizzle_costs_wavefronts));
    tests.push_back(cmocka_unit_test(a_primitive_that_the_device_lacks));
    tests.push_back(cmocka_unit_test(every_kind_has_a_mistake));
    return _cmocka_run_group_tests("mistakes", tests.data(), tests.size(), nullptr, nullptr);
}
