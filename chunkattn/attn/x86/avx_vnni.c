/*
 * Level avx_vnni, for CPUs without AVX-512: int8 K and V as in avx512_vnni, with vectors of 256 bits and tiles of 6 rows x
 * 2 vectors. The other types are those of avx2.
 */
#include "vec256.h"

#include "product.h"

#define TILE_VECS 2

/* As assembly: see avx512_vnni.c. Without {vex} it would be the instruction of AVX-512. */
TILE_INLINE veci dot(veci acc, veci x, veci y) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(x), "x"(y));
    return acc;
}

#include "int8_quad_tiles.h"

QUAD_KERNEL(avx_vnni, 2.5f)
