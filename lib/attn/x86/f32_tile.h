/*
 * Register tiles with f32 arithmetic for all types of K and V, for a level of any vector width.
 *
 * bf16 needs no conversion: the even element of a pair is the 32-bit word shifted left by 16, the odd one the word masked. A
 * byte of int8 is shifted to the top and back, then converted. For many rows either costs more than loading f32, so the first
 * row tile of a panel leaves it unpacked for the others.
 *
 * Before including, a level defines vec, TILE_ROWS, TILE_VECS (1 or 2) and TILE_EACH_ROWS(X, ...): X(rows, ...) for each
 * number of rows.
 */
#ifndef LIB_ATTN_X86_F32_TILE_H
#define LIB_ATTN_X86_F32_TILE_H

#include "chunkattn.h"
#include "lib/attn/x86/product.h"
#include "lib/cache/layout.h"

enum { WEIGHT_BYTES = sizeof(float), INTEGERS = 0 };

static inline void store_weights(float *scores, int group, vec p) { v_store(scores + group * V_LANES, p); }

static inline void seal_weights(float *scores, int32_t c, int32_t n, int32_t end) { (void)scores, (void)c, (void)n, (void)end; }

static size_t query_bytes(int32_t d_k) { return (size_t)d_k * sizeof(float); }

static void pack_query(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2, void *packed) {
    float *to = packed;
    for (int32_t r = 0; r < n_rows; r++, to += d_k)
        for (int32_t i = 0; i < d_k; i += V_LANES) v_store(to + i, v_mul(v_load(q + r * row_stride + i), v_set1(scale_log2)));
}

/* The element-th of a line's neighbours. */
TILE_INLINE vec load_line(const char *line, cattn_type type, int j, int element, int32_t flip) {
    if (type == CATTN_F32) return v_load((const float *)line + j * V_LANES);
    if (type == CATTN_F16) return v_f16(line + j * V_LANES * 2);
    if (type == CATTN_I8) return v_i8(line + j * V_LANES * 4, element, flip);
    return element ? v_bf16_odd(line + j * V_LANES * 4) : v_bf16_even(line + j * V_LANES * 4);
}

/* One line, or one element of a line of pairs or quads, of the panel times the rows' factors. */
TILE_INLINE void multiply_line(vec acc[TILE_ROWS][TILE_VECS], int rows, int vecs, const char *line, cattn_type type,
                               int element, int32_t flip, const char *factors, ptrdiff_t factor_stride, float *kept) {
    vec x[TILE_VECS];
#pragma GCC unroll 2
    for (int j = 0; j < vecs; j++) {
        x[j] = load_line(line, type, j, element, flip);
        if (kept) v_store(kept + j * V_LANES, x[j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const vec w = v_set1(*(const float *)(factors + i * factor_stride));
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++) acc[i][j] = v_fma(w, x[j], acc[i][j]);
    }
}

TILE_INLINE void multiply(const product *p, int rows, int vecs, cattn_type type, enum product_use use) {
    vec acc[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++) acc[i][j] = p->accumulate ? v_load(p->out + i * p->out_stride + j * V_LANES) : v_set1(0);

    const int line_elements = (int)ca_type_neighbours(type), element_bytes = type == CATTN_F16 ? 2 : 4;
    const int ahead = use == USE_FIRST ? (vecs * V_LANES * element_bytes + 63) / 64 : 1;
    const ptrdiff_t stride = p->factor_stride, kept_step = use == USE_KEEP ? vecs * V_LANES : 0;
    const int32_t flip = type == CATTN_I8 ? p->flip : 0;
    const char *line = p->panel, *next = p->next, *factors = p->factors;
    float *kept = use == USE_KEEP ? p->kept : NULL;
    int32_t n = p->n;
    for (; n >= line_elements; n -= line_elements) {
#pragma GCC unroll 4
        for (int j = 0; j < ahead; j++) _mm_prefetch(next + j * 64, _MM_HINT_T0);
#pragma GCC unroll 4
        for (int e = 0; e < line_elements; e++) {
            multiply_line(acc, rows, vecs, line, type, e, flip, factors, stride, kept);
            factors += sizeof(float);
            kept += kept_step;
        }
        line += p->panel_stride;
        next += p->next_step;
    }
#pragma GCC unroll 4
    for (int e = 0; e < line_elements - 1; e++) {
        if (e >= n) break;
        multiply_line(acc, rows, vecs, line, type, e, flip, factors, stride, kept);
        factors += sizeof(float);
        kept += kept_step;
    }

    if ((type == CATTN_I8 || use == USE_AGAIN) && p->lane_scales) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int j = 0; j < vecs; j++) acc[i][j] = v_mul(acc[i][j], v_load(p->lane_scales + j * V_LANES));
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++) v_store(p->out + i * p->out_stride + j * V_LANES, acc[i][j]);
}

enum { TILES_IN_TURN = 0 };

#define PRODUCT_NAME(rows, vecs, type, use) multiply_##rows##x##vecs##_##type##_##use
#define PRODUCT(rows, vecs, type, use)                                                                                         \
    static void PRODUCT_NAME(rows, vecs, type, use)(product * p) { multiply(p, rows, vecs, type, use); }
#define PRODUCT_ROW(rows, vecs, type, use) [rows] = PRODUCT_NAME(rows, vecs, type, use),
#define PRODUCTS(type, use)                                                                                                    \
    TILE_EACH_ROWS(PRODUCT, 1, type, use)                                                                                      \
    TILE_EACH_ROWS(PRODUCT, 2, type, use)                                                                                      \
    static const product_fn type##_##use[3][TILE_ROWS + 1] = {                                                                 \
        [1] = {TILE_EACH_ROWS(PRODUCT_ROW, 1, type, use)},                                                                     \
        [2] = {TILE_EACH_ROWS(PRODUCT_ROW, 2, type, use)},                                                                     \
    };

PRODUCTS(CATTN_F32, USE_FIRST)
PRODUCTS(CATTN_F32, USE_AGAIN)
PRODUCTS(CATTN_F16, USE_FIRST)
PRODUCTS(CATTN_F16, USE_KEEP)
PRODUCTS(CATTN_BF16, USE_FIRST)
PRODUCTS(CATTN_BF16, USE_KEEP)
PRODUCTS(CATTN_I8, USE_FIRST)
PRODUCTS(CATTN_I8, USE_KEEP)

static inline bool unpacks(cattn_type type) { return type != CATTN_F32; }

static inline product_fn find_product(cattn_type type, enum product_use use, int32_t rows, int32_t vecs) {
    if (use == USE_AGAIN) return CATTN_F32_USE_AGAIN[vecs][rows]; /* unpacked, whatever it was */
    if (type == CATTN_F32) return CATTN_F32_USE_FIRST[vecs][rows];
    if (type == CATTN_I8) return use == USE_KEEP ? CATTN_I8_USE_KEEP[vecs][rows] : CATTN_I8_USE_FIRST[vecs][rows];
    if (type == CATTN_F16) return use == USE_KEEP ? CATTN_F16_USE_KEEP[vecs][rows] : CATTN_F16_USE_FIRST[vecs][rows];
    return use == USE_KEEP ? CATTN_BF16_USE_KEEP[vecs][rows] : CATTN_BF16_USE_FIRST[vecs][rows];
}

#endif
