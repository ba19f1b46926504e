/* The level "avx512_vnni": u8 codes times int8 activations, four at a time. */
#ifndef CHUNKLLAMA_LINEAR_X86_LINEAR_AVX512_VNNI_DOT_H
#define CHUNKLLAMA_LINEAR_X86_LINEAR_AVX512_VNNI_DOT_H

#include "linear_avx512_tiles.h"

#define LINEAR_KERNEL(name) cl_linear_##name##_avx512_vnni

INLINE void dot_scale_group(const int R, const int V, const record_format w, __m512i table, const cursor *at,
                            const uint8_t *row_group, const int g, __m512 (*scaled)[2]) {
    const int steps = w.f.scale_group / 4;
    __m512i sum[8][2];
    UNROLL for (int r = 0; r < R; r++) {
        const __m512i start = _mm512_set1_epi32(w.f.zero ? scale_group_start(w, R, row_group, r, g) : CL_LINEAR_MAGIC);
        UNROLL for (int v = 0; v < V; v++) sum[r][v] = start;
    }
    UNROLL for (int step = g * steps; step < (g + 1) * steps; step++) {
        __m512i codes[2];
        UNROLL for (int v = 0; v < V; v++) codes[v] = load_codes(w, table, at[v].record, step);
        UNROLL for (int r = 0; r < R; r++) {
            const __m512i x = _mm512_set1_epi32(load_i32(row_group + (step * R + r) * 4));
            UNROLL for (int v = 0; v < V; v++) sum[r][v] = _mm512_dpbusd_epi32(sum[r][v], codes[v], x);
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        const __m512 scale = _mm512_set1_ps(load_f32(row_group + 32 * R + 4 * r));
        const __m512 offset = _mm512_set1_ps(load_f32(row_group + 36 * R + 4 * r));
        UNROLL for (int v = 0; v < V; v++) scaled[r][v] = _mm512_fmadd_ps(_mm512_castsi512_ps(sum[r][v]), scale, offset);
    }
}

#endif
