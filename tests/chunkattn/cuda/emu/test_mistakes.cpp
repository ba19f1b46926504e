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

int lane() { return thread_index() % 32; }
int warp() { return thread_index() / 32; }
u32 word(int i) { return shared_base() + (u32)i * 4; }
void keep(const args &a, u32 v) { st_global(a.out + block_index() * 1024 + thread_index(), v); }

/* ---- Order in shared memory ---- */

void no_sync_warp(const args &a) {
    st_shared(word(thread_index()), 1u);
    if (!a.wrong) sync_warp();
    keep(a, ld_shared<u32>(word(thread_index() ^ 1))); /* found */
}
void a_shuffle_for_a_barrier(const args &a) {
    st_shared(word(thread_index()), 1u);
    if (a.wrong)
        shfl_xor(1, 1);
    else
        sync_warp();
    keep(a, ld_shared<u32>(word(thread_index() ^ 1))); /* found */
}
void no_block_barrier(const args &a) {
    st_shared(word(thread_index()), 1u);
    if (a.wrong)
        sync_warp();
    else
        sync_block();
    keep(a, ld_shared<u32>(word(thread_index() ^ 32))); /* found */
}
void no_barrier_before_overwriting(const args &a) {
    st_shared(word(thread_index()), 1u);
    sync_block();
    keep(a, ld_shared<u32>(word(thread_index() ^ 32)));
    if (!a.wrong) sync_block();
    st_shared(word(thread_index()), 2u); /* found */
}
void one_of_few_readers(const args &a) { /* a thread of each warp reads; the writer has met all but that of warp 1 since then */
    if (thread_index() == 0) st_shared(word(0), 1u);
    sync_block();
    if (lane() == 0) keep(a, ld_shared<u32>(word(0))); /* or here */
    if (warp() != 1) sync_named(1, 64);
    if (!a.wrong) sync_block();
    if (thread_index() == 64) st_shared(word(0), 2u); /* found */
}
void one_of_many_readers(const args &a) { /* all read; the writer has met all but warp 1 since then */
    if (thread_index() == 0) st_shared(word(0), 1u);
    sync_block();
    keep(a, ld_shared<u32>(word(0))); /* or here */
    if (warp() != 1) sync_named(1, 64);
    if (!a.wrong) sync_block();
    if (thread_index() == 64) st_shared(word(0), 2u); /* found */
}
void two_writers(const args &a) {
    const int i = a.wrong ? thread_index() % 32 : thread_index();
    st_shared(word(i), 1u); /* found */
}
void arrival_in_place_of_a_wait(const args &a) { /* warp 1 reads what warp 0 writes */
    if (warp() == 0) {
        st_shared(word(lane()), 1u);
        sync_named(1, 64);
        return;
    }
    if (a.wrong)
        arrive_named(1, 64);
    else
        sync_named(1, 64);
    keep(a, ld_shared<u32>(word(lane()))); /* found */
}

/* ---- Order in device memory ---- */

/* Blocks 1 and 2 arrive after they read, block 0 does not; the last to arrive writes what all read. */
void a_reader_that_does_not_arrive(const args &a) {
    u32 *p = a.counter + 64 + lane();
    keep(a, ld_global(p)); /* found */
    if (a.wrong && block_index() == 0) return;
    sync_warp();
    u32 before = 0;
    if (lane() == 0) before = atomic_add_acq_rel(a.counter, 1);
    sync_warp();
    if (shfl(before, 0) + 1 == (u32)block_count() - (a.wrong ? 1 : 0)) st_global(p, 1u); /* or here */
}

void relaxed_arrival(const args &a) {
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
void no_barrier_before_the_arrival(const args &a) { /* lane 0 has not met the others, whose writes it is to publish */
    st_global(a.out + block_index() * 32 + lane(), 1u);
    if (!a.wrong) sync_warp();
    u32 before = 0;
    if (lane() == 0) before = atomic_add_acq_rel(a.counter, 1);
    sync_warp();
    if (shfl(before, 0) + 1 < (u32)block_count()) return;
    for (int b = 0; b < block_count(); b++) ld_global(a.out + b * 32 + lane()); /* found */
}
void blocks_write_the_same(const args &a) { st_global(a.out + lane() + (a.wrong ? 0 : block_index() * 32), 1u); /* found */ }
void a_block_overwrites_what_another_reads(const args &a) {
    if (block_index() == 0 || !a.wrong)
        keep(a, ld_global(a.counter + block_index() * 32 + lane())); /* found */
    else
        st_global(a.counter + lane(), 1u); /* or here */
}
void device_memory_without_a_barrier(const args &a) {
    st_global(a.out + thread_index(), 1u);
    if (!a.wrong) sync_block();
    ld_global(a.out + (thread_index() ^ 32)); /* found */
}
void readonly_memory_is_written(const args &a) {
    if (thread_index() == 0) keep(a, ld_readonly(a.counter + (a.wrong ? 0 : 1)));
    sync_block();
    if (thread_index() == 32) st_global(a.counter, 1u); /* found */
}

/* ---- Addresses ---- */

void beyond_the_list(const args &a) { keep(a, ld_global(a.in + WORDS - 32 + thread_index() + (a.wrong ? 1 : 0))); /* found */ }
void beyond_shared_memory(const args &a) { st_shared(word(1024 - 32 + thread_index() + (a.wrong ? 1 : 0)), 1u); /* found */ }
void misaligned_copy(const args &a) {
    cp_async16(word(4 * thread_index()), a.in + 4 * thread_index() + (a.wrong ? 2 : 0)); /* found */
    cp_async_commit();
    cp_async_wait<0>();
}
void nobody_wrote(const args &a) {
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
    ldmatrix(r, word(4 * (row * 8 + (a.wrong ? unit : unit ^ row % 8)))); /* found */
    keep(a, r[0]);
}

/* ---- Collective operations ---- */

void divergent_shuffle(const args &a) {
    u32 v = (u32)lane();
    if (!a.wrong || lane() < 16) v += shfl_xor(v, 1); /* found */
    v += shfl_xor(v, 2);                              /* or here */
    keep(a, v);
}
void divergent_barrier(const args &a) {
    if (a.wrong && lane() == 3) {
        sync_block(); /* found */
        keep(a, 3);
        return;
    }
    sync_block(); /* or here */
}
void a_warp_leaves_out_a_barrier(const args &a) {
    if (!a.wrong || warp() != 1) sync_block(); /* found */
}
void lanes_end_early(const args &a) {
    if (a.wrong && lane() > 20) return;
    keep(a, ballot_sync(true)); /* found */
}
void lanes_ended_before(const args &a) { /* the others come to the vote after that */
    if (thread_index() == 0) mbar_init(word(512), 11);
    sync_warp();
    if (lane() > 20) {
        mbar_arrive(word(512));
        if (a.wrong) return;
    }
    mbar_wait(word(512), 0);
    for (int i = 0; i < 20; i++) mbar_wait(word(512), 0);
    keep(a, ballot_sync(true)); /* found */
}
void barrier_counts_differ(const args &a) { sync_named(1, warp() == 0 || !a.wrong ? 64 : 32); /* found */ }
void no_multiple_of_a_warp(const args &a) { sync_named(1, a.wrong ? 40 : 64); /* found */ }
void sync_for_a_reduction(const args &a) {
    if (warp() == 1 && a.wrong)
        sync_named_or(1, 64, true); /* found */
    else
        sync_named(1, 64); /* or here */
}

/* ---- cp.async ---- */

void wait_one_group_short(const args &a) {
    for (int i = 0; i < 2; i++) {
        cp_async16(word(4 * (32 * i + lane())), a.in + 4 * (32 * i + lane()));
        cp_async_commit();
    }
    if (a.wrong)
        cp_async_wait<1>();
    else
        cp_async_wait<0>();
    sync_warp();
    keep(a, ld_shared<u32>(word(4 * (32 + lane() / 2)))); /* found */
    cp_async_wait<0>();
}
void no_commit(const args &a) {
    cp_async16(word(4 * lane()), a.in + 4 * lane());
    if (!a.wrong) cp_async_commit();
    cp_async_wait<0>();
    keep(a, ld_shared<u32>(word(4 * lane()))); /* found */
    cp_async_commit();
    cp_async_wait<0>();
}
void no_barrier_after_the_wait(const args &a) {
    cp_async16(word(4 * lane()), a.in + 4 * lane());
    cp_async_commit();
    cp_async_wait<0>();
    if (!a.wrong) sync_warp();
    keep(a, ld_shared<u32>(word(4 * (lane() ^ 1)))); /* found */
}
void the_ring_is_refilled_too_early(const args &a) {
    for (int i = 0; i < 4; i++) {
        cp_async16(word(4 * lane()), a.in + 4 * (32 * i + lane())); /* found */
        cp_async_commit();
        cp_async_wait<0>();
        sync_warp();
        keep(a, ld_shared<u32>(word(4 * (lane() ^ 1))));
        if (!a.wrong) sync_warp();
    }
}
void copies_at_the_end(const args &a) {
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
void no_wait_for_the_copy(const args &a) {
    start_mbar(1);
    if (thread_index() == 0) {
        request(word(0), a.in);
    }
    sync_warp();
    if (!a.wrong || lane() != 7) mbar_wait(word(512), 0);
    keep(a, ld_shared<u32>(word(lane()))); /* found */
    sync_block();
    mbar_wait(word(512), 0);
}
void parity_does_not_flip(const args &a) {
    start_mbar(1);
    for (int i = 0; i < 4; i++) {
        if (thread_index() == 0) {
            request(word(32 * i), a.in + 32 * i);
        }
        mbar_wait(word(512), a.wrong ? 0 : i % 2);
        keep(a, ld_shared<u32>(word(32 * i + lane()))); /* found */
        sync_block();
        mbar_wait(word(512), i % 2);
    }
}
void more_bytes_than_expected(const args &a) {
    start_mbar(1);
    if (thread_index() == 0) {
        mbar_arrive_expect(word(512), 2 * 128);
        bulk_copy(word(0), a.in, 128, word(512));                  /* found */
        bulk_copy(word(32), a.in, a.wrong ? 256 : 128, word(512)); /* found */
    }
    mbar_wait(word(512), 0);
}
void fewer_bytes_than_expected(const args &a) {
    start_mbar(1);
    if (thread_index() == 0) {
        mbar_arrive_expect(word(512), a.wrong ? 256 : 128);
        bulk_copy(word(0), a.in, 128, word(512));
    }
    mbar_wait(word(512), 0); /* found */
}
void odd_size(const args &a) {
    start_mbar(1);
    if (thread_index() == 0) {
        mbar_arrive_expect(word(512), 128);
        if (a.wrong) bulk_copy(word(32), a.in, 100, word(512)); /* found */
        bulk_copy(word(0), a.in, 128, word(512));
    }
    mbar_wait(word(512), 0);
}
void double_arrive(const args &a) {
    start_mbar(1);
    if (thread_index() == 0) {
        mbar_arrive_expect(word(512), 128);
        if (a.wrong) mbar_arrive(word(512)); /* found */
        bulk_copy(word(0), a.in, 128, word(512));
    }
    mbar_wait(word(512), 0);
}
void arrival_missing(const args &a) {
    start_mbar(32);
    if (!a.wrong || lane() != 9) mbar_arrive(word(512));
    mbar_wait(word(512), 0); /* found */
}
void a_write_after_the_arrival(const args &a) { /* which does not publish it */
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
void mbarrier_before_the_barrier(const args &a) {
    if (thread_index() == 0) {
        mbar_init(word(512), 64);
        mbar_fence_init();
    }
    if (!a.wrong) sync_block();
    mbar_arrive(word(512)); /* found */
    sync_block();
    mbar_wait(word(512), 0);
}
void no_fence_after_init(const args &a) {
    if (thread_index() == 0) {
        mbar_init(word(512), 1);
        if (!a.wrong) mbar_fence_init();
        request(word(0), a.in); /* found */
    }
    sync_block();
    mbar_wait(word(512), 0);
}
void data_over_an_mbarrier(const args &a) {
    start_mbar(1);
    sync_block();
    if (lane() == 5) st_shared(word(a.wrong ? 513 : 514), 1u); /* found */
}
void data_over_a_stage_in_use(const args &a) { /* the producer does not wait until the stage is empty */
    start_mbar(1);
    for (int i = 0; i < 3; i++) {
        if (thread_index() == 0) {
            request(word(0), a.in + 32 * i); /* found */
        }
        mbar_wait(word(512), i % 2);
        keep(a, ld_shared<u32>(word(lane())));
        if (!a.wrong) sync_block();
    }
    sync_block();
}
void zeros_without_a_proxy_fence(const args &a) { /* as a kernel that clears hidden slots of a stage */
    start_mbar(1);
    st_shared(word(lane()), 0u);
    if (!a.wrong) fence_async();
    sync_block();
    if (thread_index() == 0) {
        request(word(0), a.in); /* found */
    }
    mbar_wait(word(512), 0);
}
void a_phase_is_missed(const args &a) { /* two arrivals without asking whether the other warp saw the first */
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
void the_wait_for_another_copy(const args &a) { /* whose data happens to be there, too */
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
void a_bulk_copy_at_the_end(const args &a) {
    start_mbar(1);
    if (thread_index() == 0) {
        request(word(0), a.in); /* found */
    }
    if (!a.wrong) mbar_wait(word(512), 0);
}
void mbarrier_on_sm_80(const args &) { start_mbar(1); /* its line is that in start_mbar */ }

/* ---- Warp groups: A at byte 0, 64 rows of 128; B at byte 8192, 8 rows ---- */

enum { A_AT = 0, B_AT = 8192 };

void fill_operands(bool fence) {
    for (int i = thread_index(); i < (64 + 8) * 8; i += 128) st_shared(shared_base() + (u32)i * 16, f4{});
    if (fence) fence_async();
    sync_block();
}
u64 operand_a() { return wgmma_descriptor<128>(shared_base() + A_AT, 16, 1024); }
u64 operand_b() { return wgmma_descriptor<128>(shared_base() + B_AT, 16, 1024); }
/* d += A B. Errors are reported for the line of the call. */
void multiply(float (&d)[1][4], emu::place at = {__builtin_FILE(), __builtin_LINE()}) {
    wgmma<BF16, K_MAJOR, K_MAJOR>(d, operand_a(), operand_b(), true, at);
}
void finish(float (&d)[1][4]) {
    wgmma_commit();
    wgmma_wait<0>(d);
}
void keep_sums(const args &a, const float (&d)[1][4]) { st_global((float *)a.out + thread_index(), d[0][0]); }

void no_proxy_fence(const args &a) {
    fill_operands(!a.wrong);
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d); /* found */
    finish(d);
    keep_sums(a, d);
}
void proxy_fence_after_the_barrier(const args &a) { /* of warp 3 only, whose neighbours need it */
    for (int i = thread_index(); i < (64 + 8) * 8; i += 128) st_shared(shared_base() + (u32)i * 16, f4{});
    if (!a.wrong || warp() != 3) fence_async();
    sync_block();
    if (a.wrong && warp() == 3) fence_async();
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d); /* found */
    finish(d);
}
void operand_by_cp_async(const args &a) { /* which is an ordinary write to wgmma */
    fill_operands(true);
    cp_async16(shared_base() + (u32)thread_index() * 16, a.in + 4 * thread_index());
    cp_async_commit();
    if (a.wrong) fence_async();
    cp_async_wait<0>();
    if (!a.wrong) fence_async();
    sync_block();
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d); /* found */
    finish(d);
}
void sums_before_the_wait(const args &a) {
    fill_operands(true);
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d);
    wgmma_commit();
    if (!a.wrong) wgmma_wait<0>(d);
    const float twice = d[0][0] * 2;
    st_global((float *)a.out + thread_index(), twice); /* found */
    if (a.wrong) wgmma_wait<0>(d);
}
void maximum_before_the_wait(const args &a) { /* NaN would vanish in it */
    fill_operands(true);
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d);
    wgmma_commit();
    if (!a.wrong) wgmma_wait<0>(d);
    st_global((float *)a.out + thread_index(), max_f32(d[0][0], 0)); /* found */
    if (a.wrong) wgmma_wait<0>(d);
}
void wait_one_wgmma_short(const args &a) {
    fill_operands(true);
    float d[1][4] = {}, e[1][4] = {};
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
void sums_scaled_before_the_wait(const args &a) {
    fill_operands(true);
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d); /* found */
    wgmma_commit();
    if (a.wrong) d[0][1] = 0;
    wgmma_wait<0>(d);
}
void registers_of_a_change(const args &a) {
    fill_operands(true);
    float d[1][4] = {};
    u32 p[4] = {1, 2, 3, 4};
    wgmma_fence(d, p);
    wgmma<BF16, K_MAJOR>(d, p, operand_b(), true); /* found */
    wgmma_commit();
    if (a.wrong) p[2] = 9;
    wgmma_wait<0>(d);
}
void operand_is_overwritten(const args &a) {
    fill_operands(true);
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d);
    wgmma_commit();
    if (!a.wrong) wgmma_wait<0>(d);
    sync_block();
    for (int i = 0; i < 4; i++) st_shared(shared_base() + (u32)(thread_index() + 128 * i) * 16, f4{}); /* found */
    if (a.wrong) wgmma_wait<0>(d);
}
void stage_is_refilled_before_all_warps_waited(const args &a) {
    fill_operands(true);
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d);
    finish(d);
    if (!a.wrong) sync_block();
    if (warp() == 0) st_shared(shared_base() + B_AT + (u32)lane() * 16, f4{}); /* found */
}
void stage_is_refilled_after_all_warps_waited(const args &a) { /* but no barrier says so */
    fill_operands(true);
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d);
    finish(d);
    for (int i = 0; i < 200 && warp() == 0; i++) sync_warp();
    if (!a.wrong) sync_block();
    if (warp() == 0) st_shared(shared_base() + B_AT + (u32)lane() * 16, f4{}); /* found */
}
void no_wgmma_fence_after_a_wait(const args &a) {
    fill_operands(true);
    float d[1][4] = {};
    for (int i = 0; i < 2; i++) {
        if (!a.wrong || i == 0) wgmma_fence(d);
        multiply(d); /* found */
        wgmma_commit();
        wgmma_wait<0>(d);
        d[0][0] += 1;
    }
}
void no_wgmma_fence(const args &a) {
    fill_operands(true);
    float d[1][4] = {};
    if (!a.wrong) wgmma_fence(d);
    multiply(d); /* found */
    finish(d);
}
void accumulator_is_not_named(const args &a) {
    fill_operands(true);
    float d[1][4] = {}, e[1][4] = {};
    wgmma_fence(d, e);
    multiply(d);
    multiply(e);
    wgmma_commit();
    if (a.wrong)
        wgmma_wait<0>(d); /* found */
    else
        wgmma_wait<0>(d, e);
}
void warps_commit_other_groups(const args &a) { /* in the same lines */
    fill_operands(true);
    float d[1][4] = {};
    for (int i = 0; i < 2; i++) {
        wgmma_fence(d);
        multiply(d); /* found */
        if (!a.wrong || warp() == 0 || i == 1) wgmma_commit();
    }
    wgmma_wait<0>(d);
    keep_sums(a, d);
}
void operand_beside_its_atom(const args &a) {
    fill_operands(true);
    const u64 beside = wgmma_descriptor<128>(shared_base() + (a.wrong ? 128 : 32), 16, 1024);
    float d[1][4] = {};
    wgmma_fence(d);
    wgmma<BF16, K_MAJOR, K_MAJOR>(d, beside, operand_b(), true); /* found */
    finish(d);
}
void descriptors_differ(const args &a) {
    fill_operands(true);
    float d[1][4] = {};
    wgmma_fence(d);
    const u32 step = a.wrong ? (u32)warp() % 2 * 32 : 0;
    wgmma<BF16, K_MAJOR, K_MAJOR>(d, wgmma_descriptor<128>(shared_base() + step, 16, 1024), operand_b(), true); /* found */
    finish(d);
}
void a_warp_skips_wgmma(const args &a) {
    fill_operands(true);
    float d[1][4] = {};
    wgmma_fence(d);
    if (a.wrong && warp() == 2) return;
    multiply(d); /* found */
    finish(d);
}
void one_warp_waits_for_the_operands(const args &a) { /* the others begin with their rows before the copy is there */
    fill_operands(true);
    if (thread_index() == 0) {
        mbar_init(shared_base() + 9216, 1);
        mbar_fence_init();
    }
    sync_block();
    if (thread_index() == 0) {
        mbar_arrive_expect(shared_base() + 9216, 1024);
        bulk_copy(shared_base() + B_AT, a.in, 1024, shared_base() + 9216);
    }
    if (warp() == 0 || !a.wrong) mbar_wait(shared_base() + 9216, 0);
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d); /* found */
    finish(d);
}
void wgmma_without_a_wait(const args &a) {
    fill_operands(true);
    float d[1][4] = {};
    wgmma_fence(d);
    multiply(d); /* found */
    wgmma_commit();
    if (!a.wrong) wgmma_wait<0>(d);
}

/* Three warp groups of 168 registers a thread, 504 together. */
void too_many_registers(const args &a) {
    if (warp() < 4)
        registers_decrease<24>();
    else if (a.wrong)
        registers_increase<248>(); /* found */
    else
        registers_increase<240>();
}
void registers_in_the_wrong_direction(const args &a) {
    if (a.wrong)
        registers_increase<160>(); /* found */
    else
        registers_decrease<160>();
}

/* ---- The table ---- */

enum seeds { ALL_SEEDS, SOME_SEEDS };
struct mistake {
    const char *name;
    void (*kernel)(const args &);
    std::vector<kind> kinds; /* one of them, at the line that is marked */
    int blocks = 1, threads = 32;
    seeds found_by = ALL_SEEDS;
};
#define MISTAKE(name, ...)                                                                                                     \
    { #name, name, __VA_ARGS__ }

const mistake mistakes[] = {
    MISTAKE(no_sync_warp, {kind::shared_read_race, kind::unwritten}),
    MISTAKE(a_shuffle_for_a_barrier, {kind::shared_read_race}),
    MISTAKE(no_block_barrier, {kind::shared_read_race, kind::unwritten}, 1, 64),
    MISTAKE(no_barrier_before_overwriting, {kind::shared_overwrite_race}, 1, 64),
    MISTAKE(one_of_few_readers, {kind::shared_overwrite_race, kind::shared_read_race}, 1, 96),
    MISTAKE(one_of_many_readers, {kind::shared_overwrite_race, kind::shared_read_race}, 1, 96),
    MISTAKE(two_writers, {kind::shared_write_race}, 1, 64),
    MISTAKE(arrival_in_place_of_a_wait, {kind::shared_read_race, kind::unwritten}, 1, 64),
    MISTAKE(a_reader_that_does_not_arrive, {kind::device_write_race, kind::device_read_race}, 3),
    MISTAKE(relaxed_arrival, {kind::device_read_race}, 4),
    MISTAKE(no_barrier_before_the_arrival, {kind::device_read_race}, 4),
    MISTAKE(blocks_write_the_same, {kind::device_write_race}, 2),
    MISTAKE(a_block_overwrites_what_another_reads, {kind::device_write_race, kind::device_read_race}, 2),
    MISTAKE(device_memory_without_a_barrier, {kind::device_read_race}, 1, 64),
    MISTAKE(readonly_memory_is_written, {kind::readonly_written}, 1, 64),
    MISTAKE(beyond_the_list, {kind::device_bounds}),
    MISTAKE(beyond_shared_memory, {kind::shared_bounds}),
    MISTAKE(misaligned_copy, {kind::misaligned}),
    MISTAKE(nobody_wrote, {kind::unwritten}),
    MISTAKE(divergent_shuffle, {kind::divergent}),
    MISTAKE(divergent_barrier, {kind::divergent}),
    MISTAKE(a_warp_leaves_out_a_barrier, {kind::deadlock}, 1, 96),
    MISTAKE(lanes_end_early, {kind::lanes_ended}),
    MISTAKE(lanes_ended_before, {kind::lanes_ended}),
    MISTAKE(barrier_counts_differ, {kind::barrier_misuse, kind::deadlock}, 1, 64),
    MISTAKE(no_multiple_of_a_warp, {kind::barrier_misuse}, 1, 64),
    MISTAKE(sync_for_a_reduction, {kind::barrier_misuse}, 1, 64),
    MISTAKE(wait_one_group_short, {kind::copy_under_way}),
    MISTAKE(no_commit, {kind::copy_under_way}),
    MISTAKE(no_barrier_after_the_wait, {kind::shared_read_race, kind::copy_under_way}),
    MISTAKE(the_ring_is_refilled_too_early, {kind::shared_overwrite_race}),
    MISTAKE(copies_at_the_end, {kind::copies_left}),
    MISTAKE(no_wait_for_the_copy, {kind::copy_under_way, kind::copy_not_awaited}),
    MISTAKE(parity_does_not_flip, {kind::copy_under_way, kind::copy_not_awaited}),
    MISTAKE(more_bytes_than_expected, {kind::mbar_bytes, kind::copies_left}),
    MISTAKE(fewer_bytes_than_expected, {kind::deadlock}),
    MISTAKE(odd_size, {kind::copy_size}),
    MISTAKE(double_arrive, {kind::mbar_arrivals}),
    MISTAKE(arrival_missing, {kind::deadlock}),
    MISTAKE(a_write_after_the_arrival, {kind::shared_read_race, kind::unwritten, kind::shared_overwrite_race}, 1, 64),
    MISTAKE(mbarrier_before_the_barrier, {kind::mbar_uninitialised}, 1, 64),
    MISTAKE(no_fence_after_init, {kind::mbar_fence}),
    MISTAKE(data_over_an_mbarrier, {kind::mbar_overwritten}),
    MISTAKE(data_over_a_stage_in_use, {kind::shared_overwrite_race}),
    MISTAKE(zeros_without_a_proxy_fence, {kind::proxy_fence}),
    MISTAKE(a_phase_is_missed, {kind::mbar_overrun}, 1, 64, SOME_SEEDS),
    MISTAKE(the_wait_for_another_copy, {kind::copy_not_awaited}, 1, 32, SOME_SEEDS),
    MISTAKE(a_bulk_copy_at_the_end, {kind::copies_left}),
    MISTAKE(no_proxy_fence, {kind::proxy_fence}, 1, 128),
    MISTAKE(proxy_fence_after_the_barrier, {kind::proxy_fence}, 1, 128),
    MISTAKE(operand_by_cp_async, {kind::proxy_fence}, 1, 128),
    MISTAKE(sums_before_the_wait, {kind::accumulator_early}, 1, 128),
    MISTAKE(maximum_before_the_wait, {kind::accumulator_early}, 1, 128),
    MISTAKE(wait_one_wgmma_short, {kind::accumulator_early}, 1, 128),
    MISTAKE(sums_scaled_before_the_wait, {kind::accumulator_early}, 1, 128),
    MISTAKE(registers_of_a_change, {kind::accumulator_early}, 1, 128),
    MISTAKE(operand_is_overwritten, {kind::operand_overwritten}, 1, 128),
    MISTAKE(stage_is_refilled_before_all_warps_waited, {kind::operand_overwritten, kind::shared_overwrite_race}, 1, 128),
    MISTAKE(stage_is_refilled_after_all_warps_waited, {kind::shared_overwrite_race}, 1, 128, SOME_SEEDS),
    MISTAKE(no_wgmma_fence_after_a_wait, {kind::wgmma_fence}, 1, 128),
    MISTAKE(no_wgmma_fence, {kind::wgmma_fence}, 1, 128),
    MISTAKE(warps_commit_other_groups, {kind::divergent}, 1, 128),
    MISTAKE(accumulator_is_not_named, {kind::accumulator_unnamed}, 1, 128),
    MISTAKE(operand_beside_its_atom, {kind::descriptor}, 1, 128),
    MISTAKE(descriptors_differ, {kind::descriptor}, 1, 128),
    MISTAKE(a_warp_skips_wgmma, {kind::deadlock}, 1, 128),
    MISTAKE(one_warp_waits_for_the_operands, {kind::copy_not_awaited}, 1, 128),
    MISTAKE(wgmma_without_a_wait, {kind::copies_left}, 1, 128),
    MISTAKE(too_many_registers, {kind::registers}, 1, 384),
    MISTAKE(registers_in_the_wrong_direction, {kind::registers}, 1, 384),
};

/* The lines of the function that bear a comment. */
std::vector<int> marked_lines(const std::string &function) {
    std::ifstream file(SOURCE_FILE);
    std::vector<int> lines;
    bool inside = false;
    int n = 0;
    for (std::string text; std::getline(file, text);) {
        n++;
        if (text.rfind("void " + function + "(", 0) == 0) inside = true;
        if (inside && (text.find("/* found */") != std::string::npos || text.find("/* or here */") != std::string::npos))
            lines.push_back(n);
        if (inside && text[0] == '}') break;
        if (inside && text.back() == '}' && text.rfind("void ", 0) == 0) break;
    }
    if (lines.empty()) fail_msg("no line of %s is marked in %s", function.c_str(), SOURCE_FILE);
    return lines;
}

emu::report run(const mistake &m, bool wrong, u64 seed) {
    emu::device device;
    u32 *in = device.array<u32>(WORDS, "in"), *out = device.array<u32>(WORDS, "out"),
        *counter = device.array<u32>(WORDS, "counter");
    for (int i = 0; i < WORDS; i++) in[i] = (u32)i, counter[i] = 0;
    emu::config c;
    c.blocks = m.blocks;
    c.threads = m.threads;
    c.shared_bytes = m.threads >= 128 ? 16384 : 4096;
    c.seed = seed;
    c.resident = 3;
    c.per_line = true;
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
        if (found < (int)seed && m.found_by == ALL_SEEDS)
            fail_msg("seed %d, expected \"%s\" at line %d, got: %s", (int)seed, emu::describe(m.kinds[0]), lines[0],
                     wrong.text().c_str());
    }
    assert_true(found > 0);
}

/* Results would be wrong, but no access is: counts tell. */
void a_forgotten_swizzle_costs_wavefronts(void **) {
    const mistake m = {"forgotten_swizzle", forgotten_swizzle, {}};
    const int line = marked_lines(m.name)[0];
    for (const bool wrong : {false, true}) {
        const emu::report r = run(m, wrong, 1);
        assert_true(r.errors.empty());
        const auto n = std::find_if(r.by_line.begin(), r.by_line.end(), [&](auto &l) { return l.first.line == line; });
        assert_true(n != r.by_line.end());
        assert_int_equal(n->second.shared_least, 4);
        assert_int_equal(n->second.shared_wavefronts, wrong ? 32 : 4);
    }
}

void a_primitive_that_the_device_lacks(void **) {
    emu::device device;
    emu::config c;
    c.shared_bytes = 4096;
    for (const int sm : {80, 90}) {
        c.sm = sm;
        const emu::report r = device.launch(c, [] { mbarrier_on_sm_80({}); });
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
    for (const mistake &m : mistakes)
        tests.push_back({m.name, the_mistake_is_found, nullptr, nullptr, const_cast<mistake *>(&m)});
    tests.push_back(cmocka_unit_test(a_forgotten_swizzle_costs_wavefronts));
    tests.push_back(cmocka_unit_test(a_primitive_that_the_device_lacks));
    tests.push_back(cmocka_unit_test(every_kind_has_a_mistake));
    return _cmocka_run_group_tests("mistakes", tests.data(), tests.size(), nullptr, nullptr);
}
