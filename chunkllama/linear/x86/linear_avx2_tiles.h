/*
 * Register tiles of 4 rows times a panel, in two halves of 8 outputs, of quantised weights, for the levels with 256-bit
 * vectors, which differ only in how they multiply int8.
 *
 * A template: behind it, a level defines operand_of and dot_scale_group, which are declared below, and applies LINEAR_MULTIPLY
 * to LINEAR_QUANT_LAYOUTS. R, w and g are constants after inlining, so that arrays are kept in registers.
 *
 * Few rows read packed records, all inputs at once. Where many rows pass over a panel, they do it a stripe of its inputs at a
 * time, which is unpacked once, into the task's scratch, and stays in the first-level cache with the same inputs of some rows.
 * The sums over the stripes before are in y.
 */
#ifndef CHUNKLLAMA_LINEAR_X86_LINEAR_AVX2_TILES_H
#define CHUNKLLAMA_LINEAR_X86_LINEAR_AVX2_TILES_H

#include <immintrin.h>
#include <stdbool.h>

#include "linear_x86.h"

enum {
    ROWS = 4,
    FEW_ROWS = 16,     /* at most, that read packed records */
    STRIPE_BLOCKS = 32 /* a multiple of CL_LINEAR_SUPER */
};

INLINE __m256 load_f16(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }

/* The first n - 8 h of the outputs of half h. */
INLINE __m256i outputs_mask(int32_t n, int h) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8 * h), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first n of 16 outputs. */
INLINE void load_outputs(const float *y, __m256 *halves, int32_t n) {
    for (int h = 0; h < 2; h++)
        halves[h] = n == CL_LINEAR_LANES ? _mm256_loadu_ps(y + 8 * h) : _mm256_maskload_ps(y + 8 * h, outputs_mask(n, h));
}

INLINE void store_outputs(float *y, const __m256 *halves, int32_t n) {
    for (int h = 0; h < 2; h++) {
        if (n == CL_LINEAR_LANES)
            _mm256_storeu_ps(y + 8 * h, halves[h]);
        else
            _mm256_maskstore_ps(y + 8 * h, outputs_mask(n, h), halves[h]);
    }
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

/* What a level multiplies in place of codes. */
INLINE __m256i operand_of(cl_linear_format f, __m256i codes);

INLINE __m256i load_operand(const record_format w, __m256i table, const uint8_t *half, int step) {
    if (w.unpacked) return _mm256_load_si256((const void *)(half + 64 * step));
    return operand_of(w.f, load_codes(w.f, table, half, step));
}

INLINE __m256i load_table(const record_format w, const cl_linear_task *t) {
    return w.f.table ? _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)t->table)) : _mm256_setzero_si256();
}

/* 8 scales of a record. super: the scales of which these are factors, if any. */
INLINE __m256 load_scales(const record_format w, const uint8_t *p, int h, __m256 super) {
    if (w.unpacked) return _mm256_load_ps((const float *)p + 8 * h);
    if (w.f.powers) {
        const __m128i exponents = _mm_subs_epu8(_mm_loadl_epi64((const void *)(p + 8 * h)), _mm_set1_epi8(1));
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(exponents), 23));
    }
    if (!w.f.super) return load_f16(p + 16 * h);
    return _mm256_mul_ps(super, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + 8 * h)))));
}

/* The place in a panel that is being read, and the f16 scales of its super-block. */
typedef struct cursor {
    const uint8_t *record;
    __m256 d[2], m[2];
} cursor;

/* Called before block b is read, for ascending b. */
INLINE void enter_block(const record_format w, cursor *c, int32_t b) {
    if (w.unpacked || !w.f.super || b % CL_LINEAR_SUPER) return;
    UNROLL for (int h = 0; h < 2; h++) {
        c->d[h] = load_f16(c->record + 16 * h);
        if (w.f.super > 1) c->d[h] = _mm256_mul_ps(c->d[h], _mm256_set1_ps(1.0f / (float)w.f.super));
        if (w.f.min) c->m[h] = load_f16(c->record + 32 + 16 * h);
    }
    c->record += cl_linear_super_bytes(w.f);
}

/* Unpack n blocks of a panel, from a super-block's begin on, to records of operands. */
INLINE void unpack_blocks(const record_format w, const cl_linear_task *t, const uint8_t *from, int32_t n, uint8_t *to) {
    const record_format u = {w.f, .unpacked = true};
    const __m256i table = load_table(w, t);
    cursor c = {.record = from};
    for (int32_t b = 0; b < n; b++, c.record += record_bytes(w), to += record_bytes(u)) {
        enter_block(w, &c, b);
        UNROLL for (int i = 0; i < 16; i++) {
            const __m256i operand = load_operand(w, table, c.record + 32 * (i % 2), i / 2);
            _mm256_store_si256((__m256i *)to + i, operand);
        }
        UNROLL for (int g = 0; g < n_scale_groups(w); g++) {
            UNROLL for (int h = 0; h < 2; h++) {
                _mm256_store_ps((float *)(to + d_at(u, g)) + 8 * h, load_scales(w, c.record + d_at(w, g), h, c.d[h]));
                if (!w.f.min) continue;
                _mm256_store_ps((float *)(to + m_at(u, g)) + 8 * h, load_scales(w, c.record + m_at(w, g), h, c.m[h]));
            }
        }
    }
}

/* ---- Tiles ---- */

/* Values of up to ROWS rows. */
typedef struct row_values {
    _Alignas(16) int32_t i[ROWS];
    _Alignas(16) float x[ROWS];
} row_values;

/* Lanes below R. */
INLINE __m128i rows_mask(const int R) { return _mm_cmpgt_epi32(_mm_set1_epi32(R), _mm_setr_epi32(0, 1, 2, 3)); }

/*
 * Starts of the rows' integer sums of scale group g, which correct for codes that are 128 too large. scales: where the first
 * row's scale is in its record, in which arrays are x_step bytes apart (linear_kernels.h).
 */
INLINE __m128i starts_of_half(const int R, const uint8_t *scales, size_t x_step, const int g) {
    const __m128i half = _mm_maskload_epi32((const int *)(scales + 4 * x_step), rows_mask(R));
    if (g == 0) return half;
    const __m128i both = _mm_maskload_epi32((const int *)(scales + 3 * x_step), rows_mask(R));
    return _mm_add_epi32(_mm_sub_epi32(both, half), _mm_set1_epi32(CL_LINEAR_MAGIC));
}

INLINE row_values scale_group_starts(const int R, const cl_linear_format f, const uint8_t *scales, size_t x_step, const int g) {
    row_values v;
    if (f.scale_group < CL_LINEAR_BLOCK)
        _mm_store_si128((__m128i *)v.i, starts_of_half(R, scales, x_step, g));
    else
        UNROLL for (int r = 0; r < R; r++) v.i[r] = load_i32(scales + 3 * x_step + 4 * r);
    return v;
}

/* The sums of the rows' int8, from their starts. */
INLINE __m128i sums_of_starts(__m128i starts) {
    return _mm_srai_epi32(_mm_sub_epi32(_mm_set1_epi32(CL_LINEAR_MAGIC), starts), 7);
}

/* The sums times `zero`. */
INLINE row_values scale_group_zeros(const int R, const cl_linear_format f, const uint8_t *scales, size_t x_step, const int g) {
    const bool halves = f.scale_group < CL_LINEAR_BLOCK;
    const __m128i starts =
        halves ? starts_of_half(R, scales, x_step, g) : _mm_maskload_epi32((const int *)(scales + 3 * x_step), rows_mask(R));
    row_values v;
    _mm_store_si128((__m128i *)v.i, _mm_mullo_epi32(sums_of_starts(starts), _mm_set1_epi32(f.zero)));
    return v;
}

/* The sums times the rows' scales. */
INLINE row_values scale_group_weighted(const int R, const cl_linear_format f, const uint8_t *scales, size_t x_step,
                                       const int g) {
    row_values v;
    if (f.scale_group < CL_LINEAR_BLOCK)
        _mm_store_ps(v.x, _mm_mul_ps(_mm_maskload_ps((const float *)scales, rows_mask(R)),
                                     _mm_cvtepi32_ps(sums_of_starts(starts_of_half(R, scales, x_step, g)))));
    else
        UNROLL for (int r = 0; r < R; r++) v.x[r] = load_f32(scales + 2 * x_step + 4 * r);
    return v;
}

/*
 * scaled[r][h] = (float)sum * scale of scale group g of a block, for R rows and both halves of a panel. x: the first row in its
 * record, in which steps and arrays are x_step bytes apart.
 */
INLINE void dot_scale_group(int R, record_format w, __m256i table, const uint8_t *record, const uint8_t *x, size_t x_step,
                            int g, __m256 (*scaled)[2]);

/* Blocks of a panel with which the task's rows are multiplied. */
typedef struct stripe {
    const cl_linear_task *t;
    const uint8_t *records;
    int32_t first, n; /* blocks */
    float *y;         /* the panel's outputs of the first row, with the sums over the blocks before */
    int32_t n_outputs;
    prefetcher next;
} stripe;

/* Multiply R rows, the first of them at x, of a row group of group_rows rows. y: the first row's outputs. */
INLINE void multiply_tile(const int R, const record_format w, stripe *p, const uint8_t *x, int32_t group_rows, float *y) {
    const size_t x_step = 4 * (size_t)group_rows;
    const __m256i table = load_table(w, p->t);
    cursor at = {.record = p->records};
    __m256 acc[ROWS][2];
    UNROLL for (int r = 0; r < R; r++) {
        if (p->first == 0)
            acc[r][0] = acc[r][1] = _mm256_setzero_ps();
        else
            load_outputs(y + (size_t)r * p->t->y_stride, acc[r], p->n_outputs);
    }
    for (int32_t b = 0; b < p->n; b++, x += CL_LINEAR_ROW_BYTES * (size_t)group_rows) {
        enter_block(w, &at, b);
        prefetch_step(&p->next, at.record, record_bytes(w));
        UNROLL for (int g = 0; g < n_scale_groups(w); g++) {
            __m256 scaled[ROWS][2];
            dot_scale_group(R, w, table, at.record, x, x_step, g, scaled);
            row_values weighted;
            if (w.f.min) weighted = scale_group_weighted(R, w.f, x + 8 * x_step, x_step, g);
            UNROLL for (int h = 0; h < 2; h++) {
                const __m256 d = load_scales(w, at.record + d_at(w, g), h, at.d[h]);
                const __m256 m = w.f.min ? load_scales(w, at.record + m_at(w, g), h, at.m[h]) : d;
                UNROLL for (int r = 0; r < R; r++) {
                    acc[r][h] = _mm256_fmadd_ps(scaled[r][h], d, acc[r][h]);
                    if (w.f.min) acc[r][h] = _mm256_fmadd_ps(_mm256_set1_ps(weighted.x[r]), m, acc[r][h]);
                }
            }
        }
        at.record += record_bytes(w);
    }
    UNROLL for (int r = 0; r < R; r++) store_outputs(y + (size_t)r * p->t->y_stride, acc[r], p->n_outputs);
}

/* Multiply all rows of the task. */
INLINE void multiply_rows(const record_format w, stripe *p) {
    const cl_linear_task *t = p->t;
    const size_t row_bytes = (size_t)(t->n_in / CL_LINEAR_BLOCK) * CL_LINEAR_ROW_BYTES;
    for (int32_t row = 0, n; row < t->n_rows; row += n) {
        const int32_t first = row - row % CL_LINEAR_ROW_GROUP, left = t->n_rows - first;
        const int32_t group_rows = left < CL_LINEAR_ROW_GROUP ? left : CL_LINEAR_ROW_GROUP;
        const uint8_t *x = t->row_groups + (size_t)first * row_bytes + 4 * (size_t)(row - first) +
                           (size_t)p->first * CL_LINEAR_ROW_BYTES * (size_t)group_rows;
        float *y = p->y + (size_t)row * t->y_stride;
        n = t->n_rows - row < ROWS ? t->n_rows - row : ROWS;
        switch (n) {
        case 1: multiply_tile(1, w, p, x, group_rows, y); break;
        case 2: multiply_tile(2, w, p, x, group_rows, y); break;
        case 3: multiply_tile(3, w, p, x, group_rows, y); break;
        default: multiply_tile(ROWS, w, p, x, group_rows, y); break;
        }
    }
}

/* Codes of 8 bits are operands as they are stored, and their scales are few beside them. */
INLINE bool unpacks(const cl_linear_format f, int32_t n_rows) { return f.bits < 8 && n_rows > FEW_ROWS; }

/* The next panel's records of n blocks, which are prefetched while all rows pass over the present ones. */
INLINE prefetcher next_records(const cl_linear_task *t, const uint8_t *records, size_t bytes, int32_t n) {
    prefetcher next = prefetch_spread(t, records, bytes, (size_t)(t->n_rows + ROWS - 1) / ROWS * (size_t)n);
    next.prefetch_to_l2 = true; /* the first level is full */
    return next;
}

INLINE void multiply_quant(const cl_linear_layout layout, const cl_linear_task *t) {
    const record_format w = packed_format(layout), u = {w.f, .unpacked = true};
    const size_t panel_bytes = cl_linear_panel_bytes(layout, t->n_in);
    const int32_t n_blocks = t->n_in / CL_LINEAR_BLOCK, at_once = t->n_rows > FEW_ROWS ? STRIPE_BLOCKS : n_blocks;
    for (int32_t first = 0; first < n_blocks; first += at_once) {
        const uint8_t *records = t->panels + cl_linear_panel_bytes(layout, first * CL_LINEAR_BLOCK);
        for (int32_t i = 0; i < t->n_panels; i++, records += panel_bytes) {
            stripe p = {.t = t,
                        .records = records,
                        .first = first,
                        .n = n_blocks - first < at_once ? n_blocks - first : at_once,
                        .y = t->y + CL_LINEAR_LANES * (size_t)i,
                        .n_outputs = i == t->n_panels - 1 ? t->n_last : CL_LINEAR_LANES};
            if (unpacks(w.f, t->n_rows)) {
                unpack_blocks(w, t, records, p.n, t->scratch);
                p.records = t->scratch;
                p.next = next_records(t, records + panel_bytes, cl_linear_panel_bytes(layout, p.n * CL_LINEAR_BLOCK), p.n);
                multiply_rows(u, &p);
            } else {
                p.next = prefetch_ahead(t);
                multiply_rows(w, &p);
            }
        }
    }
}

#define LINEAR_MULTIPLY(name, ...)                                                                                             \
    static void multiply_##name(const cl_linear_task *t) { multiply_quant(CL_LINEAR_##name, t); }

#endif
