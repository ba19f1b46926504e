/* The level "avx2", with FMA and F16C: a panel in two halves of 8 outputs, times up to 4 rows at once. */
#include <immintrin.h>
#include <stdbool.h>

#include "linear_x86.h"

enum { ROWS = 4, PREFETCH_BYTES = 3072 };

INLINE __m256 load_f16(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }

/* The first n of 16 outputs. */
INLINE void store_outputs(float *y, __m256 low, __m256 high, int32_t n) {
    if (n == CL_LINEAR_LANES) {
        _mm256_storeu_ps(y, low);
        _mm256_storeu_ps(y + 8, high);
        return;
    }
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), index), low);
    if (n > 8) _mm256_maskstore_ps(y + 8, _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), index), high);
}

/* ---- Quantised weights ---- */

/* Shift each byte right by n bits, or left if n is negative; bits of its neighbour are shifted in. */
INLINE __m256i shift_bits(__m256i x, int n) { return n < 0 ? _mm256_slli_epi16(x, -n) : _mm256_srli_epi16(x, n); }

/*
 * Inputs 4 step to 4 step + 3 of 8 outputs in a record: weights if the format has a zero, otherwise codes. table: that of the
 * task, twice.
 */
INLINE __m256i load_weights_i8(const cl_linear_format f, __m256i table, const uint8_t *half, int step) {
    __m256i codes = _mm256_setzero_si256();
    int shift = 0;
    if (f.bits == 8) codes = _mm256_loadu_si256((const void *)(half + 64 * step));
    if (f.bits & 4) {
        const __m256i both = _mm256_loadu_si256((const void *)(half + 64 * (step & 3)));
        codes = _mm256_and_si256(step < 4 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
        half += 256;
        shift = 4;
    }
    if (f.bits & 2) {
        const __m256i four = _mm256_loadu_si256((const void *)(half + 64 * (step >> 2)));
        const __m256i mask = _mm256_set1_epi8((char)(3 << shift));
        codes = _mm256_or_si256(codes, _mm256_and_si256(shift_bits(four, 2 * (step & 3) - shift), mask));
        half += 128;
        shift += 2;
    }
    if (f.bits & 1) {
        const __m256i eight = _mm256_loadu_si256((const void *)half), mask = _mm256_set1_epi8((char)(1 << shift));
        codes = _mm256_or_si256(codes, _mm256_and_si256(shift_bits(eight, step - shift), mask));
    }
    if (f.table) codes = _mm256_shuffle_epi8(table, codes);
    return f.zero ? _mm256_sub_epi8(codes, _mm256_set1_epi8((char)f.zero)) : codes;
}

/* 8 scales. super: the scales of which these are factors, if any. */
INLINE __m256 load_scales(const cl_linear_format f, const uint8_t *p, int h, __m256 super) {
    if (f.powers) {
        const __m128i exponents = _mm_subs_epu8(_mm_loadl_epi64((const void *)(p + 8 * h)), _mm_set1_epi8(1));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(exponents), 23));
    }
    if (!f.super) return load_f16(p + 16 * h);
    return _mm256_mul_ps(super, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + 8 * h)))));
}

/* The integer sums of scale group g of a block, for one half of a panel. */
INLINE void dot_scale_group(const int R, const cl_linear_format f, __m256i table, const uint8_t *half, const uint8_t *x,
                            size_t x_step, const int g, __m256i *sum) {
    const int first = g * f.scale_group / 4, end = first + f.scale_group / 4;
    const int run = steps_in_16_bits(f.zero ? f.zero : (1 << f.bits) - 1);
    __m256i pairs[ROWS];
    UNROLL for (int r = 0; r < R; r++) sum[r] = pairs[r] = _mm256_setzero_si256();
    UNROLL for (int step = first; step < end; step++) {
        const __m256i w = load_weights_i8(f, table, half, step), size = f.zero ? _mm256_abs_epi8(w) : w;
        const int in_run = (step - first) % run;
        const bool ends = in_run == run - 1 || step == end - 1;
        UNROLL for (int r = 0; r < R; r++) {
            const __m256i xr = _mm256_set1_epi32(load_i32(x + (size_t)step * x_step + 4 * r));
            const __m256i products = _mm256_maddubs_epi16(size, f.zero ? _mm256_sign_epi8(xr, w) : xr);
            pairs[r] = in_run ? _mm256_add_epi16(pairs[r], products) : products;
            if (ends) sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(pairs[r], _mm256_set1_epi16(1)));
        }
    }
}

/* scale * (float)sum of the activations of scale group g, for a row whose scale is at `scales`. x_step: that of the tile. */
INLINE float scale_group_weighted(const cl_linear_format f, const uint8_t *scales, size_t x_step, int g) {
    if (f.scale_group == CL_LINEAR_BLOCK) return load_f32(scales + 2 * x_step);
    const int32_t first = CL_LINEAR_MAGIC - load_i32(scales + 4 * x_step),
                  both = CL_LINEAR_MAGIC - load_i32(scales + 3 * x_step);
    const int32_t sum = (g == 0 ? first : both - first) / 128;
    return load_f32(scales) * (float)sum;
}

/* Multiply R rows, the first of them at `tile`, of a row group of group_rows rows with one panel. */
INLINE void quant_tile(const int R, const cl_linear_format f, const cl_linear_task *t, const uint8_t *record,
                       const uint8_t *row_group, int32_t group_rows, float *y, int32_t n_outputs) {
    const size_t x_step = 4 * (size_t)group_rows;
    const int n_scale_groups = CL_LINEAR_BLOCK / f.scale_group;
    const __m256i table =
        f.table ? _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)t->table)) : _mm256_setzero_si256();
    __m256 acc[ROWS][2], super_d[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, super_m[2] = {super_d[0], super_d[0]};
    UNROLL for (int r = 0; r < R; r++) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (int32_t b = 0; b < t->n_in / CL_LINEAR_BLOCK; b++, row_group += CL_LINEAR_ROW_BYTES * (size_t)group_rows) {
        if (f.super && b % CL_LINEAR_SUPER == 0) {
            UNROLL for (int h = 0; h < 2; h++) {
                super_d[h] = load_f16(record + 16 * h);
                if (f.super > 1) super_d[h] = _mm256_mul_ps(super_d[h], _mm256_set1_ps(1.0f / (float)f.super));
                if (f.min) super_m[h] = load_f16(record + 32 + 16 * h);
            }
            record += cl_linear_super_bytes(f);
        }
        for (size_t i = 0; i < cl_linear_record_bytes(f); i += 64) _mm_prefetch(record + PREFETCH_BYTES + i, _MM_HINT_T0);
        const uint8_t *scales = row_group + 8 * x_step;
        UNROLL for (int g = 0; g < n_scale_groups; g++) {
            UNROLL for (int h = 0; h < 2; h++) {
                __m256i sum[ROWS];
                dot_scale_group(R, f, table, record + 32 * h, row_group, x_step, g, sum);
                const __m256 d = load_scales(f, record + cl_linear_d_at(f, g), h, super_d[h]);
                const __m256 m = f.min ? load_scales(f, record + cl_linear_m_at(f, g), h, super_m[h]) : d;
                UNROLL for (int r = 0; r < R; r++) {
                    const __m256 scale = _mm256_set1_ps(load_f32(scales + 4 * r));
                    acc[r][h] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum[r]), scale), d, acc[r][h]);
                    if (!f.min) continue;
                    const __m256 weighted = _mm256_set1_ps(scale_group_weighted(f, scales + 4 * r, x_step, g));
                    acc[r][h] = _mm256_fmadd_ps(weighted, m, acc[r][h]);
                }
            }
        }
        record += cl_linear_record_bytes(f);
    }
    UNROLL for (int r = 0; r < R; r++) store_outputs(y + (size_t)r * t->y_stride, acc[r][0], acc[r][1], n_outputs);
}

INLINE void multiply_quant(const cl_linear_layout layout, const cl_linear_task *t) {
    const cl_linear_format f = cl_linear_formats[layout];
    const size_t row_bytes = (size_t)(t->n_in / CL_LINEAR_BLOCK) * CL_LINEAR_ROW_BYTES;
    for (int32_t p = 0; p < t->n_panels; p++) {
        const uint8_t *panel = t->panels + (size_t)p * cl_linear_panel_bytes(layout, t->n_in);
        const int32_t n_outputs = p == t->n_panels - 1 ? t->n_last : CL_LINEAR_LANES;
        for (int32_t row = 0, n; row < t->n_rows; row += n) {
            const int32_t first = row - row % CL_LINEAR_ROW_GROUP, left = t->n_rows - first;
            const int32_t group_rows = left < CL_LINEAR_ROW_GROUP ? left : CL_LINEAR_ROW_GROUP;
            const uint8_t *x = t->row_groups + (size_t)first * row_bytes + 4 * (size_t)(row - first);
            float *y = t->y + (size_t)row * t->y_stride + 16 * (size_t)p;
            n = t->n_rows - row < ROWS ? t->n_rows - row : ROWS;
            switch (n) {
            case 1: quant_tile(1, f, t, panel, x, group_rows, y, n_outputs); break;
            case 2: quant_tile(2, f, t, panel, x, group_rows, y, n_outputs); break;
            case 3: quant_tile(3, f, t, panel, x, group_rows, y, n_outputs); break;
            default: quant_tile(4, f, t, panel, x, group_rows, y, n_outputs); break;
            }
        }
    }
}

#define MULTIPLY(name, ...)                                                                                                    \
    static void multiply_##name(const cl_linear_task *t) { multiply_quant(CL_LINEAR_##name, t); }
LINEAR_QUANT_LAYOUTS(MULTIPLY)

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
    UNROLL for (int r = 0; r < R; r++) store_outputs(y + (size_t)r * t->y_stride, acc[r][0], acc[r][1], n_outputs);
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

static void multiply_f32(const cl_linear_task *t) { multiply_float(CL_LINEAR_F32, t); }
static void multiply_f16(const cl_linear_task *t) { multiply_float(CL_LINEAR_F16, t); }
static void multiply_bf16(const cl_linear_task *t) { multiply_float(CL_LINEAR_BF16, t); }

const cl_kernels cl_kernels_avx2 = {
    .level = "avx2",
    .group_rows = CL_LINEAR_ROW_GROUP,
    .quantize = cl_linear_quantize_avx2,
    .multiply = {multiply_f32, multiply_f16, multiply_bf16, LINEAR_QUANT_LAYOUTS(LINEAR_ENTRY)},
    .row_ops = CL_ROW_OPS,
};
