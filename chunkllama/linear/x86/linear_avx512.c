/* The level "avx512", without VNNI: its table, and float weights with f32 FMA. */
#include "linear_x86.h"

#include <immintrin.h>
#include <stddef.h>

#include "linear_avx512.h"

/* The weights of input i of a line, for 16 outputs. */
INLINE __m512 load_weights(const cl_linear_layout layout, const uint8_t *line, const int i) {
    if (layout == CL_LINEAR_F32) return _mm512_loadu_ps(line);
    if (layout == CL_LINEAR_F16) return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)line));
    const __m512i pairs = _mm512_loadu_si512(line);
    return _mm512_castsi512_ps(i ? _mm512_and_si512(pairs, _mm512_set1_epi32(-65536)) : _mm512_slli_epi32(pairs, 16));
}

/* acc plus the products of input i of a line of V panels with R rows, whose first input of the line is at x. */
INLINE void add_input(const int R, const int V, const cl_linear_layout layout, const cl_linear_task *t, const uint8_t *line,
                      size_t panel_bytes, const int i, const float *x, __m512 (*acc)[2]) {
    __m512 w[2];
    UNROLL for (int v = 0; v < V; v++) w[v] = load_weights(layout, line + (size_t)v * panel_bytes, i);
    UNROLL for (int r = 0; r < R; r++) {
        const __m512 xr = _mm512_set1_ps(x[(size_t)r * t->x_stride + (size_t)i]);
        UNROLL for (int v = 0; v < V; v++) acc[r][v] = _mm512_fmadd_ps(xr, w[v], acc[r][v]);
    }
}

INLINE void float_tile(const int R, const int V, const cl_linear_layout layout, const cl_linear_task *t, const uint8_t *panel,
                       size_t panel_bytes, const float *x, float *y, __mmask16 last) {
    __m512 acc[8][2];
    UNROLL for (int r = 0; r < R; r++) { UNROLL for (int v = 0; v < V; v++) acc[r][v] = _mm512_setzero_ps(); }
    const int n = line_inputs(layout);
    int32_t left = t->n_in;
    for (; left >= n; left -= n, x += n, panel += line_bytes(layout)) {
        UNROLL for (int v = 0; R == 1 && v < V; v++)
            _mm_prefetch(panel + (size_t)v * panel_bytes + PREFETCH_BYTES, _MM_HINT_T0);
        UNROLL for (int i = 0; i < n; i++) add_input(R, V, layout, t, panel, panel_bytes, i, x, acc);
    }
    if (left) add_input(R, V, layout, t, panel, panel_bytes, 0, x, acc);
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int v = 0; v < V; v++)
            _mm512_mask_storeu_ps(y + (size_t)r * t->y_stride + 16 * v, v == V - 1 ? last : 0xffff, acc[r][v]);
    }
}

INLINE void float_rows(const int V, const cl_linear_layout layout, const cl_linear_task *t, const uint8_t *panel,
                       size_t panel_bytes, float *y, __mmask16 last) {
    int32_t row = 0;
    for (; row + 8 <= t->n_rows; row += 8)
        float_tile(8, V, layout, t, panel, panel_bytes, t->x + (size_t)row * t->x_stride, y + (size_t)row * t->y_stride, last);
    for (; row + 4 <= t->n_rows; row += 4)
        float_tile(4, V, layout, t, panel, panel_bytes, t->x + (size_t)row * t->x_stride, y + (size_t)row * t->y_stride, last);
    for (; row < t->n_rows; row++)
        float_tile(1, V, layout, t, panel, panel_bytes, t->x + (size_t)row * t->x_stride, y + (size_t)row * t->y_stride, last);
}

INLINE void multiply_float(const cl_linear_layout layout, const cl_linear_task *t) {
    const size_t panel_bytes = cl_linear_panel_bytes(layout, t->n_in);
    for (int32_t p = 0; p < t->n_panels; p += 2) {
        const __mmask16 last = (__mmask16)(p + 2 >= t->n_panels ? (1u << t->n_last) - 1 : 0xffff);
        const uint8_t *panel = t->panels + (size_t)p * panel_bytes;
        float *y = t->y + 16 * (size_t)p;
        if (p + 1 < t->n_panels)
            float_rows(2, layout, t, panel, panel_bytes, y, last);
        else
            float_rows(1, layout, t, panel, panel_bytes, y, last);
    }
}

void cl_linear_f32_avx512(const cl_linear_task *t) { multiply_float(CL_LINEAR_F32, t); }
void cl_linear_f16_avx512(const cl_linear_task *t) { multiply_float(CL_LINEAR_F16, t); }
void cl_linear_bf16_avx512(const cl_linear_task *t) { multiply_float(CL_LINEAR_BF16, t); }

#define ENTRY(name, ...) [CL_LINEAR_##name] = cl_linear_##name##_avx512,

const cl_kernels cl_kernels_avx512 = {
    .level = "avx512",
    .group_rows = CL_LINEAR_ROW_GROUP,
    .quantize = cl_linear_quantize_avx2,
    .multiply = {cl_linear_f32_avx512, cl_linear_f16_avx512, cl_linear_bf16_avx512, LINEAR_QUANT_LAYOUTS(ENTRY)},
    .row_ops = CL_ROW_OPS,
};
