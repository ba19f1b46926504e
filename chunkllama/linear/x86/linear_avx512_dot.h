/* The level "avx512", without VNNI: u8 codes times int8 activations through 16-bit sums. */
#ifndef CHUNKLLAMA_LINEAR_X86_LINEAR_AVX512_DOT_H
#define CHUNKLLAMA_LINEAR_X86_LINEAR_AVX512_DOT_H

#include "linear_avx512_tiles.h"

#define LINEAR_KERNEL(name) cl_linear_##name##_avx512

INLINE void dot_scale_group(const int R, const int V, const record_format w, __m512i table, const cursor *at,
                            const uint8_t *row_group, const int g, __m512 (*scaled)[2]) {
    const int first = g * w.f.scale_group / 4, end = first + w.f.scale_group / 4;
    const int run = steps_in_16_bits(w.f.table ? 128 : w.f.zero ? w.f.zero : w.unpacked ? 31 : (1 << w.f.bits) - 1);
    __m512i sum[8][2], pairs[8][2];
    UNROLL for (int r = 0; r < R; r++) { UNROLL for (int v = 0; v < V; v++) sum[r][v] = pairs[r][v] = _mm512_setzero_si512(); }
    UNROLL for (int step = first; step < end; step++) {
        __m512i codes[2];
        __mmask64 negative[2];
        UNROLL for (int v = 0; v < V; v++) {
            codes[v] = load_codes(w, table, at[v].record, step);
            if (!w.f.zero) continue;
            codes[v] = _mm512_xor_si512(codes[v], _mm512_set1_epi8(-128));
            negative[v] = _mm512_movepi8_mask(codes[v]);
            codes[v] = _mm512_abs_epi8(codes[v]);
        }
        const int in_run = (step - first) % run;
        const bool ends = in_run == run - 1 || step == end - 1;
        UNROLL for (int r = 0; r < R; r++) {
            const __m512i x = _mm512_set1_epi32(load_i32(row_group + (step * R + r) * 4));
            UNROLL for (int v = 0; v < V; v++) {
                const __m512i signed_x = w.f.zero ? _mm512_mask_sub_epi8(x, negative[v], _mm512_setzero_si512(), x) : x;
                const __m512i products = _mm512_maddubs_epi16(codes[v], signed_x);
                pairs[r][v] = in_run ? _mm512_add_epi16(pairs[r][v], products) : products;
                KEEP(pairs[r][v]);
                if (ends) sum[r][v] = _mm512_add_epi32(sum[r][v], _mm512_madd_epi16(pairs[r][v], _mm512_set1_epi16(1)));
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        const __m512 scale = _mm512_set1_ps(load_f32(row_group + 32 * R + 4 * r));
        UNROLL for (int v = 0; v < V; v++) scaled[r][v] = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][v]), scale);
    }
}

#endif
