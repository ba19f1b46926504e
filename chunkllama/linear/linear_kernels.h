/*
 * The contract between linear.c and the kernels of a level: packed weights, quantised activations, and a table of functions for
 * each level.
 *
 * A level chooses how many rows and panels it processes at once. The arithmetic of each output is fixed. `fma` rounds once,
 * every other operation rounds by itself, and denormals are zero (chunkattn/base/fp.h). The result is the same at all levels
 * except for BF16 weights:
 *
 *   floats      y = 0; for k ascending: y = fma(x[k], w[k], y)
 *   BF16        as floats, unless the level has `round_bf16`. Then x is rounded to bf16, and several inputs are summed at
 *               once; inputs missing behind the last one are zero. "avx512_bf16" sums pairs, as vdpbf16ps does: for even k
 *               ascending y = fma(x[k + 1], w[k + 1], y), then y = fma(x[k], w[k], y). "amx" sums 32 inputs, as tdpbf16ps
 *               does: even = odd = 0; for k ascending even = fma(x[k], w[k], even) for even k, and likewise odd for odd k;
 *               then y = y + (even + odd)
 *   quantised   y = 0; for each block of 32 inputs in order, and in it for each scale group in order (linear_format.h; a
 *               block has one or two): y = fma((float)sum * scale, d, y), and with a minimum
 *               y = fma(scale * (float)sum of the scale group's x, m, y)
 *
 * Here sum is the exact integer dot product of the activations and the scale group's codes minus their zero, d and m are the
 * weights' scale and minimum, and x and scale are the activations' integers and their scale, as described next.
 *
 * Activations are f32 rows. Where n_in is a multiple of 32 they also come quantised, in row groups of cl_kernels.group_rows
 * rows, or of 8 if there are fewer than min_group_rows rows; the last row group has the rows that are left. A row group of r
 * rows is one record per block of 32 inputs: int8 [8][r][4] (input 4j + i of a row at [j][row][i]), followed by these arrays
 * of [r]:
 *
 *   f32 scale      max |x| / 127 over the row's block, rounded up to a multiple of 4 units in the last place
 *   f32 offset     -12582912 * scale, which is exact thanks to the two zero bits
 *   f32 weighted   scale * (sum of the row's int8)
 *   i32 start      0x4B400000 - 128 * (sum of the row's int8)
 *   i32 half       the same over the first 16 inputs of the block
 *
 * with int8 = x * (1 / scale), rounded to nearest even; 1 / 0 counts as 0. An integer sum s that starts at 0x4B400000 is
 * 12582912 + s when its bits are read as f32, so fma(that, scale, offset) is s * scale with the same rounding and no conversion
 * is needed. |x| must be below 2^100; otherwise the result is not a number.
 *
 * For BF16 weights, levels with `round_bf16` get [n_rows][n_in] activations rounded to bf16 (nearest even), each row padded
 * with zeros up to a multiple of 32 inputs.
 */
#ifndef CHUNKLLAMA_LINEAR_LINEAR_KERNELS_H
#define CHUNKLLAMA_LINEAR_LINEAR_KERNELS_H

#include "chunkllama/linear/row_ops.h"
#include "chunkllama/tensor/linear_format.h"

enum { CL_LINEAR_SCRATCH_BYTES = 1536 }; /* of a task, per block of inputs */

/* One thread's share of a product: a range of panels times a range of rows. All pointers are borrowed for the call. */
typedef struct cl_linear_task {
    const uint8_t *panels; /* [n_panels] packed weights (linear_format.h) */
    int32_t n_panels, n_in;
    int32_t n_last; /* outputs of the last of these panels: 1 to 16 */
    int32_t n_rows;

    const float *x; /* [n_rows][n_in] f32, x_stride floats apart; read for float layouts */
    size_t x_stride;
    const uint16_t *x_bf16; /* [n_rows][n_in] bf16, x_bf16_stride elements apart; for CL_LINEAR_BF16 with `round_bf16` */
    size_t x_bf16_stride;
    const uint8_t *row_groups; /* the same rows quantised, from the start of a row group; for quantised layouts */
    const uint8_t *table;      /* [16] weight plus 128 of each code; for layouts with a table, else NULL */

    float *y; /* [n_rows][16 * n_panels - 16 + n_last] f32, y_stride floats apart; written */
    size_t y_stride;
    uint8_t *scratch;    /* CL_LINEAR_SCRATCH_BYTES per block of inputs, 64-byte aligned; contents do not survive the call */
    bool prefetch_to_l2; /* cl_kernels.prefetch_to_l2 */
} cl_linear_task;

/* The kernels of one level: linear layers and row operations. */
typedef struct cl_kernels {
    const char *level;

    int32_t group_rows;     /* rows of a row group; a multiple of 8 */
    int32_t min_group_rows; /* with fewer rows than this, row groups have 8; a multiple of 8, or 0 */
    bool prefetch_to_l2;    /* weights are prefetched into the second-level cache instead of the first */

    /*
     * Quantise n_rows (1 to 8) rows of n_blocks blocks of 32 inputs, row_stride floats apart, into a row group of group_rows
     * rows. row_group points to where the first of these rows begins in the row group's first record.
     */
    void (*quantize)(const float *x, size_t row_stride, int32_t n_rows, int32_t n_blocks, uint8_t *row_group,
                     int32_t group_rows);

    /* Round n_in floats to bf16 and append zeros up to a multiple of 32. NULL: BF16 weights multiply f32 activations. */
    void (*round_bf16)(const float *x, int32_t n_in, uint16_t *out);

    void (*multiply[CL_LINEAR_N_LAYOUTS])(const cl_linear_task *task);

    /* Called by a thread after it has multiplied, before it may sleep; NULL: nothing to do. */
    void (*leave)(void);

    cl_row_ops row_ops;
} cl_kernels;

#define CA_LEVEL(name, features) extern const cl_kernels cl_kernels_##name;
#include "chunkattn/base/levels.def"
#undef CA_LEVEL

#endif
