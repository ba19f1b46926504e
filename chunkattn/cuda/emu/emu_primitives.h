/*
 * chunkattn/cuda/primitives.h for other compilers than nvcc: each primitive calls the emulation with the line of the call in
 * the kernel.
 */
#ifndef CHUNKATTN_CUDA_EMU_EMU_PRIMITIVES_H
#define CHUNKATTN_CUDA_EMU_EMU_PRIMITIVES_H

#include "chunkattn/cuda/primitives.h"

#include "emu.h"

#include <cmath>
#include <cstring>

namespace emu {

/* While a wgmma is under way its accumulators hold this NaN. Arithmetic passes it on, so uses are found at stores. */
constexpr u32 poison = 0x7fd5e1a7;
inline bool is_poison(float v) {
    u32 u;
    memcpy(&u, &v, 4);
    return (u & 0x7fffffff) == poison;
}
void report_poison(place at);
inline float watch(float v, place at) {
    if (is_poison(v)) report_poison(at);
    return v;
}

void load(void *to, const void *from, u32 bytes, place at);
void store(void *to, const void *from, u32 bytes, place at);
void check_prefetch(const void *p, place at); /* p must be in device memory */
u32 atomic_add(u32 *p, u32 v, bool acq_rel, place at);
void load_shared(void *to, u32 from, u32 bytes, place at);
void store_shared(u32 to, const void *from, u32 bytes, place at);

struct barrier_call {
    int id, threads; /* threads 0: the whole block */
    bool reduces, in;
};
bool barrier(const barrier_call &call, place at); /* the disjunction, if it reduces */
u32 shuffle(u32 v, int lane, bool exclusive_or, place at);

void copy_wait(int pending);
void load_matrix(u32 (&r)[4], u32 from, bool transposed, place at);
void multiply(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2], element e, place at);
void multiply_bytes(int (&c)[4], const u32 *a, const u32 *b, int k, place at); /* k: 16 or 32 */

/* The operands of wgmma: a descriptor or four registers of A, a descriptor of B. */
struct operands {
    const u32 *registers; /* or NULL */
    u64 a, b;
    major order; /* of B */
};
void group_multiply(float (*d)[4], int n, const operands &of, bool add, element e, place at);
void group_fence(place at);
void group_wait(int pending, float (*const *named)[4], int n_named, place at);
void set_registers(int n, bool increase, place at);

float half_to_float(u16 h);
u16 float_to_half(float f);
u16 float_to_bf16(float f);

inline float flush(float x) { return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x; }

/* ---- Primitives that need no template ---- */
#define HERE place at = {__builtin_FILE(), __builtin_LINE()}
int thread_index();
int block_index();
int block_count();
void sync_warp(HERE);
bool any_sync(bool b, HERE);
void cp_async16_or_zero(u32 to, const void *from, bool read, HERE);
void cp_async_commit();
void mbar_init(u32 bar, u32 arrivals, HERE);
void mbar_fence_init(HERE);
void mbar_arrive_expect(u32 bar, u32 bytes, HERE);
void mbar_wait(u32 bar, u32 parity, HERE);
void bulk_copy(u32 to, const void *from, u32 bytes, u32 bar, HERE);
void fence_async();
u32 movmatrix(u32 a, HERE);
void wgmma_commit(HERE);
#undef HERE

} // namespace emu

using emu::any_sync, emu::sync_warp, emu::thread_index, emu::block_index, emu::block_count;
using emu::cp_async16_or_zero, emu::cp_async_commit, emu::fence_async, emu::bulk_copy;
using emu::mbar_init, emu::mbar_fence_init, emu::mbar_arrive_expect, emu::mbar_wait;
using emu::movmatrix, emu::wgmma_commit;

#define KERNEL(threads, blocks_per_sm, name, args) extern "C" void name(args)
#define FROM_SM(sm, ...)                           __VA_ARGS__
#define UNROLL
#define UNROLL_BY(n)
#define HERE           emu::place at_ = {__builtin_FILE(), __builtin_LINE()}
#define ACCESS_SIZE(T) static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "an access has 4, 8 or 16 bytes")

/* ---- Loads and stores ---- */
DEV u32 shared_base() { return 0; }
template <class T> DEV T ld_global(const T *p, HERE) {
    ACCESS_SIZE(T);
    T v;
    emu::load(&v, p, sizeof v, at_);
    return v;
}
template <class T> DEV T ld_streaming(const T *p, HERE) { return ld_global(p, at_); }
template <class T> DEV void st_global(T *p, T v, HERE) {
    ACCESS_SIZE(T);
    emu::store(p, &v, sizeof v, at_);
}
template <class T> DEV void st_streaming(T *p, T v, HERE) { st_global(p, v, at_); }
template <class T> DEV T ld_shared(u32 from, HERE) {
    ACCESS_SIZE(T);
    T v;
    emu::load_shared(&v, from, sizeof v, at_);
    return v;
}
template <class T> DEV void st_shared(u32 to, T v, HERE) {
    ACCESS_SIZE(T);
    emu::store_shared(to, &v, sizeof v, at_);
}
DEV void prefetch(const void *p, HERE) { emu::check_prefetch(p, at_); }
DEV u32 atomic_add_acq_rel(u32 *p, u32 v, HERE) { return emu::atomic_add(p, v, true, at_); }
DEV u32 atomic_add_relaxed(u32 *p, u32 v, HERE) { return emu::atomic_add(p, v, false, at_); }

/* ---- Warps and blocks ---- */
DEV void sync_block(HERE) { emu::barrier({0, 0, false, false}, at_); }
DEV void sync_named(int id, int threads, HERE) { emu::barrier({id, threads, false, false}, at_); }
DEV bool sync_named_or(int id, int threads, bool b, HERE) { return emu::barrier({id, threads, true, b}, at_); }
template <class T> DEV T shuffle_bits(T v, int lane, bool exclusive_or, emu::place at) {
    static_assert(sizeof(T) == 4, "shuffles move 4 bytes");
    u32 u;
    memcpy(&u, &v, 4);
    u = emu::shuffle(u, lane, exclusive_or, at);
    memcpy(&v, &u, 4);
    return v;
}
template <class T> DEV T shfl(T v, int lane, HERE) { return shuffle_bits(v, lane, false, at_); }
template <class T> DEV T shfl_xor(T v, int mask, HERE) { return shuffle_bits(v, mask, true, at_); }

/* ---- Asynchronous copies ---- */
DEV void cp_async16(u32 to, const void *from, HERE) { cp_async16_or_zero(to, from, true, at_); }
template <int PENDING> DEV void cp_async_wait() { emu::copy_wait(PENDING); }
DEV void mbar_arrive(u32 bar, HERE) { mbar_arrive_expect(bar, 0, at_); }

/* ---- Matrices ---- */
DEV void ldmatrix(u32 (&r)[4], u32 from, HERE) { emu::load_matrix(r, from, false, at_); }
DEV void ldmatrix_trans(u32 (&r)[4], u32 from, HERE) { emu::load_matrix(r, from, true, at_); }
template <element E> DEV void mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2], HERE) { emu::multiply(c, a, b, E, at_); }
DEV void mma_u8s8(int (&c)[4], const u32 (&a)[4], const u32 (&b)[2], HERE) { emu::multiply_bytes(c, a, b, 32, at_); }
DEV void mma_u8s8_k16(int (&c)[4], const u32 (&a)[2], u32 b, HERE) { emu::multiply_bytes(c, a, &b, 16, at_); }
template <element E, major B, int ROWS> DEV void wgmma(float (&d)[ROWS][4], u64 a, u64 b, bool add, HERE) {
    emu::group_multiply(d, ROWS * 8, {nullptr, a, b, B}, add, E, at_);
}
template <element E, major B, int ROWS> DEV void wgmma(float (&d)[ROWS][4], const u32 (&a)[4], u64 b, bool add, HERE) {
    emu::group_multiply(d, ROWS * 8, {a, 0, b, B}, add, E, at_);
}
/* A default argument cannot follow a pack, so overloads are written out. The emulation needs no names in a fence. */
template <class D> DEV void wgmma_fence(D &, HERE) { emu::group_fence(at_); }
template <class D, class E> DEV void wgmma_fence(D &, E &, HERE) { emu::group_fence(at_); }
template <int PENDING, int N> DEV void wgmma_wait(float (&d)[N][4], HERE) {
    float(*const named[])[4] = {d};
    emu::group_wait(PENDING, named, 1, at_);
}
template <int PENDING, int N, int M> DEV void wgmma_wait(float (&d)[N][4], float (&e)[M][4], HERE) {
    float(*const named[])[4] = {d, e};
    emu::group_wait(PENDING, named, 2, at_);
}
template <int N> DEV void registers_increase(HERE) { emu::set_registers(N, true, at_); }
template <int N> DEV void registers_decrease(HERE) { emu::set_registers(N, false, at_); }

/* ---- Arithmetic ---- */
DEV float as_float(u32 u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
DEV u32 as_bits(float f) {
    u32 u;
    memcpy(&u, &f, 4);
    return u;
}
DEV u32 byte_permute(u32 low, u32 high, u32 select) {
    const u64 all = (u64)high << 32 | low;
    u32 r = 0;
    for (int i = 0; i < 4; i++) r |= (u32)(all >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}
DEV float fma_rn(float a, float b, float c, HERE) { return emu::watch(std::fma(a, b, c), at_); }
DEV float mul_rn(float a, float b, HERE) { return emu::watch(a * b, at_); }
DEV float add_rn(float a, float b, HERE) { return emu::watch(a + b, at_); }
DEV float rcp_rn(float a, HERE) { return emu::watch(1 / a, at_); }
DEV float max_f32(float a, float b, HERE) { return std::fmax(emu::watch(a, at_), emu::watch(b, at_)); }
DEV float ceil_f32(float a) { return std::ceil(a); }
DEV float ex2(float x, HERE) { return emu::flush(std::exp2(emu::flush(emu::watch(x, at_)))); }
DEV float lg2(float x, HERE) { return std::log2(emu::flush(emu::watch(x, at_))); }
template <element E> DEV u32 pack(float low, float high, HERE) {
    emu::watch(low, at_), emu::watch(high, at_);
    return E == BF16 ? emu::float_to_bf16(low) | (u32)emu::float_to_bf16(high) << 16
                     : emu::float_to_half(low) | (u32)emu::float_to_half(high) << 16;
}
template <element E> DEV float low_half(u32 v) { return E == BF16 ? as_float(v << 16) : emu::half_to_float((u16)v); }
template <element E> DEV float high_half(u32 v) {
    return E == BF16 ? as_float(v & 0xffff0000u) : emu::half_to_float((u16)(v >> 16));
}

#undef HERE
#undef ACCESS_SIZE
#endif
