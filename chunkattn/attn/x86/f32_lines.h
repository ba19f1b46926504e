/*
 * What register tiles with f32 arithmetic have in common, for a level of any vector width and K and V of f32, f16 and bf16.
 *
 * bf16 needs no conversion: the even element of a pair is the 32-bit word shifted left by 16, and the odd one is the word
 * masked. For many rows even that costs more than loading f32, so the first row tile of a panel stores it unpacked for the
 * others.
 *
 * Before it is included, a level must have included vec256.h or vec512.h, and defined TILE_ROWS, in an enum.
 */
#ifndef CHUNKATTN_ATTN_X86_F32_LINES_H
#define CHUNKATTN_ATTN_X86_F32_LINES_H

#if !defined(CHUNKATTN_ATTN_X86_VEC256_H) && !defined(CHUNKATTN_ATTN_X86_VEC512_H)
#error "include vec256.h or vec512.h before f32_lines.h"
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
TILE_INLINE vec load_line(const char *line, cattn_type type, int j, int element) {
    if (type == CATTN_F32) return v_load((const float *)line + j * V_LANES);
    if (type == CATTN_F16) return v_f16(line + j * V_LANES * 2);
    return element ? v_bf16_odd(line + j * V_LANES * 4) : v_bf16_even(line + j * V_LANES * 4);
}

/* How far a tile has come: a line, its rows' factors for it, and where it is left unpacked if the tile keeps it. */
typedef struct cursor {
    const char *line;
    ptrdiff_t panel_stride;
    factor_rows factors;
    float *kept;
    bool keeps; /* a constant, unlike whether kept is NULL */
} cursor;

TILE_INLINE cursor cursor_of(const product *p, enum product_use use) {
    return (cursor){p->panel, p->panel_stride, factor_rows_of(p), p->kept, use == USE_KEEP};
}

TILE_INLINE const float *factor_at(const cursor *at, int row, int element) {
    return (const float *)factors_of(&at->factors, row) + element;
}

/* Cache lines to prefetch for each line of a panel of `vecs` vectors. */
TILE_INLINE int lines_ahead(int vecs, cattn_type type, enum product_use use) {
    return use == USE_FIRST ? (vecs * V_LANES * (type == CATTN_F16 ? 2 : 4) + 63) / 64 : 1;
}

TILE_INLINE void prefetch(const char *from, int cache_lines) {
#pragma GCC unroll 4
    for (int j = 0; j < cache_lines; j++) _mm_prefetch(from + j * 64, _MM_HINT_T1);
}

#endif
