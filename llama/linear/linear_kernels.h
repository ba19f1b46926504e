/*
 * The contract between linear.c and a kernel level: packed weights, quantised activations, and one table of functions a level.
 *
 * What a level may choose is how many rows and panels it takes at once; what each output is made of is fixed (fma: one
 * rounding; all else rounds after each operation; denormals are zero, fp.h), and the same at all levels but for BF16 weights:
 *
 *   floats      y = 0; for k ascending: y = fma(x[k], w[k], y)
 *   BF16        the same; but where linear_kernel.round is set, x is rounded to bf16 and inputs go in groups, missing ones
 *               behind the last being zero. At "avx512_bf16" as vdpbf16ps takes them, in pairs: for even k ascending
 *               y = fma(x[k + 1], w[k + 1], y), then y = fma(x[k], w[k], y). At "amx" as tdpbf16ps does, 32 of them: with
 *               even = 0 and odd = 0, for k ascending even = fma(x[k], w[k], even) where k is even, odd likewise where it is
 *               odd; then y = y + (even + odd)
 *   quantised   y = 0; for blocks of 32 inputs ascending, in them groups ascending (linear_format.h; one or two a block):
 *               y = fma((float)sum * scale, d, y), and with a minimum y = fma(scale * (float)sum of the group's x, m, y)
 *
 * with sum the exact integer dot product of the group's weight codes less zero and activations, d and m the weights' scale and
 * minimum, and x and scale the activations' integers and their scale, as below.
 *
 * Activations come as f32 rows and, where n_in is a multiple of 32, quantised in tiles of linear_kernel.tile_rows rows, or of
 * 8 where there are fewer than min_rows rows (the last one of as many as are left). A tile of r rows is a record for each
 * block: int8 [8][r][4] (input 4j + i of a row at [j][row][i]), then, each [r]:
 *
 *   f32 scale      max |x| / 127 of the row's block, rounded up to a multiple of 4 in the last place
 *   f32 offset     -12582912 * scale, exact thanks to the two zero bits
 *   f32 weighted   scale * (sum of the row's int8)
 *   i32 start      0x4B400000 - 128 * (sum of the row's int8)
 *   i32 half       the same of the block's first 16 inputs
 *
 * and int8 = x * (1 / scale), rounded to nearest even; 1 / 0 counts as 0. An integer sum s that starts at 0x4B400000 is,
 * read as f32, 12582912 + s, so fma(that, scale, offset) is s * scale with the same rounding: no conversion is needed. |x| is
 * below 2^100, or the result is not a number.
 *
 * For BF16 weights they come rounded to bf16, nearest even, [n_rows][n_in], with zeros behind each row's last input up to a
 * multiple of 32.
 */
#ifndef LLAMA_LINEAR_LINEAR_KERNELS_H
#define LLAMA_LINEAR_LINEAR_KERNELS_H

#include "linear_format.h"

enum {
    CL_LINEAR_TILE = 8,            /* rows that are quantised at once */
    CL_LINEAR_ROW_BYTES = 52,      /* one row and block of a tile */
    CL_LINEAR_MAGIC = 0x4B400000,  /* 12582912.0f */
    CL_LINEAR_SCRATCH_BYTES = 1536 /* scratch of a task for each block of inputs */
};

/* Panels times rows: one thread's share of a product. */
typedef struct cl_linear_task {
    const uint8_t *panels;
    int32_t n_panels, n_in;
    int32_t n_last; /* outputs of the last of these panels, 1..16 */
    int32_t n_rows;
    const float *x; /* [n_rows][n_in], x_stride elements apart; for float layouts */
    size_t x_stride;
    const uint16_t *x_bf16; /* [n_rows][n_in] as bf16; for CL_LINEAR_BF16 where the level has `round` */
    size_t x_bf16_stride;
    const uint8_t *tiles; /* the same rows quantised, from a tile's first row; for the other layouts */
    const uint8_t *table; /* [16] codes to weights plus 128; for layouts with a table */
    float *y;             /* [n_rows][16 * n_panels - 16 + n_last], y_stride elements apart */
    size_t y_stride;
    uint8_t *scratch; /* CL_LINEAR_SCRATCH_BYTES for each block, 64-byte aligned, contents lost */
    bool to_l2;       /* linear_kernel.to_l2 */
} cl_linear_task;

typedef struct cl_linear_kernel {
    const char *name;
    uint32_t features; /* CA_CPU_* it needs */

    int32_t tile_rows, min_rows; /* multiples of 8 */
    bool to_l2;                  /* weights are asked for ahead into the second-level cache instead of the first */

    /*
     * Quantise 1..8 rows of n_blocks blocks, row_stride elements apart, into a tile that has as many rows or more; `tile` is
     * where the first of them goes in the tile's first record.
     */
    void (*quantize)(const float *x, size_t row_stride, int32_t n_rows, int32_t n_blocks, uint8_t *tile, int32_t tile_rows);

    /* n_in values to bf16, and zeros up to a multiple of 32; NULL: BF16 weights multiply f32 activations. */
    void (*round)(const float *x, int32_t n_in, uint16_t *out);

    void (*multiply[CL_LINEAR_N_LAYOUTS])(const cl_linear_task *task);

    /* For a thread that has multiplied and may sleep now; NULL: nothing is to be done. */
    void (*leave)(void);

    /* The row operations of row_ops.h. */
    void (*rms_norm)(const float *x, const float *weight, int32_t n, float eps, float *out);
    void (*add)(float *x, const float *y, int32_t n);
    void (*swiglu)(const float *gate, const float *up, int32_t n, float *out);
    void (*geglu)(const float *gate, const float *up, int32_t n, float *out);
    void (*rope)(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot);
    void (*rope_halves)(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot);
} cl_linear_kernel;

extern const cl_linear_kernel cl_linear_ref;
#if defined(__x86_64__)
extern const cl_linear_kernel cl_linear_avx2, cl_linear_avx512, cl_linear_avx512_vnni, cl_linear_avx512_bf16, cl_linear_amx;
#endif

#endif
