/* primitives.h for nvcc: one PTX instruction each. Included by primitives.h only, which documents them. */
#ifndef CHUNKATTN_CUDA_DEVICE_PRIMITIVES_H
#define CHUNKATTN_CUDA_DEVICE_PRIMITIVES_H

#include "primitives.h"

#define KERNEL(threads, blocks_per_sm, name, args)                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) name(args)
/* A kernel's body. It is left out of code for devices that are older than it needs, where the kernel traps. */
#define FROM_SM(sm, ...)                                                                                                       \
    if constexpr (compiled_for_sm<sm>)                                                                                         \
        __VA_ARGS__;                                                                                                           \
    else                                                                                                                       \
        __trap()
#ifdef __CUDA_ARCH__
template <int SM> constexpr bool compiled_for_sm = __CUDA_ARCH__ >= SM * 10;
#else
template <int SM> constexpr bool compiled_for_sm = true; /* the pass for the host */
#endif
#define UNROLL           _Pragma("unroll")
#define UNROLL_PRAGMA(x) _Pragma(#x)
#define UNROLL_BY(n)     UNROLL_PRAGMA(unroll n)

/* ---- Indices ---- */
DEV int thread_index() { return (int)threadIdx.x; }
DEV int block_index() { return (int)blockIdx.x; }
DEV int block_count() { return (int)gridDim.x; }
DEV u32 shared_base() {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    return (u32)__cvta_generic_to_shared(shared_memory);
}

/* ---- Loads and stores ---- */
template <class T> DEV T from_words(const u32 (&w)[sizeof(T) / 4]) {
    T v;
    memcpy(&v, w, sizeof v);
    return v;
}

/* An access of 4, 8 or 16 bytes; `op` is the instruction without the vector size. */
#define LOAD(op, address)                                                                                                      \
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "an access has 4, 8 or 16 bytes");                      \
    u32 w[sizeof(T) / 4];                                                                                                      \
    if constexpr (sizeof(T) == 4)                                                                                              \
        asm volatile(op ".b32 %0, [%1];" : "=r"(w[0]) : address : "memory");                                                   \
    else if constexpr (sizeof(T) == 8)                                                                                         \
        asm volatile(op ".v2.b32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : address : "memory");                              \
    else                                                                                                                       \
        asm volatile(op ".v4.b32 {%0, %1, %2, %3}, [%4];"                                                                      \
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])                                                          \
                     : address                                                                                                 \
                     : "memory");                                                                                              \
    return from_words<T>(w)
#define STORE(op, address)                                                                                                     \
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "an access has 4, 8 or 16 bytes");                      \
    u32 w[sizeof(T) / 4];                                                                                                      \
    memcpy(w, &v, sizeof v);                                                                                                   \
    if constexpr (sizeof(T) == 4)                                                                                              \
        asm volatile(op ".b32 [%0], %1;" ::address, "r"(w[0]) : "memory");                                                     \
    else if constexpr (sizeof(T) == 8)                                                                                         \
        asm volatile(op ".v2.b32 [%0], {%1, %2};" ::address, "r"(w[0]), "r"(w[1]) : "memory");                                 \
    else                                                                                                                       \
        asm volatile(op ".v4.b32 [%0], {%1, %2, %3, %4};" ::address, "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory")

template <class T> DEV T ld_global(const T *p) { LOAD("ld.global", "l"(p)); }
template <class T> DEV T ld_streaming(const T *p) { LOAD("ld.global.cs", "l"(p)); }
template <class T> DEV void st_global(T *p, T v) { STORE("st.global", "l"(p)); }
template <class T> DEV void st_streaming(T *p, T v) { STORE("st.global.cs", "l"(p)); }
template <class T> DEV T ld_shared(u32 at) { LOAD("ld.shared", "r"(at)); }
template <class T> DEV void st_shared(u32 at, T v) { STORE("st.shared", "r"(at)); }

DEV void prefetch(const void *p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }

DEV u32 atomic_add_acq_rel(u32 *p, u32 v) {
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}
DEV u32 atomic_add_relaxed(u32 *p, u32 v) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
    return old;
}

/* ---- Warps and blocks ---- */
DEV void sync_warp() { __syncwarp(); }
DEV void sync_block() { __syncthreads(); }
DEV void sync_named(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
DEV bool sync_named_or(int id, int threads, bool b) {
    u32 any;
    asm volatile("{ .reg .pred p, q;\n setp.ne.u32 p, %3, 0;\n bar.red.or.pred q, %1, %2, p;\n selp.u32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"(id), "r"(threads), "r"((u32)b)
                 : "memory");
    return any;
}
DEV bool any_sync(bool b) { return __any_sync(0xffffffffu, b); }
template <class T> DEV T shfl(T v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
template <class T> DEV T shfl_xor(T v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }

/* ---- Asynchronous copies ---- */
DEV void cp_async16(u32 to, const void *from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
DEV void cp_async16_or_zero(u32 to, const void *from, bool read) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read ? 16 : 0) : "memory");
}
DEV void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> DEV void cp_async_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

#if __CUDA_ARCH__ >= 900
#define ASM_90(...) asm volatile(__VA_ARGS__)
#else
#define ASM_90(...) __trap()
#endif
DEV void mbar_init(u32 bar, u32 arrivals) { ASM_90("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory"); }
DEV void mbar_fence_init() { ASM_90("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEV void mbar_arrive(u32 bar) { ASM_90("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory"); }
DEV void mbar_arrive_expect(u32 bar, u32 bytes) {
    ASM_90("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
DEV void mbar_wait(u32 bar, u32 parity) {
    ASM_90("{ .reg .pred p;\n again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n @!p bra again; }" ::"r"(bar),
           "r"(parity)
           : "memory");
}
DEV void bulk_copy(u32 to, const void *from, u32 bytes, u32 bar) {
    ASM_90("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
           "r"(bytes), "r"(bar)
           : "memory");
}
/* Code that is the same with and without wgmma calls it on sm_80, too, where there is only one proxy. */
DEV void fence_async() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* ---- Matrices of a warp ---- */
DEV void ldmatrix(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
DEV void ldmatrix_trans(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
DEV u32 movmatrix(u32 a) {
    u32 d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
    return d;
}
#define MMA(types)                                                                                                             \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." types                                                                \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                        \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                              \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
template <element E> DEV void mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (E == BF16)
        MMA("bf16.bf16");
    else
        MMA("f16.f16");
}

DEV void mma_u8s8(int (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEV void mma_u8s8_k16(int (&c)[4], const u32 (&a)[2], u32 b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* ---- Matrices of a warp group ---- */
#include "device_wgmma.h"

/* ---- Arithmetic ---- */
DEV float as_float(u32 u) { return __uint_as_float(u); }
DEV u32 as_bits(float f) { return __float_as_uint(f); }
DEV u32 byte_permute(u32 low, u32 high, u32 select) { return __byte_perm(low, high, select); }
DEV float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEV float mul_rn(float a, float b) { return __fmul_rn(a, b); }
DEV float add_rn(float a, float b) { return __fadd_rn(a, b); }
DEV float rcp_rn(float a) { return __frcp_rn(a); }
DEV float max_f32(float a, float b) { return fmaxf(a, b); }
DEV float ceil_f32(float a) { return ceilf(a); }
DEV float ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float lg2(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
template <element E> DEV u32 pack(float low, float high) {
    u32 r;
    if constexpr (E == BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
DEV float widen_f16(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
template <element E> DEV float low_half(u32 v) { return E == BF16 ? as_float(v << 16) : widen_f16((u16)v); }
template <element E> DEV float high_half(u32 v) { return E == BF16 ? as_float(v & 0xffff0000u) : widen_f16((u16)(v >> 16)); }

#endif
