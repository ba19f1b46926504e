/*
 * Rows of the levels that multiply int8. q is rounded to 8 bits within its row; weights are rounded to 16 bits within row and
 * chunk, since 8 bits would be coarser than bf16. Sums of products are exact, so all of these levels have the same bits.
 *
 * Nothing overflows: |score| <= 255 * 127 * 512 for d_k <= 512, and |O| <= 65535 * 127 * 256 < 2^31 for chunks of up to 256.
 *
 * Before it is included, a level must have included vec256.h or vec512.h. It includes row.h itself.
 */
#ifndef CHUNKATTN_ATTN_X86_INT8_ROWS_H
#define CHUNKATTN_ATTN_X86_INT8_ROWS_H

#if !defined(CHUNKATTN_ATTN_X86_VEC256_H) && !defined(CHUNKATTN_ATTN_X86_VEC512_H)
#error "include vec256.h or vec512.h before int8_rows.h"
#endif

#include <stdbool.h>

/* What stands in the last cache line of a row's factors. */
typedef struct factors_end {
    int32_t start; /* of the row's sums: K is unsigned, n + 128 */
    float scale;   /* what they are to be multiplied by */
} factors_end;

enum { END_BYTES = 64 };

static inline void store_weights(float *scores, int group, vec p) { v_store(scores + group * V_LANES, p); }

#include "row.h"

#include "chunkattn/attn/head_sizes.h"
#include "int8_round.h"

/* The largest of `groups` vectors of weights in all lanes, as bits, in which order NaN is the largest. */
static inline __attribute__((always_inline)) __m128i largest_weight(const float *weights, int groups) {
#if defined(CHUNKATTN_ATTN_X86_VEC512_H)
    __m512i top = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int g = 0; g < groups; g++) top = _mm512_max_epu32(top, _mm512_loadu_si512(weights + g * V_LANES));
    const __m256i half = _mm256_max_epu32(_mm512_castsi512_si256(top), _mm512_extracti64x4_epi64(top, 1));
#else
    __m256i half = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int g = 0; g < groups; g++)
        half = _mm256_max_epu32(half, _mm256_loadu_si256((const __m256i *)(weights + g * V_LANES)));
#endif
    __m128i y = _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    y = _mm_max_epu32(y, _mm_shuffle_epi32(y, 0x4e));
    return _mm_max_epu32(y, _mm_shuffle_epi32(y, 0xb1));
}

/* What a row's weights are multiplied by to become integers, and a sum of these to become one of weights. */
typedef struct unit {
    vec up;
    __m128 down;
} unit;

/*
 * The unit of `groups` vectors of weights. The largest weight comes to between 2^15 and 2^16 before it is made smaller by
 * 2^-16 of itself, so that it cannot round to 2^16. Below 2^-126 is nothing, so that factor and inverse are normal numbers.
 */
static inline __attribute__((always_inline)) unit unit_of(const float *weights, int groups) {
    const __m128i most = largest_weight(weights, groups), infinity = _mm_set1_epi32(0x7f800000),
                  least = _mm_set1_epi32((127 + 15 - 126) << 23);
    const __m128i exponent = _mm_max_epu32(_mm_and_si128(most, infinity), least);
    const __m128 inverse = _mm_castsi128_ps(_mm_sub_epi32(_mm_set1_epi32((int)((127u + 15 + 127) << 23)), exponent));
    const __m128 factor = _mm_castsi128_ps(_mm_sub_epi32(exponent, _mm_set1_epi32(15 << 23)));
    const __m128 down = _mm_mul_ps(factor, _mm_set1_ps(65536.0f / 65535)), nan = _mm_castsi128_ps(most);
    const __m128 is_finite = _mm_castsi128_ps(_mm_cmplt_epi32(exponent, infinity));
    const float up = _mm_cvtss_f32(_mm_mul_ps(inverse, _mm_set1_ps(65535.0f / 65536)));
    return (unit){v_set1(up), _mm_blendv_ps(nan, down, is_finite)}; /* NaN goes on */
}

/* 0 * -0 changes no sum, not even one of -0, so a row that sees nothing keeps its state. */
static inline __m128 scale_of_nothing(void) { return _mm_set1_ps(-0.0f); }

/* Behind a row's weights of c slots. */
static inline void end_weights(float *weights, int32_t c, __m128 scale) {
    const __m128i to_store = _mm_unpacklo_epi32(_mm_setzero_si128(), _mm_castps_si128(scale));
    _mm_storel_epi64((__m128i *)(weights + c), to_store);
}

/* Round a row of q to bytes, as ca_layout_write does with K and V, layout.h. Returns what its factors end with. */
static inline factors_end round_query(const float *q, int32_t d_k, float scale_log2, signed char *to) {
    float x[CA_MAX_HEAD_SIZE], inverse;
    for (int32_t i = 0; i < d_k; i += V_LANES) v_store(x + i, v_mul(v_load(q + i), v_set1(scale_log2)));
    const float scale = scale_of_row(x, d_k, &inverse);
    round_i8(x, d_k, inverse, (char *)to);
    int32_t sum = 0;
    for (int32_t i = 0; i < d_k; i++) sum += to[i];
    return (factors_end){-128 * sum, scale};
}

#endif
