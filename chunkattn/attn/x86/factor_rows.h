/*
 * The rows of factors that a register tile multiplies: an address for every three rows and one stride, so that a few general
 * registers suffice. By itself gcc computes an address or a multiple of the stride for each row, and keeps those that do not
 * fit in vector registers, from which they reach the loads through the multipliers' ports.
 *
 * Before it is included, a level must have defined TILE_ROWS, in an enum.
 */
#ifndef CHUNKATTN_ATTN_X86_FACTOR_ROWS_H
#define CHUNKATTN_ATTN_X86_FACTOR_ROWS_H

#include "product.h"

/* Keeps the compiler from deriving x anew from what it was made of: that takes more registers than there are. */
#define OPAQUE(x) __asm__("" : "+r"(x))

enum { ROWS_A_BASE = 3, FACTOR_BASES = (TILE_ROWS + ROWS_A_BASE - 1) / ROWS_A_BASE };

typedef struct factor_rows {
    const char *base[FACTOR_BASES];
    ptrdiff_t stride;
} factor_rows;

TILE_INLINE factor_rows factor_rows_of(const product *p) {
    factor_rows f = {{p->factors}, p->factor_stride};
#pragma GCC unroll 4
    for (int b = 1; b < FACTOR_BASES; b++) {
        f.base[b] = f.base[b - 1] + ROWS_A_BASE * f.stride;
        OPAQUE(f.base[b]);
    }
    return f;
}

TILE_INLINE const char *factors_of(const factor_rows *f, int row) {
    return f->base[row / ROWS_A_BASE] + row % ROWS_A_BASE * f->stride;
}

TILE_INLINE void next_factors(factor_rows *f, ptrdiff_t bytes) {
#pragma GCC unroll 4
    for (int b = 0; b < FACTOR_BASES; b++) f->base[b] += bytes;
}

#endif
