/* Quantises up to 8 rows of a tile with AVX2, a row a lane where rows have something in common to do; for every x86 level. */
#include "quantize_avx2.h"

#include <immintrin.h>

#include "llama/linear_kernels.h"

/* Row i of the result's lane i: the largest of the 8 lanes of v[i]. */
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

/* 32 floats times `inverse`, to the nearest int8, in order. */
static inline __m256i round_block(const float *x, __m256 inverse) {
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)); /* the packs worked in halves */
}

static inline __m256i start_of(__m256i sum) {
    return _mm256_sub_epi32(_mm256_set1_epi32(LINEAR_MAGIC), _mm256_slli_epi32(sum, 7));
}

void linear_quantize_avx2(const float *x, size_t row_stride, int32_t n_rows, int32_t n_blocks, uint8_t *tile,
                          int32_t tile_rows) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256i lanes = _mm256_cmpgt_epi32(_mm256_set1_epi32(n_rows), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    for (int32_t b = 0; b < n_blocks; b++, x += LINEAR_BLOCK, tile += (size_t)tile_rows * LINEAR_ROW_BYTES) {
        __m256 max[8];
        for (int r = 0; r < 8; r++) {
            max[r] = _mm256_setzero_ps();
            if (r >= n_rows) continue;
            for (int i = 0; i < LINEAR_BLOCK; i += 8)
                max[r] = _mm256_max_ps(max[r], _mm256_and_ps(magnitude, _mm256_loadu_ps(x + (size_t)r * row_stride + i)));
        }
        const __m256 exact = _mm256_div_ps(max_of_each(max), _mm256_set1_ps(127.0f));
        const __m256 scale = _mm256_castsi256_ps(
            _mm256_andnot_si256(_mm256_set1_epi32(3), _mm256_add_epi32(_mm256_castps_si256(exact), _mm256_set1_epi32(3))));
        const __m256 inverse =
            _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(1.0f), scale), _mm256_cmp_ps(scale, _mm256_setzero_ps(), _CMP_GT_OQ));
        float each[8];
        _mm256_storeu_ps(each, inverse);

        __m256i q[8]; /* a row each, then a group of 4 inputs each */
        for (int r = 0; r < 8; r++)
            q[r] = r < n_rows ? round_block(x + (size_t)r * row_stride, _mm256_set1_ps(each[r])) : _mm256_setzero_si256();
        transpose(q);
        __m256i pairs = _mm256_setzero_si256(), half = pairs;
        for (int j = 0; j < 8; j++) {
            if (j == 4) half = pairs;
            pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(_mm256_set1_epi8(1), q[j]));
            _mm256_maskstore_epi32((int *)(tile + (size_t)j * tile_rows * 4), lanes, q[j]);
        }
        const __m256i ones = _mm256_set1_epi16(1), sum = _mm256_madd_epi16(pairs, ones);
        float *scales = (float *)(tile + (size_t)tile_rows * LINEAR_BLOCK);
        _mm256_maskstore_ps(scales, lanes, scale);
        _mm256_maskstore_ps(scales + tile_rows, lanes, _mm256_mul_ps(scale, _mm256_set1_ps(-12582912.0f)));
        _mm256_maskstore_ps(scales + 2 * tile_rows, lanes, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(sum)));
        _mm256_maskstore_epi32((int *)(scales + 3 * tile_rows), lanes, start_of(sum));
        _mm256_maskstore_epi32((int *)(scales + 4 * tile_rows), lanes, start_of(_mm256_madd_epi16(half, ones)));
    }
}
