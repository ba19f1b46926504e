/*
 * int8 K and V through vpdpbusd, for a level of any vector width that has it: a line of quads is an operand as it is stored.
 *
 * 6 rows x TILE_VECS vectors of 32-bit sums. vpdpbusd multiplies unsigned bytes with signed ones. Scores: the panel is
 * unsigned, n + 128, so a row's sum starts at -128 times the sum of its q. Values: the weights are unsigned, 16 bits in two
 * bytes. The high bytes go over the panel first, then the sum is shifted left by 8 and the low bytes go over the panel, which
 * is in L1 by then. With up to 3 rows both have sums in registers and pass over the panel together.
 *
 * Before it is included, a level must have included vec256.h or vec512.h, and defined TILE_VECS (dot_tiles.h) and
 *     TILE_INLINE veci dot(veci acc, veci x, veci y)   acc + unsigned x times signed y
 */
#ifndef CHUNKATTN_ATTN_X86_INT8_QUAD_TILES_H
#define CHUNKATTN_ATTN_X86_INT8_QUAD_TILES_H

#include "int8_quads.h"

enum { TILE_ROWS = 6, STREAM_ROWS = 0, WEIGHT_BYTES = 2, INTEGERS = 1 };

#include "chunkattn.h"
#include "chunkattn/cache/layout.h"
#include "product.h"

/* Of q 4 bytes a quad; of weights 16, weights_to_quads, which stand just where the scores they come from were. */
enum { Q_QUAD_BYTES = 4, WEIGHT_QUAD_BYTES = 16, LOW = 4 /* low bytes stand so far behind the high ones */ };

TILE_INLINE void weights_to_factors(float *weights, vec up) { vi_store(weights, weights_to_quads(weights, up)); }
static inline veci factors_of_nothing(void) { return vi_set1(0); }

#include "int8_seal.h"

static void pack_query(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2, void *packed) {
    char *to = packed;
    for (int32_t r = 0; r < n_rows; r++, q += row_stride, to += query_bytes(d_k))
        *(factors_end *)(to + query_bytes(d_k) - END_BYTES) = round_query(q, d_k, scale_log2, (signed char *)to);
}

/*
 * A line of quads times a quad of each row; of K the panel is unsigned, of V the factors. parts: 2 if low bytes have sums of
 * their own, behind those of the high ones.
 */
TILE_INLINE void multiply_line(veci acc[TILE_ROWS][TILE_VECS], int rows, int parts, int vecs, const char *line, bool values,
                               const char *factors, ptrdiff_t factor_stride) {
    veci x[TILE_VECS];
#pragma GCC unroll 4
    for (int j = 0; j < vecs; j++) x[j] = vi_load(line + (size_t)j * sizeof(vec));
#pragma GCC unroll 6
    for (int i = 0; i < rows * parts; i++) {
        const veci w = vi_set1(*(const int32_t *)(factors + i % rows * factor_stride + i / rows * LOW));
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++) acc[i][j] = values ? dot(acc[i][j], w, x[j]) : dot(acc[i][j], x[j], w);
    }
}

TILE_INLINE void multiply_lines(const product *p, int rows, int vecs, enum product_use use, bool values) {
    veci acc[TILE_ROWS][TILE_VECS];
    const int parts = values && 2 * rows <= TILE_ROWS ? 2 : 1;
    const ptrdiff_t stride = p->factor_stride;
    const char *factors = p->factors;
#pragma GCC unroll 6
    for (int i = 0; i < rows * parts; i++) {
        const veci start = values ? vi_set1(0) : vi_set1(end_of(p, i)->start);
#pragma GCC unroll 4
        for (int j = 0; j < vecs; j++) acc[i][j] = start;
    }

    const int ahead = use == USE_FIRST ? (vecs * (int)sizeof(vec) + 63) / 64 : 1,
              quad_bytes = values ? WEIGHT_QUAD_BYTES : Q_QUAD_BYTES;
    const char *line = p->panel, *next = p->next;
    int32_t n = p->n / 4; /* at least one group: such loops leave the sums in their registers */
    do {
#pragma GCC unroll 4
        for (int j = 0; j < ahead; j++) _mm_prefetch(next + j * 64, _MM_HINT_T1);
        multiply_line(acc, rows, parts, vecs, line, values, factors, stride);
        factors += quad_bytes;
        line += p->panel_stride;
        next += p->next_step;
    } while (--n > 0);
    if (values) {
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int j = 0; j < vecs; j++) {
                acc[i][j] = vi_sll(acc[i][j], 8);
                if (parts == 2) acc[i][j] = vi_add(acc[i][j], acc[rows + i][j]);
            }
    }
    if (values && parts == 1) {
        line = p->panel;
        factors = (const char *)p->factors + LOW;
        n = p->n / 4;
        do {
            multiply_line(acc, rows, parts, vecs, line, values, factors, stride);
            factors += quad_bytes;
            line += p->panel_stride;
        } while (--n > 0);
    }

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) store_sums(p, i, acc[i], vecs, values);
}

TILE_INLINE void multiply(const product *p, int rows, int vecs, enum product_use use) {
    if (p->accumulate)
        multiply_lines(p, rows, vecs, use, true);
    else
        multiply_lines(p, rows, vecs, use, false);
}

#include "dot_tiles.h"

static inline tile_shape shape_of(int32_t n_rows, int32_t vecs) {
    (void)n_rows, (void)vecs;
    return (tile_shape){TILE_ROWS, TILE_VECS};
}

static inline product_fn find_product(cattn_type type, enum product_use use, int32_t rows, int32_t vecs) {
    (void)type;
    return find_tiles(use, rows, vecs);
}

#include "attend.h"

#include "write.h"

/* The level's table: int8 alone. cost: ca_kernel.chunk_cost. */
#define QUAD_KERNEL(level, cost)                                                                                               \
    static void attend_i8(const ca_tile *t) { attend(t, CATTN_I8); }                                                           \
    static void write_i8(const ca_write *w) { write_tokens(CATTN_I8, w); }                                                     \
    const ca_kernel ca_kernels_##level[CA_N_TYPES] = {                                                                         \
        [CATTN_I8] = {#level, CATTN_I8, MAX_ROWS, TILE_ROWS, cost, query_bytes, state_bytes, scratch_bytes, pack_query, init,  \
                      attend_i8, merge, write_i8, widen_rows, narrow_rows, NULL},                                              \
    };

#endif
