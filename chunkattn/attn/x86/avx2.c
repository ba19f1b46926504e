/*
 * Level avx2: AVX2 with FMA and F16C, f32 arithmetic.
 *
 * Sixteen registers hold a tile of 6 rows x 2 vectors, a line of the panel, a factor and the bf16 mask.
 */
#include "vec256.h"

#define TILE_EACH_ROWS(X, ...)                                                                                                 \
    X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__)
enum { TILE_ROWS = 6, TILE_VECS = 2, TILE_LINES = 1, STREAM_ROWS = 0, WIDE_ROWS = TILE_ROWS, WIDE_VECS = TILE_VECS };

#include "f32_tile.h"

#include "row.h"

#include "f32_level.h"

const ca_kernel ca_kernels_avx2[CA_N_TYPES] = F32_KERNELS("avx2", 5, 2, 2.5f, 2);
