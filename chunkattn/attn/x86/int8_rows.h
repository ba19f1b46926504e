/*
 * Rows of the levels that multiply int8. q is rounded to 8 bits within its row; weights are rounded to 16 bits within row and
 * chunk, as two unsigned bytes each, since 8 bits would be coarser than bf16. It includes row.h itself.
 *
 * Nothing overflows: |score| <= 255 * 127 * 512 for d_k <= 512, and |O| <= 65535 * 127 * 256 < 2^31 for chunks of up to 256.
 */
#ifndef CHUNKATTN_ATTN_X86_INT8_ROWS_H
#define CHUNKATTN_ATTN_X86_INT8_ROWS_H

#include <stdbool.h>

#include "vec512.h"

/* What stands in the last cache line of a row's factors; before it, for q, a byte a dimension. */
typedef struct factors_end {
    int32_t start; /* of the row's sums: K is unsigned, n + 128 */
    float scale;   /* what they are to be multiplied by */
} factors_end;

enum { END_BYTES = 64 };

static inline void store_weights(float *scores, int group, vec p) { v_store(scores + group * V_LANES, p); }

#include "row.h"

/* The largest of 16 in all lanes. */
static inline __m128i largest(__m512i x) {
    const __m256i half = _mm256_max_epu32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
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
 * The unit of `groups` vectors of 16 weights. The largest weight comes to between 2^15 and 2^16 before it is made smaller by
 * 2^-16 of itself, so that it cannot round to 2^16. Below 2^-126 is nothing, so that factor and inverse are normal numbers.
 */
static inline __attribute__((always_inline)) unit unit_of(const float *weights, int groups) {
    __m512i top = _mm512_setzero_si512(); /* as bits, in which order NaN is the largest */
#pragma GCC unroll 4
    for (int g = 0; g < groups; g++) top = _mm512_max_epu32(top, _mm512_loadu_si512(weights + g * V_LANES));

    const __m128i most = largest(top), infinity = _mm_set1_epi32(0x7f800000), least = _mm_set1_epi32((127 + 15 - 126) << 23);
    const __m128i exponent = _mm_max_epu32(_mm_and_si128(most, infinity), least);
    const __m128 inverse = _mm_castsi128_ps(_mm_sub_epi32(_mm_set1_epi32((int)((127u + 15 + 127) << 23)), exponent));
    const __m128 factor = _mm_castsi128_ps(_mm_sub_epi32(exponent, _mm_set1_epi32(15 << 23)));
    const __m128 down = _mm_mul_ps(factor, _mm_set1_ps(65536.0f / 65535)), nan = _mm_castsi128_ps(most);
    const __m128 is_finite = _mm_castsi128_ps(_mm_cmplt_epi32(exponent, infinity));
    return (unit){_mm512_broadcastss_ps(_mm_mul_ps(inverse, _mm_set1_ps(65535.0f / 65536))),
                  _mm_blendv_ps(nan, down, is_finite)}; /* NaN goes on */
}

/*
 * A group of weights as integers: for each quad 16 bytes, of which the first four are the high bytes, then the low ones. Adding
 * 2^23 rounds to an integer and leaves it in the low bytes.
 */
static inline __m512i weights_to_quads(const float *weights, vec up) {
    const __m512i quads = _mm512_broadcast_i32x4(_mm_setr_epi8(1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1));
    return _mm512_shuffle_epi8(_mm512_castps_si512(v_fma(v_load(weights), up, v_set1(0x1p23f))), quads);
}

/* 0 * -0 changes no sum, not even one of -0, so a row that sees nothing keeps its state. */
static inline __m128 scale_of_nothing(void) { return _mm_set1_ps(-0.0f); }

/* Behind a row's weights of c slots. */
static inline void end_weights(float *weights, int32_t c, __m128 scale) {
    const __m128i to_store = _mm_unpacklo_epi32(_mm_setzero_si128(), _mm_castps_si128(scale));
    _mm_storel_epi64((__m128i *)(weights + c), to_store);
}

static size_t query_bytes(int32_t d_k) { return ((size_t)d_k + 63) / 64 * 64 + END_BYTES; }

#endif
