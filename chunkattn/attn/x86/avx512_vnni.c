/*
 * Level avx512_vnni: int8 K and V through vpdpbusd; q is rounded to 8 bits within its row, weights to 16 within row and chunk.
 * Tiles of 6 rows x 4 vectors, as in avx512_bf16.
 */
#include "vec512.h"

#include "product.h"

#define TILE_VECS 4

/* As assembly, since of the intrinsic gcc 12 makes a tile whose sums live on the stack. */
TILE_INLINE veci dot(veci acc, veci x, veci y) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(x), "v"(y));
    return acc;
}

#include "int8_quad_tiles.h"

QUAD_KERNEL(avx512_vnni, 5.5f)
