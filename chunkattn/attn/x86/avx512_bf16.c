/*
 * Level avx512_bf16: bf16 K and V through vdpbf16ps; q and the softmax weights are rounded to bf16, sums are f32.
 *
 * 6 rows x 4 vectors: 24 sums, a line of the panel and a factor in 32 registers, 10 loads for 24 instructions. A line of pairs
 * is an operand as it is stored, so nothing is unpacked. Whole chunks of 64 slots are one panel of K. Up to 3 rows x 8 vectors
 * make whole lines of V one panel, too.
 */
#define TILE_VECS 4
enum { TILE_ROWS = 6, STREAM_ROWS = 4, WIDE_ROWS = 3, WIDE_VECS = 8, WEIGHT_BYTES = 2, INTEGERS = 0 };

#include "bf16_rows.h"
#include "chunkattn.h"
#include "factor_rows.h"
#include "product.h"

static inline void seal_weights(float *scores, int32_t c, int32_t n, int32_t end) { (void)scores, (void)c, (void)n, (void)end; }

TILE_INLINE void dot(vec *sum, const char *factor, __m512i x) {
    *sum = _mm512_dpbf16_ps(*sum, (__m512bh)_mm512_set1_epi32(*(const int32_t *)factor), (__m512bh)x);
}

/* One line of pairs times the rows' pairs of factors; `half`: of the line's pairs only the first may be read. */
TILE_INLINE void multiply_line(vec acc[TILE_ROWS][WIDE_VECS], int rows, int vecs, const char *line, bool half,
                               const factor_rows *f) {
    __m512i x[WIDE_VECS];
#pragma GCC unroll 8
    for (int j = 0; j < vecs; j++) {
        x[j] = _mm512_loadu_si512(line + (size_t)j * sizeof(vec));
        if (half) x[j] = _mm512_and_si512(x[j], _mm512_set1_epi32(0xffff));
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++) dot(&acc[i][j], factors_of(f, i), x[j]);
}

/* The last lines go row by row, so that the stores of one row run beside the arithmetic of the next. */
enum { LAST_LINES = 3 };

TILE_INLINE void multiply(const product *p, int rows, int vecs, enum product_use use) {
    vec acc[TILE_ROWS][WIDE_VECS];
    float *out = p->out;
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++, out += p->out_stride) {
        OPAQUE(out);
#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++) acc[i][j] = p->accumulate ? v_load(out + j * V_LANES) : v_set1(0);
    }

    const int ahead = use == USE_FIRST ? vecs : 1;
    const bool plain = p->n < 2 * LAST_LINES || p->n % 2;
    const char *line = p->panel, *next = p->next;
    const ptrdiff_t panel_stride = p->panel_stride, next_step = p->next_step;
    factor_rows f = factor_rows_of(p);
    const char *end = f.base[0] + (p->n / 2 - (plain ? 0 : LAST_LINES)) * 4;
    OPAQUE(end);
    while (f.base[0] < end) {
#pragma GCC unroll 8
        for (int j = 0; j < ahead; j++) _mm_prefetch(next + j * 64, _MM_HINT_T1);
        multiply_line(acc, rows, vecs, line, false, &f);
        next_factors(&f, 4);
        line += panel_stride;
        next += next_step;
    }

    const ptrdiff_t out_stride = p->out_stride;
    out = p->out;
    if (__builtin_expect(plain, 0)) {
        if (p->n % 2) multiply_line(acc, rows, vecs, line, true, &f);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++, out += out_stride)
#pragma GCC unroll 8
            for (int j = 0; j < vecs; j++) v_store(out + j * V_LANES, acc[i][j]);
        return;
    }
#pragma GCC unroll 3
    for (int l = 0; l < LAST_LINES; l++, next += next_step)
#pragma GCC unroll 8
        for (int j = 0; j < ahead; j++) _mm_prefetch(next + j * 64, _MM_HINT_T1);
    const char *last[LAST_LINES] = {line, line + panel_stride, line + 2 * panel_stride};
    OPAQUE(last[1]);
    OPAQUE(last[2]);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++, out += out_stride) {
        OPAQUE(out);
#pragma GCC unroll 3
        for (int l = 0; l < LAST_LINES; l++)
#pragma GCC unroll 8
            for (int j = 0; j < vecs; j++)
                dot(&acc[i][j], factors_of(&f, i) + l * 4, _mm512_loadu_si512(last[l] + (size_t)j * sizeof(vec)));
#pragma GCC unroll 8
        for (int j = 0; j < vecs; j++) v_store(out + j * V_LANES, acc[i][j]);
    }
}

#include "dot_tiles.h"

#define WIDE_PRODUCTS(vecs) PRODUCT(1, vecs) PRODUCT(2, vecs) PRODUCT(3, vecs)
WIDE_PRODUCTS(5)
WIDE_PRODUCTS(6)
WIDE_PRODUCTS(7)
WIDE_PRODUCTS(8)
#define WIDE_ROW(use, vecs)                                                                                                    \
    { NULL, use##_1x##vecs, use##_2x##vecs, use##_3x##vecs }
#define WIDE(use)                                                                                                              \
    { WIDE_ROW(use, 5), WIDE_ROW(use, 6), WIDE_ROW(use, 7), WIDE_ROW(use, 8) }
static const product_fn wide[2][WIDE_VECS - TILE_VECS][WIDE_ROWS + 1] = {WIDE(first), WIDE(again)};

static inline tile_shape shape_of(int32_t n_rows, int32_t vecs) {
    if (n_rows <= STREAM_ROWS && vecs > TILE_VECS) return (tile_shape){WIDE_ROWS, WIDE_VECS};
    return (tile_shape){TILE_ROWS, TILE_VECS};
}

static inline product_fn find_product(cattn_type type, enum product_use use, int32_t rows, int32_t vecs) {
    (void)type;
    return vecs > TILE_VECS ? wide[use != USE_FIRST][vecs - TILE_VECS - 1][rows] : find_tiles(use, rows, vecs);
}

#include "attend.h"

#include "write.h"

static void attend_bf16(const ca_tile *t) { attend(t, CATTN_BF16); }
static void write_bf16(const ca_write *w) { write_tokens(CATTN_BF16, w); }

const ca_kernel ca_kernels_avx512_bf16[CA_N_TYPES] = {
    [CATTN_BF16] = {"avx512_bf16", CATTN_BF16, MAX_ROWS, TILE_ROWS, 11, query_bytes, state_bytes, scratch_bytes, pack_query,
                    init, attend_bf16, merge, write_bf16, widen_rows, narrow_rows, NULL},
};
