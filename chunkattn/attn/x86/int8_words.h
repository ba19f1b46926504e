/*
 * int8 K and V through vpmaddwd, which multiplies pairs of signed 16-bit words and adds them, for a level of any vector width
 * without an instruction that multiplies quads of bytes. (vpmaddubsw multiplies bytes as they are stored, but its 16-bit sums
 * would saturate.)
 *
 * 4 rows x 2 vectors. The first row tile of a panel unpacks each quad of bytes to two pairs of words, of its bytes 0 and 2 and
 * of 1 and 3; q and the weights have the same order. K's words are the unsigned bytes n + 128, so a row's sum starts at -128
 * times the sum of its q. Weights are unsigned too: 2^15 is subtracted from each, and a sum starts at 2^15 times the sum of the
 * panel's values.
 *
 * Before it is included, a level must have included vec256.h or vec512.h.
 */
#ifndef CHUNKATTN_ATTN_X86_INT8_WORDS_H
#define CHUNKATTN_ATTN_X86_INT8_WORDS_H

#if !defined(CHUNKATTN_ATTN_X86_VEC256_H) && !defined(CHUNKATTN_ATTN_X86_VEC512_H)
#error "include vec256.h or vec512.h before int8_words.h"
#endif

#include "int8_level.h"
#include "int8_rows.h"

enum { TILE_ROWS = INT8_TILE_ROWS, TILE_VECS = 2, KEPT_VECS = 2, STREAM_ROWS = 0, WEIGHT_BYTES = 4, INTEGERS = 1 };

#include "chunkattn/cache/layout.h"
#include "factor_rows.h"
#include "product.h"

enum { Q_QUAD_BYTES = 8, WEIGHT_QUAD_BYTES = 16, VEC_WORDS_BYTES = 2 * sizeof(vec) };

/* ---- Rows ---- */

static size_t query_bytes(int32_t d_k) { return ((size_t)d_k * 2 + 63) / 64 * 64 + END_BYTES; }

static void pack_query(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2, void *packed) {
    const __m256i order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    char *to = packed;
    for (int32_t r = 0; r < n_rows; r++, q += row_stride, to += query_bytes(d_k)) {
        signed char bytes[CA_MAX_HEAD_SIZE];
        *(factors_end *)(to + query_bytes(d_k) - END_BYTES) = round_query(q, d_k, scale_log2, bytes);
        for (int32_t i = 0; i < d_k; i += 16) {
            const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(bytes + i)));
            _mm256_storeu_si256((__m256i *)(to + 2 * (ptrdiff_t)i), _mm256_shuffle_epi8(words, order));
        }
    }
}

/*
 * A vector of weights as words, where they were: for each quad 16 bytes, of which the first eight are its words. Adding 2^23
 * rounds to an integer and leaves it in the low bytes; 2^15 is subtracted by flipping its bit.
 */
static inline void weights_to_factors(float *weights, vec up) {
    const __m128i order = _mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1);
    const veci rounded = v_bits(v_fma(v_load(weights), up, v_set1(0x1p23f)));
    vi_store(weights, vi_xor(vi_shuffle(rounded, order), vi_set1_16(INT16_MIN)));
}

static inline veci factors_of_nothing(void) { return vi_set1_16(INT16_MIN); }

#include "int8_seal.h"

/* ---- Unpacking ---- */

/* Behind the words of a panel of `lines` lines of quads: 2^15 times the sum of each lane's values. */
TILE_INLINE veci *starts_behind(const product *p, int vecs, int32_t lines) {
    return (veci *)((char *)p->kept + (ptrdiff_t)lines * vecs * VEC_WORDS_BYTES);
}

TILE_INLINE void unpack(const product *p, int vecs, bool values) {
    const veci low = vi_set1_16(255), ones = vi_set1_16(1);
    const char *line = p->panel;
    veci *to = (veci *)p->kept, sums[TILE_VECS] = {0};
    for (int32_t l = 0; l < p->n / 4; l++, line += p->panel_stride) {
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++, to += 2) {
            const veci x = vi_load((const veci *)line + j);
            const veci even = values ? vi_sra_16(vi_sll_16(x, 8), 8) : vi_and(x, low);
            const veci odd = values ? vi_sra_16(x, 8) : vi_srl_16(x, 8);
            vi_store(to, even);
            vi_store(to + 1, odd);
            if (values) sums[j] = vi_add(sums[j], vi_madd(vi_add_16(even, odd), ones));
        }
    }
#pragma GCC unroll 2
    for (int j = 0; j < vecs && values; j++) vi_store(to + j, vi_sll(sums[j], 15));
}

/* ---- Products ---- */

TILE_INLINE void multiply_lines(const product *p, int rows, int vecs, enum product_use use, bool values) {
    veci acc[TILE_ROWS][TILE_VECS];
    const int32_t lines = p->n / 4;
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++) acc[i][j] = values ? starts_behind(p, vecs, lines)[j] : vi_set1(end_of(p, i)->start);

    factor_rows f = factor_rows_of(p);
    const ptrdiff_t next_step = use == USE_KEEP ? p->next_step : 4 * p->next_step;
    const char *next = p->next;
    const veci *words = (const veci *)p->kept, *end = words + (ptrdiff_t)lines * vecs * 2;
    for (; words < end; words += 2 * vecs, next += next_step) {
        _mm_prefetch(next, _MM_HINT_T1);
#pragma GCC unroll 2
        for (int pair = 0; pair < 2; pair++) {
            veci x[TILE_VECS];
#pragma GCC unroll 2
            for (int j = 0; j < vecs; j++) x[j] = vi_load(words + 2 * j + pair);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) {
                const veci w = vi_set1(((const int32_t *)factors_of(&f, i))[pair]);
#pragma GCC unroll 2
                for (int j = 0; j < vecs; j++) {
                    acc[i][j] = vi_add(acc[i][j], vi_madd(w, x[j]));
                    /* By itself gcc adds both pairs' products first, for which 16 registers are too few. */
                    if (sizeof(vec) == 32) __asm__("" : "+x"(acc[i][j]));
                }
            }
        }
        next_factors(&f, values ? WEIGHT_QUAD_BYTES : Q_QUAD_BYTES);
    }

#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) store_sums(p, i, acc[i], vecs, values);
}

TILE_INLINE void multiply(const product *p, int rows, int vecs, enum product_use use) {
    if (use == USE_KEEP) unpack(p, vecs, p->accumulate);
    if (p->accumulate)
        multiply_lines(p, rows, vecs, use, true);
    else
        multiply_lines(p, rows, vecs, use, false);
}

#define PRODUCT(rows, vecs)                                                                                                    \
    static void keep_##rows##x##vecs(product *p) { EACH_TILE(p, rows, multiply(p, rows, vecs, USE_KEEP)) }                     \
    static void again_##rows##x##vecs(product *p) { EACH_TILE(p, rows, multiply(p, rows, vecs, USE_AGAIN)) }
PRODUCT(1, 1)
PRODUCT(2, 1)
PRODUCT(3, 1)
PRODUCT(4, 1)
PRODUCT(1, 2)
PRODUCT(2, 2)
PRODUCT(3, 2)
PRODUCT(4, 2)

static const product_fn keep[TILE_VECS + 1][TILE_ROWS + 1] = {
    {NULL}, {NULL, keep_1x1, keep_2x1, keep_3x1, keep_4x1}, {NULL, keep_1x2, keep_2x2, keep_3x2, keep_4x2}};
static const product_fn again[TILE_VECS + 1][TILE_ROWS + 1] = {
    {NULL}, {NULL, again_1x1, again_2x1, again_3x1, again_4x1}, {NULL, again_1x2, again_2x2, again_3x2, again_4x2}};

static inline product_fn find_product(cattn_type type, enum product_use use, int32_t rows, int32_t vecs) {
    (void)type;
    return use == USE_KEEP ? keep[vecs][rows] : again[vecs][rows];
}

static inline tile_shape shape_of(int32_t n_rows, int32_t vecs) {
    (void)n_rows, (void)vecs;
    return (tile_shape){TILE_ROWS, TILE_VECS};
}

static inline bool converts(cattn_type type) {
    (void)type;
    return true;
}
static inline bool unpacks(cattn_type type, int32_t tiles) {
    (void)type, (void)tiles;
    return true;
}

#include "attend.h"

/* The functions of int8_level.h. */
#define INT8_FUNCTIONS(level)                                                                                                  \
    size_t ca_##level##_int8_query_bytes(int32_t d_k) { return query_bytes(d_k); }                                             \
    size_t ca_##level##_int8_scratch_bytes(int32_t d_k, int32_t d_v, int32_t c) { return scratch_bytes(d_k, d_v, c); }         \
    void ca_##level##_int8_pack_query(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2,     \
                                      void *packed) {                                                                          \
        pack_query(q, row_stride, n_rows, d_k, scale_log2, packed);                                                            \
    }                                                                                                                          \
    void ca_##level##_int8_attend(const ca_tile *tile) { attend(tile, CATTN_I8); }

#endif
