/*
 * The contract between linear.c and a kernel level: packed weights, quantised activations, and one table of functions a level.
 *
 * All levels give the same bits. What a level may choose is how many rows and panels it takes at once; what each output is made
 * of is fixed (fma: one rounding; all else rounds after each operation; denormals are zero, fp.h):
 *
 *   F32, F16, BF16   y = 0; for k ascending: y = fma(x[k], w[k], y)
 *   Q8               y = 0; for blocks ascending: y = fma((float)sum * scale, d, y)
 *   Q4               as Q8, then y = fma(weighted, m, y)
 *
 * with sum the exact integer dot product of the block's weight codes and activations, d and m the weights' f16 scale and
 * minimum, and scale and weighted the activations' as below.
 *
 * Weights lie in panels of 16 outputs, so that outputs run across vector lanes; missing outputs of the last panel are zero.
 * Everything is little-endian. A panel is
 *
 *   F32, F16, BF16   [n_in][16] elements
 *   Q4               a record for each block of 32 inputs: [4][16][4] bytes, of which byte i of lane o in vector j holds the
 *                    codes (0..15) of inputs 4j + i in its low and 16 + 4j + i in its high half; f16 d[16]; f16 m[16]
 *   Q8               a record for each block: [8][16][4] bytes, byte i of lane o in vector j: the weight of input 4j + i, plus
 *                    128; f16 d[16]
 *
 * Activations come as f32 rows and, where n_in is a multiple of 32, quantised in tiles of 8 rows (the last one of as many as
 * are left). A tile of r rows is a record for each block: int8 [8][r][4] (input 4j + i of a row at [j][row][i]), then, each
 * [r]:
 *
 *   f32 scale      max |x| / 127 of the row's block, rounded up to a multiple of 4 in the last place
 *   f32 offset     -12582912 * scale, exact thanks to the two zero bits
 *   f32 weighted   scale * (sum of the row's int8)
 *   i32 start      0x4B400000 - 128 * (sum of the row's int8)
 *
 * and int8 = x * (1 / scale), rounded to nearest even; 1 / 0 counts as 0. An integer sum s that starts at 0x4B400000 is,
 * read as f32, 12582912 + s, so fma(that, scale, offset) is s * scale with the same rounding: no conversion is needed. |x| is
 * below 2^100, or the result is not a number.
 */
#ifndef LLAMA_LINEAR_KERNELS_H
#define LLAMA_LINEAR_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum {
    LINEAR_LANES = 16, /* outputs a panel */
    LINEAR_BLOCK = 32, /* inputs that share a scale */
    LINEAR_TILE = 8,   /* rows a tile of quantised activations */
    LINEAR_Q4_BYTES = 320,
    LINEAR_Q8_BYTES = 544,
    LINEAR_ROW_BYTES = 48,      /* one row and block of a tile */
    LINEAR_MAGIC = 0x4B400000,  /* 12582912.0f */
    LINEAR_SCRATCH_BYTES = 1280 /* scratch of a task for each block of inputs */
};

typedef enum linear_layout { LINEAR_F32, LINEAR_F16, LINEAR_BF16, LINEAR_Q4, LINEAR_Q8, LINEAR_N_LAYOUTS } linear_layout;

/* Panels times rows: one thread's share of a product. */
typedef struct linear_task {
    const uint8_t *panels;
    int32_t n_panels, n_in;
    int32_t n_last; /* outputs of the last of these panels, 1..16 */
    int32_t n_rows;
    const float *x; /* [n_rows][n_in], x_stride elements apart; for float layouts */
    size_t x_stride;
    const uint8_t *tiles; /* the same rows quantised, from a tile's first row; for Q4 and Q8 */
    float *y;             /* [n_rows][16 * n_panels - 16 + n_last], y_stride elements apart */
    size_t y_stride;
    uint8_t *scratch; /* LINEAR_SCRATCH_BYTES for each block, 64-byte aligned, contents lost */
} linear_task;

typedef struct linear_kernel {
    const char *name;
    uint32_t features; /* CA_CPU_* it needs */

    /* Quantise 1..8 rows of n_blocks blocks, row_stride elements apart, into one tile. */
    void (*quantize)(const float *x, size_t row_stride, int32_t n_rows, int32_t n_blocks, uint8_t *tile);

    void (*multiply[LINEAR_N_LAYOUTS])(const linear_task *task);

    /* The row operations of ops.h. */
    void (*rms_norm)(const float *x, const float *weight, int32_t n, float eps, float *out);
    void (*add)(float *x, const float *y, int32_t n);
    void (*swiglu)(const float *gate, const float *up, int32_t n, float *out);
    void (*geglu)(const float *gate, const float *up, int32_t n, float *out);
    void (*rope)(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot);
    void (*rope_halves)(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot);
} linear_kernel;

extern const linear_kernel linear_ref;
#if defined(__x86_64__)
extern const linear_kernel linear_avx2, linear_avx512, linear_avx512_vnni;
#endif

#endif
