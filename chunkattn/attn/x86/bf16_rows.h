/* Rows of the levels that multiply bf16: packed queries and softmax weights are rounded to it. */
#ifndef CHUNKATTN_ATTN_X86_BF16_ROWS_H
#define CHUNKATTN_ATTN_X86_BF16_ROWS_H

#include "vec512.h"

static inline void store_weights(float *scores, int group, vec p) {
    _mm256_storeu_si256((__m256i *)scores + group, (__m256i)_mm512_cvtneps_pbh(p));
}

#include "row.h"

static size_t query_bytes(int32_t d_k) { return ((size_t)d_k * 2 + 63) / 64 * 64; }

static void pack_query(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2, void *packed) {
    for (int32_t r = 0; r < n_rows; r++) {
        __m256i *to = (__m256i *)((char *)packed + (size_t)r * query_bytes(d_k));
        for (int32_t i = 0; i < d_k; i += V_LANES) {
            const vec x = v_mul(v_load(q + r * row_stride + i), v_set1(scale_log2));
            _mm256_storeu_si256(to + i / V_LANES, (__m256i)_mm512_cvtneps_pbh(x));
        }
    }
}

#endif
