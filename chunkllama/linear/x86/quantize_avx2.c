/*
 * Quantises rows of a row group with AVX2, for all x86 levels: eight at once with a row in each lane, or one by one, since
 * masked stores take 12 cycles each on Zen 4.
 */
#include "linear_x86.h"

#include <immintrin.h>
#include <string.h>

#include "chunkllama/linear/linear_kernels.h"

/* A vector whose lane i is the largest of the 8 lanes of v[i]. */
static inline __m256 max_of_each(const __m256 v[8]) {
    __m256 pair[4], quad[2];
    for (int i = 0; i < 4; i++) pair[i] = _mm256_max_ps(_mm256_unpacklo_ps(v[i], v[i + 4]), _mm256_unpackhi_ps(v[i], v[i + 4]));
    for (int i = 0; i < 2; i++)
        quad[i] = _mm256_max_ps(_mm256_unpacklo_ps(pair[i], pair[i + 2]), _mm256_unpackhi_ps(pair[i], pair[i + 2]));
    /* quad[0] has rows 0 2 4 6 in each half, quad[1] rows 1 3 5 7. */
    const __m256 half =
        _mm256_max_ps(_mm256_permute2f128_ps(quad[0], quad[1], 0x20), _mm256_permute2f128_ps(quad[0], quad[1], 0x31));
    return _mm256_permutevar8x32_ps(half, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Transpose 8 x 8 dwords in place. */
static inline void transpose(__m256i v[8]) {
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* Round 32 floats times `inverse` to the nearest int8, in order. */
static inline __m256i round_block(const float *x, __m256 inverse) {
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    /* Packing works within 128-bit halves. */
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

static inline __m256i start_of(__m256i sum) {
    return _mm256_sub_epi32(_mm256_set1_epi32(CL_LINEAR_MAGIC), _mm256_slli_epi32(sum, 7));
}

static inline __m256 magnitudes(const float *x) {
    return _mm256_and_ps(_mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), _mm256_loadu_ps(x));
}

/* The scale of a block with this largest magnitude. */
static inline __m256 scale_of(__m256 max) {
    const __m256 exact = _mm256_div_ps(max, _mm256_set1_ps(127.0f));
    const __m256i zero_bits = _mm256_set1_epi32(3);
    return _mm256_castsi256_ps(_mm256_andnot_si256(zero_bits, _mm256_add_epi32(_mm256_castps_si256(exact), zero_bits)));
}

static inline __m256 inverse_of(__m256 scale) {
    return _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(1.0f), scale), _mm256_cmp_ps(scale, _mm256_setzero_ps(), _CMP_GT_OQ));
}

static void quantize_8_rows(const float *x, size_t row_stride, int32_t n_blocks, uint8_t *row_group, int32_t group_rows) {
    for (int32_t b = 0; b < n_blocks; b++, x += CL_LINEAR_BLOCK, row_group += (size_t)group_rows * CL_LINEAR_ROW_BYTES) {
        __m256 max[8];
        for (int r = 0; r < 8; r++) {
            max[r] = _mm256_setzero_ps();
            for (int i = 0; i < CL_LINEAR_BLOCK; i += 8)
                max[r] = _mm256_max_ps(magnitudes(x + (size_t)r * row_stride + i), max[r]);
        }
        const __m256 scale = scale_of(max_of_each(max));
        float inverse[8];
        _mm256_storeu_ps(inverse, inverse_of(scale));

        __m256i q[8]; /* first a row in each, then 4 inputs of all rows in each */
        for (int r = 0; r < 8; r++) q[r] = round_block(x + (size_t)r * row_stride, _mm256_set1_ps(inverse[r]));
        transpose(q);
        __m256i pairs = _mm256_setzero_si256(), half = pairs;
        for (int j = 0; j < 8; j++) {
            if (j == 4) half = pairs;
            pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(_mm256_set1_epi8(1), q[j]));
            _mm256_storeu_si256((void *)(row_group + (size_t)j * group_rows * 4), q[j]);
        }
        const __m256i ones = _mm256_set1_epi16(1), sum = _mm256_madd_epi16(pairs, ones);
        float *scales = (float *)(row_group + (size_t)group_rows * CL_LINEAR_BLOCK);
        _mm256_storeu_ps(scales, scale);
        _mm256_storeu_ps(scales + group_rows, _mm256_mul_ps(scale, _mm256_set1_ps(-12582912.0f)));
        _mm256_storeu_ps(scales + 2 * group_rows, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(sum)));
        _mm256_storeu_si256((void *)(scales + 3 * group_rows), start_of(sum));
        _mm256_storeu_si256((void *)(scales + 4 * group_rows), start_of(_mm256_madd_epi16(half, ones)));
    }
}

/* The largest of all lanes, in every lane. */
static inline __m256 max_of_all(__m256 v) {
    v = _mm256_max_ps(v, _mm256_permute2f128_ps(v, v, 1));
    v = _mm256_max_ps(v, _mm256_permute_ps(v, 0x4e));
    return _mm256_max_ps(v, _mm256_permute_ps(v, 0xb1));
}

static inline int32_t sum_of_all(__m128i v) {
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1)));
}

static void quantize_row(const float *x, int32_t n_blocks, uint8_t *row_group, int32_t group_rows) {
    for (int32_t b = 0; b < n_blocks; b++, x += CL_LINEAR_BLOCK, row_group += (size_t)group_rows * CL_LINEAR_ROW_BYTES) {
        __m256 max = _mm256_setzero_ps();
        for (int i = 0; i < CL_LINEAR_BLOCK; i += 8) max = _mm256_max_ps(magnitudes(x + i), max);
        const __m256 scale = scale_of(max_of_all(max));
        const __m256i q = round_block(x, inverse_of(scale));
        uint32_t groups[8];
        _mm256_storeu_si256((void *)groups, q);
        for (int j = 0; j < 8; j++) memcpy(row_group + (size_t)j * group_rows * 4, &groups[j], 4);

        const __m256i quads = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), q), _mm256_set1_epi16(1));
        const int32_t half = sum_of_all(_mm256_castsi256_si128(quads)),
                      sum = half + sum_of_all(_mm256_extracti128_si256(quads, 1));
        float *scales = (float *)(row_group + (size_t)group_rows * CL_LINEAR_BLOCK);
        scales[0] = _mm256_cvtss_f32(scale);
        scales[group_rows] = scales[0] * -12582912.0f;
        scales[2 * group_rows] = scales[0] * (float)sum;
        const int32_t starts[] = {CL_LINEAR_MAGIC - 128 * sum, CL_LINEAR_MAGIC - 128 * half};
        memcpy(scales + 3 * group_rows, &starts[0], sizeof starts[0]);
        memcpy(scales + 4 * group_rows, &starts[1], sizeof starts[1]);
    }
}

void cl_linear_quantize_avx2(const float *x, size_t row_stride, int32_t n_rows, int32_t n_blocks, uint8_t *row_group,
                             int32_t group_rows) {
    if (n_rows == 8) {
        quantize_8_rows(x, row_stride, n_blocks, row_group, group_rows);
        return;
    }
    for (int32_t r = 0; r < n_rows; r++) quantize_row(x + (size_t)r * row_stride, n_blocks, row_group + 4 * r, group_rows);
}
