/*
 * Level avx512: AVX-512 F, BW, DQ and VL, f32 arithmetic; bf16 K and V without bf16 instructions.
 *
 * 12 rows x 2 vectors: 24 sums, two lines of the panel, a factor and the bf16 mask take 30 of the 32 registers. For each line
 * of two vectors come 12 factors, so that 14 loads feed 24 multiplications; 6 x 4 would need fewer loads (10), but unpack twice
 * the lines a row tile.
 */
#include "vec512.h"

/* clang-format off */
#define TILE_EACH_ROWS(X, ...)                                                                                  \
    X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__) \
    X(7, __VA_ARGS__) X(8, __VA_ARGS__) X(9, __VA_ARGS__) X(10, __VA_ARGS__) X(11, __VA_ARGS__) X(12, __VA_ARGS__)
/* clang-format on */
enum { TILE_ROWS = 12, TILE_VECS = 2, TILE_LINES = 2, STREAM_ROWS = 0, WIDE_ROWS = TILE_ROWS, WIDE_VECS = TILE_VECS };

#include "f32_tile.h"

#include "row.h"

#include "f32_level.h"

const ca_kernel ca_kernels_avx512[CA_N_TYPES] = F32_KERNELS("avx512", 12.5f, 3.5f, 4, 2.5f);
