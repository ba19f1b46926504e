/*
 * Register tiles of rows and panels of quantised weights, for the AVX-512 levels, which differ only in how they multiply int8.
 *
 * A template: the header of a level (linear_avx512_dot.h, linear_avx512_vnni_dot.h) defines LINEAR_KERNEL(name), the function
 * that multiplies layout `name`, and dot_scale_group, which is declared below. The latter computes scaled[r][v] = (float)sum *
 * scale of scale group g of a block, for R rows and V panels, where records[v] is of panel v. R, V, w and g are constants after
 * inlining, so that arrays are kept in registers. The files of the level apply LINEAR_MULTIPLY to the lists of linear_format.h.
 *
 * Row tiles read the packed records. If there are many and unpacking is slow, it is done once, into the task's scratch.
 */
#ifndef CHUNKLLAMA_LINEAR_X86_LINEAR_AVX512_TILES_H
#define CHUNKLLAMA_LINEAR_X86_LINEAR_AVX512_TILES_H

#include "linear_avx512.h"
#include "linear_x86.h"

enum {
    DIRECT_ROWS = 32, /* up to this many rows, unpacking once costs more than it saves */
    SINGLE_ROWS = 4   /* up to this many rows, memory is the limit, and one stream of weights is read faster than two */
};

/* Codes of one plane are unpacked by one or two instructions, which is little beside eight products. */
INLINE bool is_packed(cl_linear_format f, int32_t n_rows) { return f.bits == 4 || f.bits == 8 || n_rows <= DIRECT_ROWS; }

/* Panels at once: two share the loaded activations, but with two scale groups in a block the sums do not fit the registers. */
INLINE int packed_panels(cl_linear_format f, int32_t n_rows) {
    return f.scale_group == CL_LINEAR_BLOCK && n_rows > SINGLE_ROWS ? 2 : 1;
}

/* One row group over one panel is limited by memory bandwidth, for which a short prefetch distance is best. */
INLINE prefetcher next_panels(const cl_linear_task *t, const uint8_t *panel, size_t panel_bytes, int n_panels) {
    if (t->n_rows <= CL_LINEAR_ROW_GROUP && n_panels == 1) return prefetch_ahead(t);
    const size_t n_tiles = (size_t)(t->n_rows + CL_LINEAR_ROW_GROUP - 1) / CL_LINEAR_ROW_GROUP;
    return prefetch_spread(t, panel + (size_t)n_panels * panel_bytes, (size_t)n_panels * panel_bytes,
                           n_tiles * (size_t)(t->n_in / CL_LINEAR_BLOCK));
}

/* The start of the integer sum of scale group g of row r, which corrects for codes that are 128 too large. */
INLINE int32_t scale_group_start(record_format w, int R, const uint8_t *row_group, int r, int g) {
    const uint8_t *start = row_group + 44 * R + 4 * r, *half = row_group + 48 * R + 4 * r;
    if (w.f.scale_group == CL_LINEAR_BLOCK) return load_i32(start);
    return g == 0 ? load_i32(half) : load_i32(start) - load_i32(half) + CL_LINEAR_MAGIC;
}

/* scale * (float)sum of the activations of scale group g. */
INLINE float scale_group_weighted(record_format w, int R, const uint8_t *row_group, int r, int g) {
    if (w.f.scale_group == CL_LINEAR_BLOCK) return load_f32(row_group + 40 * R + 4 * r);
    const int32_t sum = (CL_LINEAR_MAGIC - scale_group_start(w, R, row_group, r, g)) / 128;
    return load_f32(row_group + 32 * R + 4 * r) * (float)sum;
}

INLINE void dot_scale_group(int R, int V, record_format w, __m512i table, const cursor *records, const uint8_t *row_group,
                            int g, __m512 (*scaled)[2]);

/* Multiply R rows of one row group with V panels. */
INLINE void multiply_tile(const int R, const int V, const record_format w, const cl_linear_task *t,
                          const uint8_t *const *panels, prefetcher *next, const uint8_t *row_group, float *y, __mmask16 last) {
    const __m512i table = load_table(w, t);
    cursor at[2];
    __m512 acc[8][2];
    UNROLL for (int v = 0; v < V; v++) at[v] = (cursor){.record = panels[v]};
    UNROLL for (int r = 0; r < R; r++) { UNROLL for (int v = 0; v < V; v++) acc[r][v] = _mm512_setzero_ps(); }
    for (int32_t b = 0; b < t->n_in / CL_LINEAR_BLOCK; b++) {
        prefetch_step(next, at[0].record, record_bytes(w));
        UNROLL for (int v = 0; v < V; v++) enter_block(w, &at[v], b);
        UNROLL for (int g = 0; g < n_scale_groups(w); g++) {
            __m512 scaled[8][2];
            dot_scale_group(R, V, w, table, at, row_group, g, scaled);
            UNROLL for (int v = 0; v < V; v++) {
                const __m512 d = load_scales(w, at[v].record + d_at(w, g), at[v].d);
                UNROLL for (int r = 0; r < R; r++) acc[r][v] = _mm512_fmadd_ps(scaled[r][v], d, acc[r][v]);
            }
            if (!w.f.min) continue;
            __m512 m[2];
            UNROLL for (int v = 0; v < V; v++) m[v] = load_scales(w, at[v].record + m_at(w, g), at[v].m);
            UNROLL for (int r = 0; r < R; r++) {
                const __m512 weighted = _mm512_set1_ps(scale_group_weighted(w, R, row_group, r, g));
                UNROLL for (int v = 0; v < V; v++) acc[r][v] = _mm512_fmadd_ps(weighted, m[v], acc[r][v]);
            }
        }
        UNROLL for (int v = 0; v < V; v++) at[v].record += record_bytes(w);
        row_group += CL_LINEAR_ROW_BYTES * R;
    }
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int v = 0; v < V; v++)
            _mm512_mask_storeu_ps(y + (size_t)r * t->y_stride + 16 * v, v == V - 1 ? last : 0xffff, acc[r][v]);
    }
}

/* Multiply all rows of the task with V panels; `next` is prefetched meanwhile. */
INLINE void multiply_rows(const int V, const record_format w, const cl_linear_task *t, const uint8_t *const *panels,
                          prefetcher next, float *y, __mmask16 last) {
    const size_t row_bytes = (size_t)(t->n_in / CL_LINEAR_BLOCK) * CL_LINEAR_ROW_BYTES;
    for (int32_t row = 0; row < t->n_rows; row += CL_LINEAR_ROW_GROUP) {
        const uint8_t *row_group = t->row_groups + (size_t)row * row_bytes;
        float *to = y + (size_t)row * t->y_stride;
        switch (t->n_rows - row) {
        case 1: multiply_tile(1, V, w, t, panels, &next, row_group, to, last); break;
        case 2: multiply_tile(2, V, w, t, panels, &next, row_group, to, last); break;
        case 3: multiply_tile(3, V, w, t, panels, &next, row_group, to, last); break;
        case 4: multiply_tile(4, V, w, t, panels, &next, row_group, to, last); break;
        case 5: multiply_tile(5, V, w, t, panels, &next, row_group, to, last); break;
        case 6: multiply_tile(6, V, w, t, panels, &next, row_group, to, last); break;
        case 7: multiply_tile(7, V, w, t, panels, &next, row_group, to, last); break;
        default: multiply_tile(8, V, w, t, panels, &next, row_group, to, last); break;
        }
    }
}

typedef void unpack_fn(const cl_linear_task *t, const uint8_t *panel, uint8_t *to);

/*
 * Multiply `at_once` (1 or 2) panels at a time, as they are stored, or, if `unpack` is not NULL, after it has unpacked them
 * into the scratch, as records of format w.
 */
INLINE void multiply_panels(const int at_once, const record_format w, const cl_linear_task *t, size_t panel_bytes,
                            unpack_fn *unpack) {
    const size_t unpacked_bytes = (size_t)(t->n_in / CL_LINEAR_BLOCK) * UNPACKED_BYTES;
    const uint8_t *panel = t->panels;
    for (int32_t p = 0; p < t->n_panels; p += at_once) {
        const int32_t left = t->n_panels - p, n = left < at_once ? left : at_once;
        const uint8_t *panels[2];
        const prefetcher next = next_panels(t, panel, panel_bytes, at_once);
        for (int v = 0; v < n; v++, panel += panel_bytes) {
            panels[v] = unpack ? t->scratch + (size_t)v * unpacked_bytes : panel;
            if (unpack) unpack(t, panel, t->scratch + (size_t)v * unpacked_bytes);
        }
        const __mmask16 last = (__mmask16)(left <= at_once ? (1u << t->n_last) - 1 : 0xffff);
        float *y = t->y + CL_LINEAR_LANES * (size_t)p;
        if (n == 2)
            multiply_rows(2, w, t, panels, next, y, last);
        else
            multiply_rows(1, w, t, panels, next, y, last);
    }
}

/* One function for each form of unpacked records. */
#define UNPACKED(name, group_, zero_, min_)                                                                                    \
    static void unpacked_##name(const cl_linear_task *t, size_t panel_bytes, unpack_fn *unpack) {                              \
        multiply_panels(2, unpacked_format((cl_linear_format){.scale_group = (group_), .zero = (zero_), .min = (min_)}), t,    \
                        panel_bytes, unpack);                                                                                  \
    }
UNPACKED(min_32, 32, 0, true)
UNPACKED(signed_32, 32, 128, false)
UNPACKED(min_16, 16, 0, true)
UNPACKED(signed_16, 16, 128, false)

INLINE void multiply_quant(const cl_linear_layout layout, const cl_linear_task *t, unpack_fn *unpack) {
    const cl_linear_format f = cl_linear_formats[layout];
    const size_t panel_bytes = cl_linear_panel_bytes(layout, t->n_in);
    if (is_packed(f, t->n_rows))
        multiply_panels(packed_panels(f, t->n_rows), packed_format(layout), t, panel_bytes, NULL);
    else if (f.scale_group == 32)
        (f.min ? unpacked_min_32 : unpacked_signed_32)(t, panel_bytes, unpack);
    else
        (f.min ? unpacked_min_16 : unpacked_signed_16)(t, panel_bytes, unpack);
}

#define LINEAR_MULTIPLY(name, ...)                                                                                             \
    static void unpack_##name(const cl_linear_task *t, const uint8_t *panel, uint8_t *to) {                                    \
        unpack_panel(packed_format(CL_LINEAR_##name), t, panel, to);                                                           \
    }                                                                                                                          \
    void LINEAR_KERNEL(name)(const cl_linear_task *t) { multiply_quant(CL_LINEAR_##name, t, unpack_##name); }

#endif
