/*
 * The device primitives: everything that a kernel uses of CUDA.
 *
 * nvcc makes one PTX instruction of each. Any other compiler includes the emulation (chunkattn/cuda/emu/emu_primitives.h),
 * which runs the same kernel source on the host, checks every access and counts it. docs/cuda.md describes the emulation.
 *
 * Terms. A lane is a thread of a warp (32 lanes); a warp group is four consecutive warps, the first of them a multiple of four.
 * "All lanes" or "all threads of the warp group" means that every one of them must execute the same call, converged; there are
 * no partial masks. Shared memory is addressed by 32-bit byte offsets, never by pointers, so that every access can be checked.
 * Addresses must be multiples of the access's size unless a primitive says otherwise. "sm" is the first compute capability that
 * has the instruction (80 where nothing is said); a kernel that calls it on a smaller one traps.
 */
#ifndef CHUNKATTN_CUDA_PRIMITIVES_H
#define CHUNKATTN_CUDA_PRIMITIVES_H

#include <cstddef>
#include <cstdint>

using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

/* 16 bytes that move in one access. */
struct alignas(16) f4 {
    float v[4];
};
struct alignas(16) u4 {
    u32 v[4];
};

/* The 16-bit type of a matrix operand. Two elements share a 32-bit register; the one with the lower index is the low half. */
enum element { BF16, F16 };

/* How B of wgmma is stored: consecutive elements run along k, or along n. */
enum major { K_MAJOR, MN_MAJOR };

#ifdef __CUDACC__
#define DEV static __device__ __forceinline__
#else
#define DEV static inline
#endif

template <int SWIZZLE> DEV u64 wgmma_descriptor(u32 at, u32 leading, u32 stride) {
    static_assert(SWIZZLE == 128 || SWIZZLE == 64, "the modes that kernels use");
    constexpr u64 mode = SWIZZLE == 128 ? 1 : 2;
    return (u64)(at >> 4 & 0x3fff) | (u64)(leading >> 4 & 0x3fff) << 16 | (u64)(stride >> 4 & 0x3fff) << 32 | mode << 62;
}

#ifdef __CUDACC__
#include "device_primitives.h"
#else
#include "chunkattn/cuda/emu/emu_primitives.h"
#endif

/*
 * INDICES
 *   int thread_index()                       of the block, from 0; blocks have one dimension
 *   int block_index(), block_count()         of the grid, which has one dimension
 *   u32 shared_base()                        offset of the block's dynamic shared memory, a multiple of 1024
 *
 * DEVICE MEMORY. T has 4, 8 or 16 bytes
 *   T ld_global(const T *p)                  ld.global
 *   T ld_streaming(const T *p)               ld.global.cs: read once, the first to be evicted from the caches
 *   void st_global(T *p, T v)                st.global
 *   void st_streaming(T *p, T v)             st.global.cs
 *   void prefetch(const void *p)             prefetch.global.L1: a hint that the line at p will be read; p is valid
 *   u32 atomic_add_acq_rel(u32 *p, u32 v)    atom.acq_rel.gpu.add, returns the old value. What a thread wrote before its call,
 *                                            and what it had seen, is visible to a thread whose later call reads its value or
 *                                            one that follows from it
 *   u32 atomic_add_relaxed(u32 *p, u32 v)    atom.relaxed.gpu.add: orders nothing
 *
 * SHARED MEMORY. T has 4, 8 or 16 bytes
 *   T ld_shared<T>(u32 at)                   ld.shared
 *   void st_shared(u32 at, T v)              st.shared
 *
 * WARPS AND BLOCKS
 *   void sync_warp()                         bar.warp.sync, all lanes: orders their accesses of shared and device memory
 *   void sync_block()                        bar.sync 0, all threads of the block
 *   void sync_named(int id, int threads)     bar.sync: barrier 1 <= id < 16 for `threads` threads, a multiple of 32
 *   bool sync_named_or(int id, int threads, bool b)   bar.red.or: the same; whether b holds in one of them
 *   bool any_sync(bool b)                    vote.sync.any, all lanes. Votes and shuffles order no accesses of memory
 *   T shfl(T v, int lane)                    shfl.sync.idx, all lanes, T has 4 bytes: v of lane (lane % 32)
 *   T shfl_xor(T v, int mask)                shfl.sync.bfly: v of lane (own ^ mask), 0 <= mask < 32
 *
 * ASYNCHRONOUS COPIES, each of a thread
 *   void cp_async16(u32 to, const void *from)         cp.async.cg: 16 bytes from device to shared memory; to and from are
 *                                            multiples of 16
 *   void cp_async16_or_zero(u32 to, const void *from, bool read)     16 zero bytes where read is false; from is valid even so
 *   void cp_async_commit()                   the thread's copies since its last commit become a group, perhaps an empty one
 *   void cp_async_wait<PENDING>()            waits until at most the PENDING last groups of the thread are under way. What
 *                                            arrived is visible to this thread, to others after a sync_warp or a barrier
 *
 * MBARRIERS AND BULK COPIES (sm 90). An mbarrier is 8 bytes of shared memory
 *   void mbar_init(u32 bar, u32 arrivals)    a phase completes after that many arrivals and all bytes that are expected in it
 *   void mbar_fence_init()                   after the mbar_init calls, by the same thread; a barrier follows before other
 *                                            threads use them
 *   void mbar_arrive(u32 bar)                one arrival; releases what the thread wrote
 *   void mbar_arrive_expect(u32 bar, u32 bytes)       expects more bytes in this phase, then arrives
 *   void mbar_wait(u32 bar, u32 parity)      waits until the phase of this parity is complete; acquires what was released in
 *                                            it. Phases count from 0, so that the first wait has parity 0; before phase 0 is
 *                                            complete a wait with parity 1 returns at once
 *   void bulk_copy(u32 to, const void *from, u32 bytes, u32 bar)     cp.async.bulk, by one thread: to, from and bytes are
 *                                            multiples of 16; completes that many bytes of bar's phase
 *   void fence_async()                       fence.proxy.async: what this thread wrote to shared memory with st_shared
 *                                            or (after its wait) cp_async16 may be read by wgmma and overwritten by
 *                                            bulk copies after the next barrier. Nothing on sm 80
 *
 * MATRICES OF A WARP, all lanes. A row of an 8 x 8 matrix of 16-bit elements is 16 bytes at one address. Lane i holds its
 * elements [i / 4][2 (i % 4)] and [i / 4][2 (i % 4) + 1]. Lanes 8 m .. 8 m + 7 give the addresses of matrix m's rows, which
 * is register r[m]
 *   void ldmatrix(u32 (&r)[4], u32 at)       ldmatrix.x4
 *   void ldmatrix_trans(u32 (&r)[4], u32 at)          each matrix is transposed
 *   u32 movmatrix(u32 a)                     the transpose of the matrix that the lanes hold
 *   void mma<E>(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2])
 *                                            mma.m16n8k16: C [16][8] += A [16][16] B [16][8], sums in f32. With g = lane / 4
 *                                            and t = 2 (lane % 4):
 *                                              a[0..3]: A [g][t], [g + 8][t], [g][t + 8], [g + 8][t + 8], and the next column
 *                                              b[0..1]: B [t][g], [t + 8][g], and the next row
 *                                              c[0..3]: C [g][t], [g][t + 1], [g + 8][t], [g + 8][t + 1]
 *   void mma_u8s8(int (&c)[4], const u32 (&a)[4], const u32 (&b)[2])
 *                                            mma.m16n8k32: A [16][32] of u8 and B [32][8] of s8, sums in s32. A register has
 *                                            four neighbours along k, with t = 4 (lane % 4) where A and B are concerned:
 *                                              a[0..3]: A [g][t], [g + 8][t], [g][t + 16], [g + 8][t + 16]
 *                                              b[0..1]: B [t][g], [t + 16][g]; c as above
 *   void mma_u8s8_k16(int (&c)[4], const u32 (&a)[2], u32 b)     mma.m16n8k16: the same with the first halves of A and B
 *
 * MATRICES OF A WARP GROUP (sm 90a), all its threads
 *   u64 wgmma_descriptor<SWIZZLE>(u32 at, u32 leading, u32 stride)
 *                                            an operand in shared memory. SWIZZLE is the bytes of a row: 128 or 64. 8 rows are
 *                                            an atom, which begins at a multiple of its size. Bits 4.. of an offset are
 *                                            exclusive-ored with bits 7.. (3 or 2 bits)
 *     K_MAJOR                                  A row is one m (or n), along k. stride: bytes from 8 rows to the next 8.
 *                                              leading: unused. The next 16 in k begin 32 bytes further in the row
 *     MN_MAJOR                                 A row is one k, along n. stride: bytes from 8 rows to the next 8. leading:
 *                                              bytes from SWIZZLE / 2 elements in n to the next
 *   void wgmma<E, B>(float (&d)[N / 8][4], u64 a, u64 b, bool add)
 *                                            D [64][N] = A [64][16] B [16][N], plus D if add. A is K_MAJOR, B has the major
 *                                            B; N is 32, 64, 128 or 256. Asynchronous: until the wait, d and what
 *                                            the descriptors describe must not be touched. Warp w of the group has rows
 *                                            16 w ..; of these, d[j] is as mma's c for columns 8 j ..
 *   void wgmma<E, B>(float (&d)[N / 8][4], const u32 (&a)[4], u64 b, bool add)
 *                                            A in registers: of warp w rows 16 w .., as mma's a. Until the wait, a must stay
 *                                            alive and as it is
 *   void wgmma_fence(d, a, ...)              before the first wgmma and after registers of its operands were touched; names
 *                                            them, so that the compiler has written them by then
 *   void wgmma_commit()                      the wgmmas since the last commit become a group
 *   void wgmma_wait<PENDING>(d, ...)         waits until at most the PENDING last groups are under way; names the accumulators
 *                                            that are complete then, or the compiler could read them earlier
 *   void registers_increase<N>(), registers_decrease<N>()
 *                                            setmaxnreg: the registers of each thread of this warp group, 24 .. 256 in steps
 *                                            of 8. An increase waits until others of the block have released enough
 *
 * ARITHMETIC on f32. mul_rn and add_rn are never fused
 *   float fma_rn(a, b, c), mul_rn(a, b), add_rn(a, b), rcp_rn(a)     rounded to nearest even
 *   float max_f32(a, b)                      the other one if one is NaN
 *   float ceil_f32(a)
 *   float ex2(x), lg2(x)                     2^x and log2 x, approximate (2 ulp), subnormals are zero
 *   u32 pack<E>(float low, float high)       two f32 rounded to nearest even
 *   float low_half<E>(u32 v), high_half<E>(u32 v)     one of two elements as f32
 *   float as_float(u32), u32 as_bits(float)
 *   u32 byte_permute(u32 low, u32 high, u32 select)   prmt: byte i of the result is that of the eight which bits 4 i .. of
 *                                            `select` name, below 8 each
 */
#endif
