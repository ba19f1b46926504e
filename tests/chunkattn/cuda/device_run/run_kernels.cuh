/* Kernels that find a machine's limits, fill K/V, stamp the blocks of a decode kernel, and compare products. */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_RUN_RUN_KERNELS_CUH
#define TESTS_CHUNKATTN_CUDA_DEVICE_RUN_RUN_KERNELS_CUH

#include "chunkattn/cuda/decode.cuh"
#include "run_kernels.h"

DEV void run_empty_body(const run_span_args &) {}

DEV u32 mixed(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}
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

/* ---- The same products by every instruction ---- */

/* A tile in shared memory: X, Y and Y^T as tile.cuh stores them; the sums of wgmma behind them. */
enum {
    PRODUCT_Y = PRODUCT_ROWS * PRODUCT_K * 2,
    PRODUCT_Y_T = PRODUCT_Y + PRODUCT_COLUMNS * PRODUCT_K * 2,
    PRODUCT_SUMS = PRODUCT_Y_T + PRODUCT_COLUMNS * PRODUCT_K * 2,
    PRODUCT_SHARED = PRODUCT_SUMS,
    PRODUCT_SHARED_WGMMA = PRODUCT_SUMS + PRODUCT_ROWS * PRODUCT_COLUMNS * 4
};

template <int D, int LINES> DEV void stage_tile(u32 to, const u16 *from) {
    for (int i = thread_index(); i < LINES * (D / 8); i += 128)
        st_shared(to + unit_offset<D, LINES>((u32)i / (D / 8), (u32)i % (D / 8)), ld_global((const u4 *)from + i));
}
DEV void stage_product(const run_products_args &a, int64_t tile) {
    const u32 base = shared_base();
    sync_block(); /* the tile before is no longer read */
    stage_tile<PRODUCT_K, PRODUCT_ROWS>(base, a.x + tile * (PRODUCT_ROWS * PRODUCT_K));
    stage_tile<PRODUCT_K, PRODUCT_COLUMNS>(base + PRODUCT_Y, a.y + tile * (PRODUCT_COLUMNS * PRODUCT_K));
    stage_tile<PRODUCT_COLUMNS, PRODUCT_K>(base + PRODUCT_Y_T, a.y_t + tile * (PRODUCT_COLUMNS * PRODUCT_K));
    fence_async();
    sync_block();
}

/* One sum after one step. The first way's are stored, the others' compared. */
DEV void check_sum(const run_products_args &a, int way, int tile, int step, int row, int column, float sum) {
    if (way == a.spoiled && tile == 0 && step == 1 && row == 5 && column == 7) sum = as_float(as_bits(sum) ^ 1);
    float *place = a.sums + (((int64_t)tile * PRODUCT_STEPS + step) * PRODUCT_ROWS + row) * PRODUCT_COLUMNS + column;
    if (way == ROWS_AS_A) {
        st_global(place, sum);
        return;
    }
    const float want = ld_global(place);
    if (as_bits(want) == as_bits(sum) || atomic_add_relaxed(a.n_differ + way, 1) > 0) return;
    run_difference *first = a.first + way;
    st_global(&first->tile, tile);
    st_global(&first->step, step);
    st_global(&first->row, row);
    st_global(&first->column, column);
    st_global(&first->want, want);
    st_global(&first->got, sum);
}

/* Row i of A is row (i + down) % 16 of the warp's 16, and column i of B column (i + right) % 8 of eight. */
template <element E> DEV void rows_as_a(const run_products_args &a, int way, int tile, int down, int right) {
    const int lane = thread_index() % 32, first = thread_index() / 32 * 16;
    const u32 x = shared_base(), y = x + PRODUCT_Y;
    UNROLL_BY(1) for (int n = 0; n < PRODUCT_COLUMNS; n += 8) {
        float c[4] = {};
        UNROLL_BY(1) for (int step = 0; step < PRODUCT_STEPS; step++) {
            u32 rows[4], f[4];
            ldmatrix(rows,
                     x + unit_offset<PRODUCT_K, PRODUCT_ROWS>((u32)(first + (lane + down) % 16), (u32)(2 * step + lane / 16)));
            ldmatrix(
                f, y + unit_offset<PRODUCT_K, PRODUCT_COLUMNS>((u32)(n + (lane + right) % 8), (u32)(2 * step + lane / 8 % 2)));
            const u32 columns[2] = {f[0], f[1]};
            mma<E>(c, rows, columns);
            UNROLL for (int i = 0; i < 4; i++) check_sum(a, way, tile, step, first + (lane / 4 + i / 2 * 8 + down) % 16,
                                                         n + (lane % 4 * 2 + i % 2 + right) % 8, c[i]);
        }
    }
}

template <element E> DEV void rows_as_b(const run_products_args &a, int tile) {
    const int lane = thread_index() % 32, warp = thread_index() / 32;
    const u32 x = shared_base(), y = x + PRODUCT_Y;
    UNROLL_BY(1) for (int i = 0; i < PRODUCT_COLUMNS / 16 * 2; i++) {
        const int n = i / 2 * 16, first = warp * 16 + i % 2 * 8;
        float c[4] = {};
        UNROLL_BY(1) for (int step = 0; step < PRODUCT_STEPS; step++) {
            u32 columns[4], f[4];
            ldmatrix(columns, y + unit_offset<PRODUCT_K, PRODUCT_COLUMNS>((u32)(n + lane % 16), (u32)(2 * step + lane / 16)));
            ldmatrix(f, x + unit_offset<PRODUCT_K, PRODUCT_ROWS>((u32)(first + lane % 8), (u32)(2 * step + lane / 8 % 2)));
            const u32 rows[2] = {f[0], f[1]};
            mma<E>(c, columns, rows);
            UNROLL for (int j = 0; j < 4; j++)
                check_sum(a, ROWS_AS_B, tile, step, first + lane % 4 * 2 + j % 2, n + lane / 4 + j / 2 * 8, c[j]);
        }
    }
}

template <element E> DEV void products(const run_products_args &a) {
    for (int tile = block_index(); tile < a.n_tiles; tile += block_count()) {
        stage_product(a, tile);
        rows_as_a<E>(a, ROWS_AS_A, tile, 0, 0);
        sync_block();
        rows_as_a<E>(a, ROWS_AS_A_MOVED, tile, 1 + tile % 15, tile / 15 % 8);
        rows_as_b<E>(a, tile);
    }
}
DEV void run_products_bf16_body(const run_products_args &a) { products<BF16>(a); }
DEV void run_products_f16_body(const run_products_args &a) { products<F16>(a); }

/* The sums of a warp's 16 rows pass through shared memory, or the comparison would be compiled for each register. */
template <int N> DEV void check_group_sums(const run_products_args &a, int way, int tile, int step, float (&d)[N / 8][4]) {
    const int lane = thread_index() % 32, first = thread_index() / 32 * 16;
    const u32 sums = shared_base() + PRODUCT_SUMS;
    UNROLL for (int j = 0; j < N / 8; j++) UNROLL for (int i = 0; i < 4; i++)
        st_shared(sums + (u32)((first + lane / 4 + i / 2 * 8) * PRODUCT_COLUMNS + j * 8 + lane % 4 * 2 + i % 2) * 4, d[j][i]);
    sync_warp();
    UNROLL_BY(1) for (int i = lane; i < 16 * N; i += 32) {
        const int row = first + i / N, column = i % N;
        check_sum(a, way, tile, step, row, column, ld_shared<float>(sums + (u32)(row * PRODUCT_COLUMNS + column) * 4));
    }
    sync_warp();
}

template <element E, major Y, bool REGISTERS, int N> DEV void by_wgmma(const run_products_args &a, int way, int tile) {
    const int lane = thread_index() % 32, first = thread_index() / 32 * 16;
    const u32 x = shared_base();
    float d[N / 8][4] = {};
    UNROLL_BY(1) for (int step = 0; step < PRODUCT_STEPS; step++) {
        const u64 columns = Y == K_MAJOR ? wgmma_descriptor<128>(x + PRODUCT_Y + (u32)step * 32, 0, 1024)
                                         : wgmma_descriptor<128>(x + PRODUCT_Y_T + (u32)step * 2048, PRODUCT_K * 128, 1024);
        if constexpr (REGISTERS) {
            u32 rows[4];
            ldmatrix(rows, x + unit_offset<PRODUCT_K, PRODUCT_ROWS>((u32)(first + lane % 16), (u32)(2 * step + lane / 16)));
            wgmma_fence(d, rows);
            wgmma<E, Y>(d, rows, columns, true);
            wgmma_commit();
            wgmma_wait<0>(d);
        } else {
            wgmma_fence(d);
            wgmma<E, Y>(d, wgmma_descriptor<128>(x + (u32)step * 32, 0, 1024), columns, true);
            wgmma_commit();
            wgmma_wait<0>(d);
        }
        check_group_sums<N>(a, way, tile, step, d);
    }
}
template <element E, major Y, bool REGISTERS> DEV void by_wgmma_of_each_size(const run_products_args &a, int way, int tile) {
    by_wgmma<E, Y, REGISTERS, 32>(a, way, tile);
    by_wgmma<E, Y, REGISTERS, 64>(a, way + 1, tile);
    by_wgmma<E, Y, REGISTERS, 128>(a, way + 2, tile);
    by_wgmma<E, Y, REGISTERS, 256>(a, way + 3, tile);
}
template <element E> DEV void products_by_wgmma(const run_products_args &a) {
    for (int tile = block_index(); tile < a.n_tiles; tile += block_count()) {
        stage_product(a, tile);
        by_wgmma_of_each_size<E, K_MAJOR, false>(a, WGMMA, tile);
        by_wgmma_of_each_size<E, K_MAJOR, true>(a, WGMMA + 4, tile);
        by_wgmma_of_each_size<E, MN_MAJOR, false>(a, WGMMA + 8, tile);
        by_wgmma_of_each_size<E, MN_MAJOR, true>(a, WGMMA + 12, tile);
    }
}
DEV void run_products_wgmma_bf16_body(const run_products_args &a) { products_by_wgmma<BF16>(a); }
DEV void run_products_wgmma_f16_body(const run_products_args &a) { products_by_wgmma<F16>(a); }

/* The bytes of shared memory that each kernel needs. */
namespace shared_of {
constexpr u32 run_empty = 0, run_fill = 0, run_read = 0, run_copy = 0, run_chase = 0, run_mma_chain = 0, run_mma_peak = 0,
              run_stamped = decode_shape<BF16, 128, TILES>::SHARED, run_products_bf16 = PRODUCT_SHARED,
              run_products_f16 = PRODUCT_SHARED, run_products_wgmma_bf16 = PRODUCT_SHARED_WGMMA,
              run_products_wgmma_f16 = PRODUCT_SHARED_WGMMA;
} // namespace shared_of

#define RUN_KERNEL(name, threads, blocks, shared, sm, args)                                                                    \
    static_assert((shared) == shared_of::name, "run_kernels.def: shared of " #name);                                           \
    KERNEL(threads, blocks, name, const args a) { FROM_SM(sm, name##_body(a)); }
#include "run_kernels.def"
#undef RUN_KERNEL

#endif
