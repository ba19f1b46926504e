/*
 * The level "avx_vnni", for CPUs without AVX-512: vpdpbusd with 256-bit vectors, u8 codes times int8 activations, four at a
 * time. Float weights are multiplied as at "avx2".
 */
#include "linear_avx2_tiles.h"

/* Unsigned: the weight plus 128, if the format has a zero. */
INLINE __m256i operand_of(const cl_linear_format f, __m256i codes) {
    return f.zero && f.zero != 128 ? _mm256_add_epi8(codes, _mm256_set1_epi8((char)(128 - f.zero))) : codes;
}

INLINE void dot_scale_group(const int R, const record_format w, __m256i table, const uint8_t *record, const uint8_t *x,
                            size_t x_step, const int g, __m256 (*scaled)[2]) {
    const int steps = w.f.scale_group / 4;
    const uint8_t *scales = x + 8 * x_step;
    __m256i sum[ROWS][2];
    row_values start;
    if (w.f.zero) start = scale_group_starts(R, w.f, scales, x_step, g);
    UNROLL for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm256_set1_epi32(w.f.zero ? start.i[r] : CL_LINEAR_MAGIC);
    UNROLL for (int step = g * steps; step < (g + 1) * steps; step++) {
        __m256i operand[2];
        UNROLL for (int h = 0; h < 2; h++) operand[h] = load_operand(w, table, record + 32 * h, step);
        UNROLL for (int r = 0; r < R; r++) {
            const __m256i xr = _mm256_set1_epi32(load_i32(x + (size_t)step * x_step + 4 * r));
            UNROLL for (int h = 0; h < 2; h++) {
                sum[r][h] = _mm256_dpbusd_avx_epi32(sum[r][h], operand[h], xr);
                KEEP(sum[r][h]);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        const __m256 scale = _mm256_set1_ps(load_f32(scales + 4 * r)),
                     offset = _mm256_set1_ps(load_f32(scales + x_step + 4 * r));
        UNROLL for (int h = 0; h < 2; h++) scaled[r][h] = _mm256_fmadd_ps(_mm256_castsi256_ps(sum[r][h]), scale, offset);
    }
}

LINEAR_QUANT_LAYOUTS(LINEAR_MULTIPLY)

const cl_kernels cl_kernels_avx_vnni = {
    .level = "avx_vnni",
    .group_rows = CL_LINEAR_ROW_GROUP,
    .quantize = cl_linear_quantize_avx2,
    .multiply = {cl_linear_f32_avx2, cl_linear_f16_avx2, cl_linear_bf16_avx2, LINEAR_QUANT_LAYOUTS(LINEAR_ENTRY)},
    .row_ops = CL_ROW_OPS,
};
