/*
 * Register tiles with f32 arithmetic for all types of K and V, for a level of any vector width.
 *
 * bf16 needs no conversion: the even element of a pair is the 32-bit word shifted left by 16, and the odd one is the word
 * masked. A byte of int8 is shifted to the top and back, then converted. For many rows, either costs more than loading f32, so
 * the first row tile of a panel stores it unpacked for the others.
 *
 * Before it is included, a level must have included vec256.h or vec512.h, and defined TILE_ROWS, TILE_VECS (1 or 2), TILE_LINES
 * (1 or 2: of how many lines the vectors fit into registers beside the sums) and TILE_EACH_ROWS(X, ...): X(rows, ...) for each
 * number of rows.
 */
#ifndef CHUNKATTN_ATTN_X86_F32_TILE_H
#define CHUNKATTN_ATTN_X86_F32_TILE_H

#if !defined(CHUNKATTN_ATTN_X86_VEC256_H) && !defined(CHUNKATTN_ATTN_X86_VEC512_H) || !defined(TILE_EACH_ROWS)
#error "include vec256.h or vec512.h and define TILE_EACH_ROWS before f32_tile.h"
#endif

#include "chunkattn.h"
#include "chunkattn/cache/layout.h"
#include "factor_rows.h"
#include "product.h"

enum { WEIGHT_BYTES = sizeof(float), INTEGERS = 0 };

static inline void store_weights(float *scores, int group, vec p) { v_store(scores + group * V_LANES, p); }

static inline void seal_weights(float *scores, int32_t c, int32_t n, int32_t end) { (void)scores, (void)c, (void)n, (void)end; }

static size_t query_bytes(int32_t d_k) { return (size_t)d_k * sizeof(float); }

static void pack_query(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2, void *packed) {
    float *to = packed;
    for (int32_t r = 0; r < n_rows; r++, to += d_k)
        for (int32_t i = 0; i < d_k; i += V_LANES) v_store(to + i, v_mul(v_load(q + r * row_stride + i), v_set1(scale_log2)));
}

/* The element-th of a line's neighbours, where it has any. */
TILE_INLINE vec load_line(const char *line, cattn_type type, int j, int element, int32_t flip) {
    if (type == CATTN_F32) return v_load((const float *)line + j * V_LANES);
    if (type == CATTN_F16) return v_f16(line + j * V_LANES * 2);
    if (type == CATTN_I8) return v_i8(line + j * V_LANES * 4, element, flip);
    return element ? v_bf16_odd(line + j * V_LANES * 4) : v_bf16_even(line + j * V_LANES * 4);
}

/* How far a tile has come: a line, its rows' factors for it, and where it is to be left unpacked; NULL: nowhere. */
typedef struct cursor {
    const char *line;
    ptrdiff_t panel_stride;
    factor_rows factors;
    float *kept;
    int32_t flip;
} cursor;

/* Where the next row's sums go, times lane_scales as in product. */
typedef struct destination {
    float *out;
    ptrdiff_t stride;
    const float *lane_scales;
} destination;

TILE_INLINE void store_row(destination *to, int vecs, const vec *sum) {
#pragma GCC unroll 2
    for (int j = 0; j < vecs; j++)
        v_store(to->out + j * V_LANES, to->lane_scales ? v_mul(sum[j], v_load(to->lane_scales + j * V_LANES)) : sum[j]);
    to->out += to->stride;
    OPAQUE(to->out);
}

/*
 * n lines, or as many elements of a line of pairs or quads from `element` on, times the rows' factors. Rows go in turn: so of
 * the last lines, which have a destination, the stores of one row run beside the arithmetic of the next.
 */
TILE_INLINE void multiply_lines(vec acc[TILE_ROWS][TILE_VECS], int rows, int vecs, cattn_type type, const cursor *at,
                                int element, int n, destination *to) {
    vec x[TILE_LINES][TILE_VECS];
#pragma GCC unroll 2
    for (int l = 0; l < n; l++) {
        const int e = element + l;
        const char *line = at->line + (ca_type_neighbours(type) == 1 ? e * at->panel_stride : 0);
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++) {
            x[l][j] = load_line(line, type, j, e, at->flip);
            if (at->kept) v_store(at->kept + (e * vecs + j) * V_LANES, x[l][j]);
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (int l = 0; l < n; l++) {
            const vec w = v_set1(((const float *)factors_of(&at->factors, i))[element + l]);
#pragma GCC unroll 2
            for (int j = 0; j < vecs; j++) acc[i][j] = v_fma(w, x[l][j], acc[i][j]);
        }
        if (to) store_row(to, vecs, acc[i]);
    }
}

TILE_INLINE void prefetch(const char *from, int cache_lines) {
#pragma GCC unroll 4
    for (int j = 0; j < cache_lines; j++) _mm_prefetch(from + j * 64, _MM_HINT_T1);
}

TILE_INLINE void multiply(const product *p, int rows, int vecs, cattn_type type, enum product_use use) {
    vec acc[TILE_ROWS][TILE_VECS];
    destination to = {p->out, p->out_stride, type == CATTN_I8 || use == USE_AGAIN ? p->lane_scales : NULL};
    float *from = to.out;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, from += to.stride) {
        OPAQUE(from);
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++) acc[i][j] = p->accumulate ? v_load(from + j * V_LANES) : v_set1(0);
    }

    /* A step takes a line, or TILE_LINES of those that hold one element. */
    const int line_elements = (int)ca_type_neighbours(type), element_bytes = type == CATTN_F16 ? 2 : 4;
    const int step = line_elements > TILE_LINES ? line_elements : TILE_LINES, lines = step / line_elements;
    const int ahead = lines * (use == USE_FIRST ? (vecs * V_LANES * element_bytes + 63) / 64 : 1);
    const ptrdiff_t next_step = p->next_step * lines;
    const char *next = p->next;
    cursor at = {p->panel, p->panel_stride, factor_rows_of(p), use == USE_KEEP ? p->kept : NULL,
                 type == CATTN_I8 ? p->flip : 0};
    int32_t n = p->n;
    for (; n > step; n -= step) {
        prefetch(next, ahead);
#pragma GCC unroll 4
        for (int e = 0; e < step; e += TILE_LINES) multiply_lines(acc, rows, vecs, type, &at, e, TILE_LINES, NULL);
        next += next_step;
        at.line += lines * at.panel_stride;
        next_factors(&at.factors, step * (ptrdiff_t)sizeof(float));
        if (at.kept) at.kept += step * vecs * V_LANES;
    }
    prefetch(next, ahead);
    if (__builtin_expect(n == step, 1)) {
#pragma GCC unroll 4
        for (int e = 0; e < step; e += TILE_LINES)
            multiply_lines(acc, rows, vecs, type, &at, e, TILE_LINES, e + TILE_LINES < step ? NULL : &to);
        return;
    }
#pragma GCC unroll 4
    for (int e = 0; e < step - 1; e++) {
        if (e >= n) break;
        multiply_lines(acc, rows, vecs, type, &at, e, 1, NULL);
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) store_row(&to, vecs, acc[i]);
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
