/*
 * Kernels for the files in cases/: each executes one primitive on the inputs of a case. They run in the emulation and, compiled
 * by nvcc, on a device, so both are compared with the same file (cases.h reads it).
 */
#ifndef TESTS_CHUNKATTN_CUDA_EMU_CASE_KERNELS_CUH
#define TESTS_CHUNKATTN_CUDA_EMU_CASE_KERNELS_CUH

#include "chunkattn/cuda/primitives.h"

enum { CASE_ARGS = 24 };

/* All pointers are to device memory. Words of shared memory are given by their offsets. */
struct case_args {
    const u32 *in;               /* [registers][threads] */
    u32 *out;                    /* [registers][threads] */
    u32 *device;                 /* the case's device memory, a multiple of 16 bytes */
    const u32 *image_at, *image; /* [n_image] shared memory before */
    const u32 *after_at;         /* [n_after] which words of it are wanted afterwards */
    u32 *after;                  /* [n_after] */
    int n_image, n_after, threads;
    u32 arg[CASE_ARGS];
    int n_args;
};

/* ---- Registers and shared memory of a case ---- */

DEV u32 in_register(const case_args &a, int r) { return ld_global(a.in + r * a.threads + thread_index()); }
DEV float in_float(const case_args &a, int r) { return as_float(in_register(a, r)); }
DEV void out_register(const case_args &a, int r, u32 v) { st_global(a.out + r * a.threads + thread_index(), v); }
DEV void out_float(const case_args &a, int r, float v) { out_register(a, r, as_bits(v)); }

DEV void begin_case(const case_args &a) {
    for (int i = thread_index(); i < a.n_image; i += a.threads)
        st_shared(shared_base() + ld_global(a.image_at + i), ld_global(a.image + i));
    fence_async();
    sync_block();
}
DEV void end_case(const case_args &a) {
    sync_block();
    for (int i = thread_index(); i < a.n_after; i += a.threads)
        st_global(a.after + i, ld_shared<u32>(shared_base() + ld_global(a.after_at + i)));
}

/* ---- Matrices of a warp ---- */

DEV void out_four(const case_args &a, const u32 (&r)[4]) {
    UNROLL
    for (int i = 0; i < 4; i++) out_register(a, i, r[i]);
}
DEV void case_ldmatrix(const case_args &a) {
    u32 r[4];
    ldmatrix(r, shared_base() + in_register(a, 0));
    out_four(a, r);
}
DEV void case_ldmatrix_trans(const case_args &a) {
    u32 r[4];
    ldmatrix_trans(r, shared_base() + in_register(a, 0));
    out_four(a, r);
}
DEV void case_movmatrix(const case_args &a) { out_register(a, 0, movmatrix(in_register(a, 0))); }

template <int K> DEV void case_mma_u8s8(const case_args &args) {
    u32 a[K / 8], b[K / 16];
    int c[4];
    UNROLL
    for (int i = 0; i < K / 8; i++) a[i] = in_register(args, i);
    UNROLL
    for (int i = 0; i < K / 16; i++) b[i] = in_register(args, K / 8 + i);
    UNROLL
    for (int i = 0; i < 4; i++) c[i] = (int)in_register(args, K / 8 + K / 16 + i);
    if constexpr (K == 32)
        mma_u8s8(c, a, b);
    else
        mma_u8s8_k16(c, a, b[0]);
    UNROLL
    for (int i = 0; i < 4; i++) out_register(args, i, (u32)c[i]);
}

template <element E> DEV void case_mma(const case_args &args) {
    u32 a[4], b[2];
    float c[4];
    UNROLL
    for (int i = 0; i < 4; i++) a[i] = in_register(args, i);
    UNROLL
    for (int i = 0; i < 2; i++) b[i] = in_register(args, 4 + i);
    UNROLL
    for (int i = 0; i < 4; i++) c[i] = in_float(args, 6 + i);
    mma<E>(c, a, b);
    UNROLL
    for (int i = 0; i < 4; i++) out_float(args, i, c[i]);
}

/* ---- Matrices of a warp group: arguments are (at, leading, stride, swizzle) of A and of B, then whether to add ---- */

DEV u64 describe(const u32 *arg) {
    const u32 at = shared_base() + arg[0];
    return arg[3] == 128 ? wgmma_descriptor<128>(at, arg[1], arg[2]) : wgmma_descriptor<64>(at, arg[1], arg[2]);
}
template <int ROWS> DEV void in_sums(const case_args &a, int first, float (&d)[ROWS][4]) {
    UNROLL
    for (int i = 0; i < ROWS * 4; i++) d[i / 4][i % 4] = a.arg[8] ? in_float(a, first + i) : 0;
}
template <int ROWS> DEV void finish_sums(const case_args &a, float (&d)[ROWS][4]) {
    wgmma_commit();
    wgmma_wait<0>(d);
    UNROLL
    for (int i = 0; i < ROWS * 4; i++) out_float(a, i, d[i / 4][i % 4]);
}
template <element E, major B, int N> DEV void case_wgmma(const case_args &a) {
    float d[N / 8][4];
    in_sums(a, 0, d);
    wgmma_fence(d);
    wgmma<E, B>(d, describe(a.arg), describe(a.arg + 4), a.arg[8]);
    finish_sums(a, d);
}
template <element E, major B, int N> DEV void case_wgmma_registers(const case_args &args) {
    float d[N / 8][4];
    u32 a[4];
    UNROLL
    for (int i = 0; i < 4; i++) a[i] = in_register(args, i);
    in_sums(args, 4, d);
    wgmma_fence(d, a);
    wgmma<E, B>(d, a, describe(args.arg + 4), args.arg[8]);
    finish_sums(args, d);
}

/* ---- Votes, shuffles, barriers, memory ---- */

DEV void case_shfl(const case_args &a) { out_register(a, 0, shfl(in_register(a, 0), (int)in_register(a, 1))); }
DEV void case_shfl_xor(const case_args &a) { out_register(a, 0, shfl_xor(in_register(a, 0), (int)a.arg[0])); }
DEV void case_any_sync(const case_args &a) { out_register(a, 0, any_sync(in_register(a, 0) != 0)); }
/* Warp 0 reads what warp 2 writes; warp 1 is not concerned. */
DEV void case_sync_named(const case_args &a) {
    const int warp = thread_index() / 32;
    const u32 at = shared_base() + (u32)(thread_index() % 32) * 4;
    if (warp == 2) st_shared(at, in_register(a, 0));
    if (warp != 1) sync_named(3, 64);
    if (warp == 0) out_register(a, 0, ld_shared<u32>(at));
}
DEV void case_sync_named_or(const case_args &a) {
    out_register(a, 0, sync_named_or(1 + thread_index() / 64, 64, in_register(a, 0) != 0));
}
template <bool ACQ_REL> DEV void case_atomic_add(const case_args &a) {
    u32 *p = a.device + thread_index();
    const u32 v = in_register(a, 0);
    out_register(a, 0, ACQ_REL ? atomic_add_acq_rel(p, v) : atomic_add_relaxed(p, v));
    out_register(a, 1, ld_global(p));
}
struct alignas(8) two_words {
    u32 v[2];
};
DEV void case_vectors(const case_args &a) {
    const int t = thread_index();
    const u4 four = ld_global((const u4 *)a.device + t);
    const two_words two = ld_streaming((const two_words *)a.device + t);
    UNROLL
    for (int i = 0; i < 4; i++) out_register(a, i, four.v[i]);
    UNROLL
    for (int i = 0; i < 2; i++) out_register(a, 4 + i, two.v[i]);
    const u32 at = shared_base() + (u32)t * 16;
    st_shared(at, two_words{{four.v[0], four.v[1]}});
    st_shared(at + 8, two_words{{four.v[2], four.v[3]}});
    const u4 back = ld_shared<u4>(at);
    st_shared(at, back);
}

/* ---- Arithmetic ---- */

DEV void case_ex2(const case_args &a) { out_float(a, 0, ex2(in_float(a, 0))); }
DEV void case_lg2(const case_args &a) { out_float(a, 0, lg2(in_float(a, 0))); }
DEV void case_byte_permute(const case_args &a) {
    out_register(a, 0, byte_permute(in_register(a, 0), in_register(a, 1), in_register(a, 2)));
}
DEV void case_max_f32(const case_args &a) { out_float(a, 0, max_f32(in_float(a, 0), in_float(a, 1))); }
DEV void case_ceil_f32(const case_args &a) { out_float(a, 0, ceil_f32(in_float(a, 0))); }
DEV void case_fma_rn(const case_args &a) { out_float(a, 0, fma_rn(in_float(a, 0), in_float(a, 1), in_float(a, 2))); }
DEV void case_mul_add(const case_args &a) { out_float(a, 0, add_rn(mul_rn(in_float(a, 0), in_float(a, 1)), in_float(a, 2))); }
DEV void case_rcp_rn(const case_args &a) { out_float(a, 0, rcp_rn(in_float(a, 0))); }
template <element E> DEV void case_pack(const case_args &a) { out_register(a, 0, pack<E>(in_float(a, 0), in_float(a, 1))); }
template <element E> DEV void case_halves(const case_args &a) {
    out_float(a, 0, low_half<E>(in_register(a, 0)));
    out_float(a, 1, high_half<E>(in_register(a, 0)));
}

/* ---- Copies and mbarriers ---- */

template <int PENDING> DEV void case_cp_async_wait(const case_args &a) {
    const int lane = thread_index();
    const u32 to = shared_base() + (u32)lane * 64;
    UNROLL
    for (int g = 0; g < 4; g++) {
        cp_async16(to + (u32)g * 16, a.device + lane * 16 + g * 4);
        cp_async_commit();
    }
    cp_async_wait<PENDING>();
    UNROLL
    for (int g = 0; g < 4 - PENDING; g++) out_register(a, g, ld_shared<u32>(to + (u32)g * 16));
    cp_async_wait<0>();
}
DEV void case_cp_async_empty(const case_args &a) {
    const u32 to = shared_base() + (u32)thread_index() * 16;
    cp_async16(to, a.device + thread_index() * 4);
    cp_async_commit();
    cp_async_commit();
    cp_async_commit();
    cp_async_wait<2>();
    out_register(a, 0, ld_shared<u32>(to));
}
DEV void case_cp_async_or_zero(const case_args &a) {
    cp_async16_or_zero(shared_base() + (u32)thread_index() * 16, a.device + thread_index() * 4, in_register(a, 0) != 0);
    cp_async_commit();
    cp_async_wait<0>();
}
/* Arguments: to, from, bytes. */
DEV void case_bulk_copy(const case_args &a) {
    const u32 bar = shared_base() + 4096;
    if (thread_index() == 0) {
        mbar_init(bar, 1);
        mbar_fence_init();
        mbar_arrive_expect(bar, a.arg[2]);
        bulk_copy(shared_base() + a.arg[0], a.device + a.arg[1] / 4, a.arg[2], bar);
    }
    sync_block();
    mbar_wait(bar, 0);
}
/* Arguments: pairs of an operation and its operand, executed by one thread. */
DEV void case_mbar_ops(const case_args &a) {
    if (thread_index() != 0) return;
    const u32 bar = shared_base() + 4096;
    u32 to = shared_base();
    for (int i = 0; i < a.n_args; i += 2) {
        const u32 operand = a.arg[i + 1];
        switch (a.arg[i]) {
        case 0:
            mbar_init(bar, operand);
            mbar_fence_init();
            break;
        case 1: mbar_arrive(bar); break;
        case 2: mbar_arrive_expect(bar, operand); break;
        case 3:
            bulk_copy(to, a.device, operand, bar);
            to += operand;
            break;
        default: mbar_wait(bar, operand);
        }
    }
    out_register(a, 0, (u32)a.n_args / 2);
}

#define CASE_KERNEL(name, function)                                                                                            \
    KERNEL(256, 1, run_##name, const case_args a) {                                                                            \
        begin_case(a);                                                                                                         \
        (function)(a);                                                                                                         \
        end_case(a);                                                                                                           \
    }
#include "case_kernels.def"
#undef CASE_KERNEL

#endif
