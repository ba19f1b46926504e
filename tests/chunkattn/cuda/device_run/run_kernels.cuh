/* Kernels that find a machine's limits, fill K/V, and stamp the blocks of a decode kernel. */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_RUN_RUN_KERNELS_CUH
#define TESTS_CHUNKATTN_CUDA_DEVICE_RUN_RUN_KERNELS_CUH

#include "chunkattn/cuda/decode.cuh"
#include "chunkattn/cuda/products.cuh"
#include "run_kernels.h"

DEV void run_empty_body(const run_span_args &) {}

/* Pairs of bf16 with magnitudes in [0.5, 1) and random signs. */
DEV void run_fill_body(const run_fill_args &a) {
    for (int c = block_index(); c < a.n_chunks; c += block_count()) {
        const u32 seed = mixed((u32)ld_global(a.content + c) + 1);
        u4 *chunk = (u4 *)((unsigned char *)a.kv + c * a.chunk_bytes);
        for (int64_t i = thread_index(); i < a.chunk_bytes / 16; i += 256) {
            u4 unit;
            UNROLL for (u32 w = 0; w < 4; w++) unit.v[w] = (mixed(seed + (u32)i * 4 + w) & 0x807f807fu) | 0x3f003f00u;
            st_global(chunk + i, unit);
        }
    }
}

/* Eight loads of a thread are under way at a time. What is only read has to have a use, or ptxas drops the loads. */
template <bool COPY> DEV void pass_over(const run_span_args &a) {
    const int64_t stride = (int64_t)block_count() * 256;
    u32 sum = 0;
    for (int64_t i = (int64_t)block_index() * 256 + thread_index(); i < a.n_units; i += 8 * stride) {
        u4 unit[8] = {};
        UNROLL for (int j = 0; j < 8; j++) if (i + j * stride < a.n_units) unit[j] =
            ld_streaming((const u4 *)a.from + i + j * stride);
        UNROLL for (int j = 0; j < 8; j++) {
            if (!COPY)
                UNROLL for (int w = 0; w < 4; w++) sum ^= unit[j].v[w];
            else if (i + j * stride < a.n_units)
                st_streaming((u4 *)a.to + i + j * stride, unit[j]);
        }
    }
    if (!COPY && sum == 0x9e3779b9u) st_global((u32 *)a.to, sum);
}
DEV void run_read_body(const run_span_args &a) { pass_over<false>(a); }
DEV void run_copy_body(const run_span_args &a) { pass_over<true>(a); }

DEV void run_chase_body(const run_chase_args &a) {
    if (thread_index() != 0) return;
    u32 at = 0;
    UNROLL_BY(8) for (int i = 0; i < a.n_hops; i++) at = ld_global(a.next + at);
    st_global(a.end, at);
}

DEV void run_mma_chain_body(const run_mma_args &a) {
    const u32 one[4] = {0x3c003c00u, 0, 0, 0}, two[2] = {0x3c003c00u, 0};
    float c[4] = {};
    UNROLL_BY(8) for (int i = 0; i < a.n; i++) mma<BF16>(c, one, two);
    st_global(a.out + block_index() * 32 + thread_index(), c[0]);
}
DEV void run_mma_peak_body(const run_mma_args &a) {
    const u32 one[4] = {0x3c003c00u, 0, 0, 0}, two[2] = {0x3c003c00u, 0};
    float c[8][4] = {};
    for (int i = 0; i < a.n; i++) UNROLL for (int j = 0; j < 8; j++) mma<BF16>(c[j], one, two);
    float sum = 0;
    UNROLL for (int j = 0; j < 8; j++) sum = add_rn(sum, c[j][0]);
    st_global(a.out + block_index() * 256 + thread_index(), sum);
}

/* The clocks are no primitives: kernels do not use them. */
#ifdef __CUDACC__
DEV u64 now_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}
DEV u64 now_cycle() { return (u64)clock64(); }
#else
DEV u64 now_ns() { return 0; }
DEV u64 now_cycle() { return 0; }
#endif

DEV void run_stamped_body(const run_stamped_args &a) {
    run_stamp *mine = a.stamps + block_index();
    if (thread_index() == 0) {
        st_global(&mine->begin_ns, now_ns());
        st_global(&mine->begin_cycle, now_cycle());
    }
    decode<BF16, 128, TILES>(a.attend);
    sync_block();
    if (thread_index() == 0) {
        st_global(&mine->end_ns, now_ns());
        st_global(&mine->end_cycle, now_cycle());
    }
}

/* The bytes of shared memory that each kernel needs. */
namespace shared_of {
constexpr u32 run_empty = 0, run_fill = 0, run_read = 0, run_copy = 0, run_chase = 0, run_mma_chain = 0, run_mma_peak = 0,
              run_stamped = decode_shape<BF16, 128, TILES>::SHARED;
} // namespace shared_of

#define RUN_KERNEL(name, threads, blocks, shared, sm, args)                                                                    \
    static_assert((shared) == shared_of::name, "run_kernels.def: shared of " #name);                                           \
    KERNEL(threads, blocks, name, const args a) { FROM_SM(sm, name##_body(a)); }
#include "run_kernels.def"
#undef RUN_KERNEL

#endif
