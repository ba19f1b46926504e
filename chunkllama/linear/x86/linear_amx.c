/*
 * The level "amx": BF16 weights in tile registers, and the table of the level's kernels. linear_amx_int8.c has the kernels of
 * quantised weights.
 *
 * Rows rounded to bf16 are the operand A. 16 lines of a panel, which are 32 inputs, are the operand B as they are stored.
 *
 * Row tiles have 16 rows, or all rows if they are fewer. The last tile begins early enough to be full: rows that are computed
 * twice get the same bits. 2 tiles by 2 panels, or 1 by 4, are 4 independent chains of sums.
 *
 * Rows are loaded past the first-level cache, which keeps the panels for the next rows. That cache has few lines in flight, and
 * panels that it keeps leave these to the weights that follow.
 */
#include "chunkattn/base/tiles.h"
#include "linear_avx512.h"

enum {
    BF16_ROWS = 16,                         /* of a tile at most */
    BF16_PREFETCH_ROWS = 64,                /* up to this many rows, the hardware prefetcher alone is the fastest */
    BF16_LINE = 64,                         /* bytes: two inputs of a panel */
    BF16_BLOCK_BYTES = 16 * BF16_LINE,      /* of an operand B */
    BF16_SUMS = CL_LINEAR_LANES * BF16_ROWS /* floats of an operand C */
};

/* Tile registers: C of each tile and panel, A of each tile, and one B for the panels in turn. */
#define SUMS_0     0
#define SUMS_1     1
#define SUMS_2     2
#define SUMS_3     3
#define ROWS_0     4
#define ROWS_1     5
#define EVEN_PANEL 6
#define ODD_PANEL  7

INLINE ca_tile_shapes bf16_shapes(int n_rows) {
    ca_tile_shapes s = {0};
    for (int i = SUMS_0; i <= SUMS_3; i++) ca_tiles_shape(&s, i, n_rows, 4 * CL_LINEAR_LANES);
    for (int i = ROWS_0; i <= ROWS_1; i++) ca_tiles_shape(&s, i, n_rows, 4 * 16);
    for (int i = EVEN_PANEL; i <= ODD_PANEL; i++) ca_tiles_shape(&s, i, 16, BF16_LINE);
    return s;
}

/* Add the products of 32 inputs of R tiles of rows, whose first values are at x, with V panels, panel_bytes apart. */
INLINE void add_lines(const int R, const int V, const uint16_t *const *x, size_t x_bytes, const uint8_t *panel,
                      size_t panel_bytes) {
    _tile_stream_loadd(ROWS_0, x[0], x_bytes);
    if (R == 2) _tile_stream_loadd(ROWS_1, x[1], x_bytes);
    _tile_loadd(EVEN_PANEL, panel, BF16_LINE);
    _tile_dpbf16ps(SUMS_0, ROWS_0, EVEN_PANEL);
    if (R == 2) _tile_dpbf16ps(SUMS_2, ROWS_1, EVEN_PANEL);
    if (V == 1) return;
    _tile_loadd(ODD_PANEL, panel + panel_bytes, BF16_LINE);
    _tile_dpbf16ps(SUMS_1, ROWS_0, ODD_PANEL);
    if (R == 2) _tile_dpbf16ps(SUMS_3, ROWS_1, ODD_PANEL);
    if (V == 2) return;
    _tile_loadd(EVEN_PANEL, panel + 2 * panel_bytes, BF16_LINE);
    _tile_dpbf16ps(SUMS_2, ROWS_0, EVEN_PANEL);
    _tile_loadd(ODD_PANEL, panel + 3 * panel_bytes, BF16_LINE);
    _tile_dpbf16ps(SUMS_3, ROWS_0, ODD_PANEL);
}

/* Store the sums of a tile and panel in n_outputs columns of y. */
#define STORE_SUMS(sums, y, n_outputs)                                                                                         \
    do {                                                                                                                       \
        if ((n_outputs) == CL_LINEAR_LANES) {                                                                                  \
            _tile_stored(sums, y, y_bytes);                                                                                    \
        } else {                                                                                                               \
            _Alignas(64) float part[BF16_SUMS];                                                                                \
            _tile_stored(sums, part, 4 * CL_LINEAR_LANES);                                                                     \
            store_part(part, y, y_bytes / sizeof *(y), n_rows, n_outputs);                                                     \
        }                                                                                                                      \
    } while (0)

static inline void store_part(const float *part, float *y, size_t y_stride, int32_t n_rows, int32_t n_outputs) {
    for (int32_t r = 0; r < n_rows; r++) memcpy(y + (size_t)r * y_stride, part + CL_LINEAR_LANES * r, 4 * (size_t)n_outputs);
}

/* Multiply R tiles of n_rows rows, from rows[] on, with V panels. n_last: outputs of the last panel. */
INLINE void multiply_bf16_tiles(const int R, const int V, const cl_linear_task *t, const uint8_t *panel, const int32_t *rows,
                                int32_t n_rows, prefetcher *next, float *y, int32_t n_last) {
    const size_t n_lines = ((size_t)t->n_in + 1) / 2, panel_bytes = BF16_LINE * n_lines, n_tail = n_lines % 16;
    const size_t x_bytes = t->x_bf16_stride * sizeof *t->x_bf16, y_bytes = t->y_stride * sizeof *y;
    const uint16_t *x[2] = {t->x_bf16 + (size_t)rows[0] * t->x_bf16_stride, t->x_bf16 + (size_t)rows[1] * t->x_bf16_stride};
    _tile_zero(SUMS_0);
    _tile_zero(SUMS_1);
    _tile_zero(SUMS_2);
    _tile_zero(SUMS_3);
    for (size_t line = 0; line + 16 <= n_lines; line += 16, panel += BF16_BLOCK_BYTES, x[0] += 32, x[1] += 32) {
        if (t->n_rows > BF16_PREFETCH_ROWS) prefetch_step(next, panel, BF16_BLOCK_BYTES);
        add_lines(R, V, x, x_bytes, panel, panel_bytes);
    }
    if (n_tail) { /* the next lines are of another panel; their products with the rows' zeros may be NaN */
        _Alignas(64) uint8_t tail[4 * BF16_BLOCK_BYTES] = {0};
        for (int v = 0; v < V; v++) memcpy(tail + v * BF16_BLOCK_BYTES, panel + (size_t)v * panel_bytes, BF16_LINE * n_tail);
        __asm__ volatile("" ::: "memory"); /* gcc 12 does not know that a tile load reads it */
        add_lines(R, V, x, x_bytes, tail, BF16_BLOCK_BYTES);
    }
    float *y0 = y + (size_t)rows[0] * t->y_stride, *y1 = y + (size_t)rows[1] * t->y_stride;
    STORE_SUMS(SUMS_0, y0, V == 1 ? n_last : CL_LINEAR_LANES);
    if (V > 1) STORE_SUMS(SUMS_1, y0 + CL_LINEAR_LANES, V == 2 ? n_last : CL_LINEAR_LANES);
    if (V > 2) STORE_SUMS(SUMS_2, y0 + 2 * CL_LINEAR_LANES, CL_LINEAR_LANES);
    if (V > 2) STORE_SUMS(SUMS_3, y0 + 3 * CL_LINEAR_LANES, n_last);
    if (R == 2) STORE_SUMS(SUMS_2, y1, V == 1 ? n_last : CL_LINEAR_LANES);
    if (R == 2 && V > 1) STORE_SUMS(SUMS_3, y1 + CL_LINEAR_LANES, n_last);
}

INLINE void multiply_bf16_rows(const int R, const int V, const cl_linear_task *t, const uint8_t *panel, float *y,
                               int32_t n_last) {
    const int32_t n_rows = t->n_rows < BF16_ROWS ? t->n_rows : BF16_ROWS, step = R * n_rows, last = t->n_rows - n_rows;
    const size_t n_lines = ((size_t)t->n_in + 1) / 2, bytes = (size_t)V * BF16_LINE * n_lines;
    prefetcher next = prefetch_spread(t, panel + bytes, bytes, (size_t)((t->n_rows + step - 1) / step) * ((n_lines + 15) / 16));
    for (int32_t row = 0; row < t->n_rows; row += step) {
        const int32_t rows[2] = {row < last ? row : last, row + n_rows < last ? row + n_rows : last};
        multiply_bf16_tiles(R, V, t, panel, rows, n_rows, &next, y, n_last);
    }
}

static void multiply_bf16(const cl_linear_task *t) {
    const ca_tile_shapes shapes = bf16_shapes(t->n_rows < BF16_ROWS ? t->n_rows : BF16_ROWS);
    const size_t panel_bytes = cl_linear_panel_bytes(CL_LINEAR_BF16, t->n_in);
    const bool one_tile = t->n_rows <= BF16_ROWS;
    ca_tiles_use(&shapes);
    for (int32_t p = 0, n; p < t->n_panels; p += n) {
        const int32_t left = t->n_panels - p;
        const uint8_t *panel = t->panels + (size_t)p * panel_bytes;
        float *y = t->y + CL_LINEAR_LANES * (size_t)p;
        n = one_tile && left >= 4 ? 4 : left >= 2 ? 2 : 1;
        const int32_t n_last = n == left ? t->n_last : CL_LINEAR_LANES;
        if (n == 4)
            multiply_bf16_rows(1, 4, t, panel, y, n_last);
        else if (n == 2 && one_tile)
            multiply_bf16_rows(1, 2, t, panel, y, n_last);
        else if (n == 2)
            multiply_bf16_rows(2, 2, t, panel, y, n_last);
        else if (one_tile)
            multiply_bf16_rows(1, 1, t, panel, y, n_last);
        else
            multiply_bf16_rows(2, 1, t, panel, y, n_last);
    }
}

#define ENTRY(name, ...) [CL_LINEAR_##name] = cl_linear_##name##_amx,

const cl_kernels cl_kernels_amx = {
    .level = "amx",
    .group_rows = CL_AMX_ROWS,
    .min_group_rows = CL_AMX_MIN_ROWS,
    .prefetch_to_l2 = true,
    .quantize = cl_linear_quantize_avx2,
    .round_bf16 = cl_linear_round_avx512_bf16,
    .multiply = {cl_linear_f32_avx512, cl_linear_f16_avx512, multiply_bf16, LINEAR_QUANT_LAYOUTS(ENTRY)},
    .leave = ca_tiles_leave,
    .row_ops = CL_ROW_OPS,
};
