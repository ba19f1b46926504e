/*
 * The level "avx512_bf16": bf16 weights times activations rounded to bf16, two inputs at a time. All other weights are
 * multiplied as at the level below.
 *
 * A vector of a panel is an operand of vdpbf16ps as it is stored. 8 rows by 2 panels are 16 independent chains of sums, enough
 * for two instructions per cycle with a latency of 6; more panels or more rows gain nothing.
 */
#include "linear_x86.h"

#include "linear_avx512.h"

enum { LINE = 64 /* bytes: two inputs of a panel */ };

void cl_linear_round_avx512_bf16(const float *x, int32_t n_in, uint16_t *out) {
    int32_t k = 0;
    for (; k + 16 <= n_in; k += 16) _mm256_storeu_si256((void *)(out + k), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + k)));
    for (; k % 32 || k < n_in; k += 16) {
        const __mmask16 left = (__mmask16)(k < n_in ? (1u << (n_in - k)) - 1 : 0);
        _mm256_storeu_si256((void *)(out + k), (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(left, x + k)));
    }
}

INLINE int32_t n_lines(const cl_linear_task *t) { return (t->n_in + 1) / 2; }

/* Multiply R rows from `row` on with V panels. */
INLINE void multiply_tile(const int R, const int V, const cl_linear_task *t, const uint8_t *panel, prefetcher *next,
                          int32_t row, float *y, __mmask16 last) {
    const uint16_t *x = t->x_bf16 + (size_t)row * t->x_bf16_stride;
    const size_t panel_bytes = LINE * (size_t)n_lines(t);
    __m512 acc[CL_LINEAR_ROW_GROUP][2];
    UNROLL for (int r = 0; r < R; r++) { UNROLL for (int v = 0; v < V; v++) acc[r][v] = _mm512_setzero_ps(); }
    for (int32_t i = 0; i < n_lines(t); i++, panel += LINE, x += 2) {
        __m512i w[2];
        prefetch_step(next, panel, LINE);
        UNROLL for (int v = 0; v < V; v++) w[v] = _mm512_loadu_si512(panel + (size_t)v * panel_bytes);
        UNROLL for (int r = 0; r < R; r++) {
            int32_t pair;
            __builtin_memcpy(&pair, x + (size_t)r * t->x_bf16_stride, sizeof pair);
            const __m512i xr = _mm512_set1_epi32(pair);
            UNROLL for (int v = 0; v < V; v++) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], (__m512bh)w[v], (__m512bh)xr);
        }
    }
    y += (size_t)row * t->y_stride;
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int v = 0; v < V; v++)
            _mm512_mask_storeu_ps(y + (size_t)r * t->y_stride + 16 * v, v == V - 1 ? last : 0xffff, acc[r][v]);
    }
}

/* Multiply all rows with V panels. Rows are divided evenly over register tiles, since a short tile has too few chains of sums.
 */
INLINE void multiply_rows(const int V, const cl_linear_task *t, const uint8_t *panel, float *y, __mmask16 last) {
    const int32_t n_tiles = (t->n_rows + CL_LINEAR_ROW_GROUP - 1) / CL_LINEAR_ROW_GROUP;
    const size_t bytes = (size_t)V * LINE * (size_t)n_lines(t);
    prefetcher next = prefetch_spread(t, panel + bytes, bytes, (size_t)(n_tiles * n_lines(t)));
    for (int32_t i = 0; i < n_tiles; i++) {
        const int32_t row = t->n_rows * i / n_tiles, end = t->n_rows * (i + 1) / n_tiles;
        switch (end - row) {
        case 1: multiply_tile(1, V, t, panel, &next, row, y, last); break;
        case 2: multiply_tile(2, V, t, panel, &next, row, y, last); break;
        case 3: multiply_tile(3, V, t, panel, &next, row, y, last); break;
        case 4: multiply_tile(4, V, t, panel, &next, row, y, last); break;
        case 5: multiply_tile(5, V, t, panel, &next, row, y, last); break;
        case 6: multiply_tile(6, V, t, panel, &next, row, y, last); break;
        case 7: multiply_tile(7, V, t, panel, &next, row, y, last); break;
        default: multiply_tile(8, V, t, panel, &next, row, y, last); break;
        }
    }
}

static void multiply_bf16(const cl_linear_task *t) {
    const size_t panel_bytes = LINE * (size_t)n_lines(t);
    for (int32_t p = 0; p < t->n_panels; p += 2) {
        const __mmask16 last = (__mmask16)(p + 2 >= t->n_panels ? (1u << t->n_last) - 1 : 0xffff);
        const uint8_t *panel = t->panels + (size_t)p * panel_bytes;
        float *y = t->y + CL_LINEAR_LANES * (size_t)p;
        if (p + 1 < t->n_panels)
            multiply_rows(2, t, panel, y, last);
        else
            multiply_rows(1, t, panel, y, last);
    }
}

#define ENTRY(name, ...) [CL_LINEAR_##name] = cl_linear_##name##_avx512_vnni,

const cl_kernels cl_kernels_avx512_bf16 = {
    .level = "avx512_bf16",
    .group_rows = CL_LINEAR_ROW_GROUP,
    .quantize = cl_linear_quantize_avx2,
    .round_bf16 = cl_linear_round_avx512_bf16,
    .multiply = {cl_linear_f32_avx512, cl_linear_f16_avx512, multiply_bf16, LINEAR_QUANT_LAYOUTS(ENTRY)},
    .row_ops = CL_ROW_OPS,
};
