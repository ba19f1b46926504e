/*
 * Whether sums of products have the same bits by every instruction that could compute them: by mma with a row in A and with the
 * row in B, which decode and prefill rely on, and by wgmma (docs/cuda.md, "One arithmetic for every row"). Each tile is random,
 * and its sums are compared after each of its steps.
 */
#ifndef CHUNKATTN_CUDA_PRODUCTS_CUH
#define CHUNKATTN_CUDA_PRODUCTS_CUH

#include "products.h"
#include "tile.cuh"

/* A tile in shared memory: X, Y and Y^T as tile.cuh stores them; the sums of wgmma behind them. */
enum {
    PRODUCT_Y = CA_PRODUCT_ROWS * CA_PRODUCT_K * 2,
    PRODUCT_Y_T = PRODUCT_Y + CA_PRODUCT_COLUMNS * CA_PRODUCT_K * 2,
    PRODUCT_SUMS = PRODUCT_Y_T + CA_PRODUCT_COLUMNS * CA_PRODUCT_K * 2,
    PRODUCT_SHARED = PRODUCT_SUMS,
    PRODUCT_SHARED_WGMMA = PRODUCT_SUMS + CA_PRODUCT_ROWS * CA_PRODUCT_COLUMNS * 4
};

/* ---- Random tiles ---- */

DEV u32 mixed(u32 x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/*
 * What a tile holds: numbers of about 1; finite ones of all magnitudes, so that most of a sum is lost; weights as of a softmax
 * in X; and products of which two neighbours in k nearly cancel.
 */
enum content { PLAIN, ALL_MAGNITUDES, WEIGHTS, CANCELLING, N_CONTENTS };

/* A number with the sign and the mantissa of the bits, and one of n exponents from `least` on. */
template <element E> DEV u32 number(u32 bits, u32 least, u32 n) {
    const u32 exponent = least + (bits >> 16) % n;
    return E == F16 ? (bits & 0x83ffu) | exponent << 10 : (bits & 0x807fu) | exponent << 7;
}
template <element E> DEV u32 any_number(u32 bits) { return E == F16 ? number<E>(bits, 0, 31) : number<E>(bits, 87, 81); }
template <element E> DEV u32 plain_number(u32 bits) { return number<E>(bits, E == F16 ? 11 : 123, 6); }

struct random_tile {
    u32 seed;
    content what;
};
DEV random_tile tile_of(int tile) { return {mixed((u32)tile + 1), (content)(tile % N_CONTENTS)}; }

/* Element i of X, and of Y, each in the order of rows. */
template <element E> DEV u32 x_number(const random_tile &t, u32 i) {
    const u32 bits = mixed(t.seed + (t.what == CANCELLING ? i & ~1u : i));
    if (t.what == ALL_MAGNITUDES) return any_number<E>(bits);
    if (t.what == WEIGHTS) return number<E>(bits & ~0x8000u, E == F16 ? 1 : 95, E == F16 ? 29 : 33);
    return plain_number<E>(bits);
}
template <element E> DEV u32 y_number(const random_tile &t, u32 i) {
    const u32 bits = mixed((t.seed ^ 0x9e3779b9u) + (t.what == CANCELLING ? i & ~1u : i));
    if (t.what == ALL_MAGNITUDES) return any_number<E>(bits);
    return plain_number<E>(bits) ^ (t.what == CANCELLING && i % 2 ? 0x8000u | (mixed(bits) & 3u) : 0u);
}

/* Write the lines of a tile of D columns: element `column` of line `line` is number_at(line, column). */
template <int D, int LINES, class F> DEV void write_tile(u32 to, F number_at) {
    for (u32 i = (u32)thread_index(); i < (u32)(LINES * (D / 8)); i += 128) {
        const u32 line = i / (D / 8), unit = i % (D / 8);
        u4 v;
        UNROLL for (u32 w = 0; w < 4; w++) v.v[w] = number_at(line, unit * 8 + 2 * w) | number_at(line, unit * 8 + 2 * w + 1)
                                                                                            << 16;
        st_shared(to + unit_offset<D, LINES>(line, unit), v);
    }
}

template <element E> DEV void write_product(int tile) {
    const u32 base = shared_base();
    const random_tile t = tile_of(tile);
    sync_block(); /* the tile before is no longer read */
    write_tile<CA_PRODUCT_K, CA_PRODUCT_ROWS>(base, [&](u32 row, u32 k) { return x_number<E>(t, row * CA_PRODUCT_K + k); });
    write_tile<CA_PRODUCT_K, CA_PRODUCT_COLUMNS>(base + PRODUCT_Y,
                                                 [&](u32 column, u32 k) { return y_number<E>(t, column * CA_PRODUCT_K + k); });
    write_tile<CA_PRODUCT_COLUMNS, CA_PRODUCT_K>(base + PRODUCT_Y_T,
                                                 [&](u32 k, u32 column) { return y_number<E>(t, column * CA_PRODUCT_K + k); });
    fence_async();
    sync_block();
}

/* ---- Sums ---- */

/* One sum after one step. The first way's are stored, the others' compared. */
DEV void check_sum(const ca_cuda_products_args &a, int way, int tile, int step, int row, int column, float sum) {
    if (way == a.spoiled && tile == 0 && step == 1 && row == 5 && column == 7) sum = as_float(as_bits(sum) ^ 1);
    float *place =
        a.sums + (int64_t)block_index() * CA_PRODUCT_SUMS + (step * CA_PRODUCT_ROWS + row) * CA_PRODUCT_COLUMNS + column;
    if (way == CA_PRODUCT_ROWS_AS_A) {
        st_global(place, sum);
        return;
    }
    const float want = ld_global(place);
    if (as_bits(want) == as_bits(sum) || atomic_add_relaxed(a.found->n_differ + way, 1) > 0) return;
    ca_cuda_difference *first = a.found->first + way;
    st_global(&first->tile, tile);
    st_global(&first->step, step);
    st_global(&first->row, row);
    st_global(&first->column, column);
    st_global(&first->want, want);
    st_global(&first->got, sum);
}

/* Row i of A is row (i + down) % 16 of the warp's 16, and column i of B column (i + right) % 8 of eight. */
template <element E> DEV void rows_as_a(const ca_cuda_products_args &a, int way, int tile, int down, int right) {
    const int lane = thread_index() % 32, first = thread_index() / 32 * 16;
    const u32 x = shared_base(), y = x + PRODUCT_Y;
    UNROLL_BY(1) for (int n = 0; n < CA_PRODUCT_COLUMNS; n += 8) {
        float c[4] = {};
        UNROLL_BY(1) for (int step = 0; step < CA_PRODUCT_STEPS; step++) {
            u32 rows[4], f[4];
            ldmatrix(rows, x + unit_offset<CA_PRODUCT_K, CA_PRODUCT_ROWS>((u32)(first + (lane + down) % 16),
                                                                          (u32)(2 * step + lane / 16)));
            ldmatrix(f, y + unit_offset<CA_PRODUCT_K, CA_PRODUCT_COLUMNS>((u32)(n + (lane + right) % 8),
                                                                          (u32)(2 * step + lane / 8 % 2)));
            const u32 columns[2] = {f[0], f[1]};
            mma<E>(c, rows, columns);
            UNROLL for (int i = 0; i < 4; i++) check_sum(a, way, tile, step, first + (lane / 4 + i / 2 * 8 + down) % 16,
                                                         n + (lane % 4 * 2 + i % 2 + right) % 8, c[i]);
        }
    }
}

template <element E> DEV void rows_as_b(const ca_cuda_products_args &a, int tile) {
    const int lane = thread_index() % 32, warp = thread_index() / 32;
    const u32 x = shared_base(), y = x + PRODUCT_Y;
    UNROLL_BY(1) for (int i = 0; i < CA_PRODUCT_COLUMNS / 16 * 2; i++) {
        const int n = i / 2 * 16, first = warp * 16 + i % 2 * 8;
        float c[4] = {};
        UNROLL_BY(1) for (int step = 0; step < CA_PRODUCT_STEPS; step++) {
            u32 columns[4], f[4];
            ldmatrix(columns,
                     y + unit_offset<CA_PRODUCT_K, CA_PRODUCT_COLUMNS>((u32)(n + lane % 16), (u32)(2 * step + lane / 16)));
            ldmatrix(f,
                     x + unit_offset<CA_PRODUCT_K, CA_PRODUCT_ROWS>((u32)(first + lane % 8), (u32)(2 * step + lane / 8 % 2)));
            const u32 rows[2] = {f[0], f[1]};
            mma<E>(c, columns, rows);
            UNROLL for (int j = 0; j < 4; j++)
                check_sum(a, CA_PRODUCT_ROWS_AS_B, tile, step, first + lane % 4 * 2 + j % 2, n + lane / 4 + j / 2 * 8, c[j]);
        }
    }
}

/* The sums of a warp's 16 rows pass through shared memory, or the comparison would be compiled for each register. */
template <int N> DEV void check_group_sums(const ca_cuda_products_args &a, int way, int tile, int step, float (&d)[N / 8][4]) {
    const int lane = thread_index() % 32, first = thread_index() / 32 * 16;
    const u32 sums = shared_base() + PRODUCT_SUMS;
    UNROLL for (int j = 0; j < N / 8; j++) UNROLL for (int i = 0; i < 4; i++) st_shared(
        sums + (u32)((first + lane / 4 + i / 2 * 8) * CA_PRODUCT_COLUMNS + j * 8 + lane % 4 * 2 + i % 2) * 4, d[j][i]);
    sync_warp();
    UNROLL_BY(1) for (int i = lane; i < 16 * N; i += 32) {
        const int row = first + i / N, column = i % N;
        check_sum(a, way, tile, step, row, column, ld_shared<float>(sums + (u32)(row * CA_PRODUCT_COLUMNS + column) * 4));
    }
    sync_warp();
}

template <element E, major Y, bool REGISTERS, int N> DEV void by_wgmma(const ca_cuda_products_args &a, int way, int tile) {
    const int lane = thread_index() % 32, first = thread_index() / 32 * 16;
    const u32 x = shared_base();
    float d[N / 8][4] = {};
    UNROLL_BY(1) for (int step = 0; step < CA_PRODUCT_STEPS; step++) {
        const u64 columns = Y == K_MAJOR ? wgmma_descriptor<128>(x + PRODUCT_Y + (u32)step * 32, 0, 1024)
                                         : wgmma_descriptor<128>(x + PRODUCT_Y_T + (u32)step * 2048, CA_PRODUCT_K * 128, 1024);
        if constexpr (REGISTERS) {
            u32 rows[4];
            ldmatrix(rows,
                     x + unit_offset<CA_PRODUCT_K, CA_PRODUCT_ROWS>((u32)(first + lane % 16), (u32)(2 * step + lane / 16)));
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
template <element E, major Y, bool REGISTERS>
DEV void by_wgmma_of_each_size(const ca_cuda_products_args &a, int way, int tile) {
    by_wgmma<E, Y, REGISTERS, 32>(a, way, tile);
    by_wgmma<E, Y, REGISTERS, 64>(a, way + 1, tile);
    by_wgmma<E, Y, REGISTERS, 128>(a, way + 2, tile);
    by_wgmma<E, Y, REGISTERS, 256>(a, way + 3, tile);
}
/* Compares the sums of each tile by all ways of mma, and by those of wgmma. */
template <element E, bool BY_WGMMA> DEV void products(const ca_cuda_products_args &a) {
    for (int tile = block_index(); tile < a.n_tiles; tile += block_count()) {
        write_product<E>(tile);
        rows_as_a<E>(a, CA_PRODUCT_ROWS_AS_A, tile, 0, 0);
        sync_block();
        rows_as_a<E>(a, CA_PRODUCT_ROWS_MOVED, tile, 1 + tile % 15, tile / 15 % 8);
        rows_as_b<E>(a, tile);
        if constexpr (BY_WGMMA) {
            by_wgmma_of_each_size<E, K_MAJOR, false>(a, CA_PRODUCT_BY_WGMMA, tile);
            by_wgmma_of_each_size<E, K_MAJOR, true>(a, CA_PRODUCT_BY_WGMMA + 4, tile);
            by_wgmma_of_each_size<E, MN_MAJOR, false>(a, CA_PRODUCT_BY_WGMMA + 8, tile);
            by_wgmma_of_each_size<E, MN_MAJOR, true>(a, CA_PRODUCT_BY_WGMMA + 12, tile);
        }
    }
}

#endif
