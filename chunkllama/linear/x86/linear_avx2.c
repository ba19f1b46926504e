/*
 * The level "avx2", with FMA and F16C. Codes of less than 8 bits are multiplied as they are, without a sign, and their zero
 * times the sum of the activations is subtracted. Other weights have a sign, which goes to the activation.
 */
#include "linear_avx2_tiles.h"

/* ---- Quantised weights ---- */

INLINE bool has_sign(const cl_linear_format f) { return f.table || f.bits == 8; }

INLINE __m256i operand_of(const cl_linear_format f, __m256i codes) {
    return has_sign(f) ? _mm256_sub_epi8(codes, _mm256_set1_epi8((char)f.zero)) : codes;
}

INLINE void dot_scale_group(const int R, const record_format w, __m256i table, const uint8_t *record, const uint8_t *x,
                            size_t x_step, const int g, __m256 (*scaled)[2]) {
    const int first = g * w.f.scale_group / 4, end = first + w.f.scale_group / 4;
    const int run = steps_in_16_bits(has_sign(w.f) ? w.f.zero : (1 << w.f.bits) - 1);
    const uint8_t *scales = x + 8 * x_step;
    __m256i sum[ROWS][2], pairs[ROWS][2];
    row_values zeros;
    if (w.f.zero && !has_sign(w.f)) zeros = scale_group_zeros(R, w.f, scales, x_step, g);
    UNROLL for (int step = first; step < end; step++) {
        __m256i operand[2], size[2];
        UNROLL for (int h = 0; h < 2; h++) {
            operand[h] = load_operand(w, table, record + 32 * h, step);
            size[h] = has_sign(w.f) ? _mm256_abs_epi8(operand[h]) : operand[h];
        }
        const int in_run = (step - first) % run;
        const bool ends = in_run == run - 1 || step == end - 1;
        UNROLL for (int r = 0; r < R; r++) {
            const __m256i xr = _mm256_set1_epi32(load_i32(x + (size_t)step * x_step + 4 * r));
            UNROLL for (int h = 0; h < 2; h++) {
                const __m256i products = _mm256_maddubs_epi16(size[h], has_sign(w.f) ? _mm256_sign_epi8(xr, operand[h]) : xr);
                pairs[r][h] = in_run ? _mm256_add_epi16(pairs[r][h], products) : products;
                KEEP(pairs[r][h]);
                if (!ends) continue;
                const __m256i of_run = _mm256_madd_epi16(pairs[r][h], _mm256_set1_epi16(1));
                sum[r][h] = step - first < run ? of_run : _mm256_add_epi32(sum[r][h], of_run);
                KEEP(sum[r][h]);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        const __m256 scale = _mm256_set1_ps(load_f32(scales + 4 * r));
        UNROLL for (int h = 0; h < 2; h++) {
            if (w.f.zero && !has_sign(w.f)) sum[r][h] = _mm256_sub_epi32(sum[r][h], _mm256_set1_epi32(zeros.i[r]));
            scaled[r][h] = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r][h]), scale);
        }
    }
}

LINEAR_QUANT_LAYOUTS(LINEAR_MULTIPLY)

/* ---- Float weights ---- */

/* Keep all sums in registers: gcc 12 would mix the products of two inputs, and spill a sum in each iteration. */
INLINE void keep_sums(__m256 (*acc)[2]) {
    __asm__ volatile(""
                     : "+x"(acc[0][0]), "+x"(acc[0][1]), "+x"(acc[1][0]), "+x"(acc[1][1]), "+x"(acc[2][0]), "+x"(acc[2][1]),
                       "+x"(acc[3][0]), "+x"(acc[3][1]));
}

/* The weights of input i of a line, for half a panel. */
INLINE __m256 load_weights(const cl_linear_layout layout, const uint8_t *line, const int i, const int h) {
    if (layout == CL_LINEAR_F32) return _mm256_loadu_ps((const float *)(line + 32 * h));
    if (layout == CL_LINEAR_F16) return load_f16(line + 16 * h);
    const __m256i pairs = _mm256_loadu_si256((const void *)(line + 32 * h));
    return _mm256_castsi256_ps(i ? _mm256_and_si256(pairs, _mm256_set1_epi32(-65536)) : _mm256_slli_epi32(pairs, 16));
}

/* acc plus the products of input i of a line with R rows, whose first input of the line is at x. */
INLINE void add_input(const int R, const cl_linear_layout layout, const cl_linear_task *t, const uint8_t *line, const int i,
                      const float *x, __m256 (*acc)[2]) {
    const __m256 low = load_weights(layout, line, i, 0), high = load_weights(layout, line, i, 1);
    UNROLL for (int r = 0; r < R; r++) {
        const __m256 xr = _mm256_set1_ps(x[(size_t)r * t->x_stride + (size_t)i]);
        acc[r][0] = _mm256_fmadd_ps(xr, low, acc[r][0]);
        acc[r][1] = _mm256_fmadd_ps(xr, high, acc[r][1]);
    }
}

INLINE void float_tile(const int R, const cl_linear_layout layout, const cl_linear_task *t, const uint8_t *panel,
                       const float *x, float *y, int32_t n_outputs) {
    __m256 acc[ROWS][2];
    UNROLL for (int r = 0; r < R; r++) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    const int n = line_inputs(layout);
    int32_t left = t->n_in;
    for (; left >= n; left -= n, x += n, panel += line_bytes(layout)) {
        UNROLL for (int i = 0; i < n; i++) {
            add_input(R, layout, t, panel, i, x, acc);
            if (R == ROWS && n == 2) keep_sums(acc);
        }
    }
    if (left) add_input(R, layout, t, panel, 0, x, acc);
    UNROLL for (int r = 0; r < R; r++) store_outputs(y + (size_t)r * t->y_stride, acc[r], n_outputs);
}

INLINE void multiply_float(const cl_linear_layout layout, const cl_linear_task *t) {
    const size_t panel_bytes = cl_linear_panel_bytes(layout, t->n_in);
    for (int32_t p = 0; p < t->n_panels; p++) {
        const uint8_t *panel = t->panels + (size_t)p * panel_bytes;
        const int32_t n_outputs = p == t->n_panels - 1 ? t->n_last : CL_LINEAR_LANES;
        const float *x = t->x;
        float *y = t->y + 16 * (size_t)p;
        int32_t row = 0;
        for (; row + ROWS <= t->n_rows; row += ROWS, x += ROWS * t->x_stride, y += ROWS * t->y_stride)
            float_tile(ROWS, layout, t, panel, x, y, n_outputs);
        for (; row < t->n_rows; row++, x += t->x_stride, y += t->y_stride) float_tile(1, layout, t, panel, x, y, n_outputs);
    }
}

void cl_linear_f32_avx2(const cl_linear_task *t) { multiply_float(CL_LINEAR_F32, t); }
void cl_linear_f16_avx2(const cl_linear_task *t) { multiply_float(CL_LINEAR_F16, t); }
void cl_linear_bf16_avx2(const cl_linear_task *t) { multiply_float(CL_LINEAR_BF16, t); }

const cl_kernels cl_kernels_avx2 = {
    .level = "avx2",
    .group_rows = CL_LINEAR_ROW_GROUP,
    .quantize = cl_linear_quantize_avx2,
    .multiply = {cl_linear_f32_avx2, cl_linear_f16_avx2, cl_linear_bf16_avx2, LINEAR_QUANT_LAYOUTS(LINEAR_ENTRY)},
    .row_ops = CL_ROW_OPS,
};
