/* Rounding a row to int8, as ca_layout_write does. All levels use 256-bit vectors. */
#ifndef CHUNKATTN_ATTN_X86_INT8_ROUND_H
#define CHUNKATTN_ATTN_X86_INT8_ROUND_H

#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>

/* The scale of a row, and what its numbers are multiplied with. */
static inline float scale_of_row(const float *x, int32_t d, float *inverse) {
    const __m256 sign = _mm256_set1_ps(-0.0f), largest = _mm256_set1_ps(FLT_MAX);
    __m256 most = _mm256_setzero_ps(), finite = _mm256_cmp_ps(sign, sign, _CMP_EQ_OQ);
    for (int32_t i = 0; i < d; i += 8) {
        const __m256 size = _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i));
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(size, largest, _CMP_LE_OQ));
        most = _mm256_max_ps(most, size);
    }
    float lanes[8], top = 0;
    _mm256_storeu_ps(lanes, most);
    for (int i = 0; i < 8; i++) top = lanes[i] > top ? lanes[i] : top;
    const float scale = _mm256_movemask_ps(finite) == 0xff ? top / 127 : NAN;
    *inverse = scale >= FLT_MIN ? 127 / top : 0;
    return scale < FLT_MIN ? 0 : scale;
}

static inline __m256i i8_lanes(const float *x, __m256 inverse, __m256i counts) {
    return _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse)), counts);
}

/* d numbers, a multiple of 16, to signed bytes. */
static inline void round_i8(const float *x, int32_t d, float inverse, char *to) {
    /* Infinity times zero would be NaN, which no integer is. */
    const __m256i counts = _mm256_set1_epi32(inverse != 0 ? -1 : 0);
    const __m256 by = _mm256_set1_ps(inverse);
    for (int32_t i = 0; i < d; i += 16) {
        const __m256i words =
            _mm256_permute4x64_epi64(_mm256_packs_epi32(i8_lanes(x + i, by, counts), i8_lanes(x + i + 8, by, counts)), 0xd8);
        _mm_storeu_si128((__m128i *)(to + i),
                         _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    }
}

#endif
