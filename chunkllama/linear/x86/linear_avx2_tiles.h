/*
 * Register tiles of 4 rows times a panel, in two halves of 8 outputs, of quantised weights, for the levels with 256-bit
 * vectors, which differ only in how they multiply int8.
 *
 * A template: behind it, a level defines dot_scale_group, which is declared below, and applies LINEAR_MULTIPLY to
 * LINEAR_QUANT_LAYOUTS. R, f and g are constants after inlining, so that arrays are kept in registers.
 */
#ifndef CHUNKLLAMA_LINEAR_X86_LINEAR_AVX2_TILES_H
#define CHUNKLLAMA_LINEAR_X86_LINEAR_AVX2_TILES_H

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

/* ---- Records ---- */

/* Shift each byte right by n bits, or left if n is negative; bits of its neighbour are shifted in. */
INLINE __m256i shift_bits(__m256i x, int n) { return n < 0 ? _mm256_slli_epi16(x, -n) : _mm256_srli_epi16(x, n); }

/*
 * Inputs 4 step to 4 step + 3 of 8 outputs in a record: codes; with a table, weights plus 128. table: that of the task, in each
 * 128-bit lane.
 */
INLINE __m256i load_codes(const cl_linear_format f, __m256i table, const uint8_t *half, int step) {
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
    return f.table ? _mm256_shuffle_epi8(table, codes) : codes;
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

/* ---- Tiles ---- */

/*
 * A row's values of scale group g, where those of the block are at `scales`, x_step bytes from one to the next
 * (linear_kernels.h). The start of the integer sum, which corrects for codes that are 128 too large:
 */
INLINE int32_t scale_group_start(const cl_linear_format f, const uint8_t *scales, size_t x_step, int g) {
    const int32_t start = load_i32(scales + 3 * x_step), half = load_i32(scales + 4 * x_step);
    if (f.scale_group == CL_LINEAR_BLOCK) return start;
    return g == 0 ? half : start - half + CL_LINEAR_MAGIC;
}

/* The sum of the row's int8. */
INLINE int32_t scale_group_sum(const cl_linear_format f, const uint8_t *scales, size_t x_step, int g) {
    return (CL_LINEAR_MAGIC - scale_group_start(f, scales, x_step, g)) / 128;
}

/* The same times the row's scale. */
INLINE float scale_group_weighted(const cl_linear_format f, const uint8_t *scales, size_t x_step, int g) {
    if (f.scale_group == CL_LINEAR_BLOCK) return load_f32(scales + 2 * x_step);
    return load_f32(scales) * (float)scale_group_sum(f, scales, x_step, g);
}

/*
 * scaled[r][h] = (float)sum * scale of scale group g of a block, for R rows and both halves of a panel. x: the first row in its
 * record, in which steps and arrays are x_step bytes apart.
 */
INLINE void dot_scale_group(int R, cl_linear_format f, __m256i table, const uint8_t *record, const uint8_t *x, size_t x_step,
                            int g, __m256 (*scaled)[2]);

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
        UNROLL for (int g = 0; g < n_scale_groups; g++) {
            __m256 scaled[ROWS][2];
            dot_scale_group(R, f, table, record, row_group, x_step, g, scaled);
            UNROLL for (int h = 0; h < 2; h++) {
                const __m256 d = load_scales(f, record + cl_linear_d_at(f, g), h, super_d[h]);
                const __m256 m = f.min ? load_scales(f, record + cl_linear_m_at(f, g), h, super_m[h]) : d;
                UNROLL for (int r = 0; r < R; r++) {
                    acc[r][h] = _mm256_fmadd_ps(scaled[r][h], d, acc[r][h]);
                    if (!f.min) continue;
                    const float weighted = scale_group_weighted(f, row_group + 8 * x_step + 4 * r, x_step, g);
                    acc[r][h] = _mm256_fmadd_ps(_mm256_set1_ps(weighted), m, acc[r][h]);
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
            default: quant_tile(ROWS, f, t, panel, x, group_rows, y, n_outputs); break;
            }
        }
    }
}

#define LINEAR_MULTIPLY(name, ...)                                                                                             \
    static void multiply_##name(const cl_linear_task *t) { multiply_quant(CL_LINEAR_##name, t); }

#endif
