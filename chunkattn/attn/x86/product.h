/* The product that a register tile computes: out = or += factors times a panel of K or V, for the rows of one tile. */
#ifndef CHUNKATTN_ATTN_X86_PRODUCT_H
#define CHUNKATTN_ATTN_X86_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * out[row][lane] += sum over lines, ascending, of factors[row][line] * panel[line][lane]. In bf16 a line holds two, in int8
 * four: `n` counts single ones, and of the last pair or quad only those that count are read. Strides are in bytes, that of out
 * in floats.
 */
typedef struct product {
    const void *factors;
    const char *panel;
    const char *next; /* what to prefetch, next_step bytes further for each line */
    float *kept;      /* 64-byte aligned room for the panel as f32 */
    float *out;
    ptrdiff_t factor_stride, panel_stride, next_step, out_stride;
    ptrdiff_t next_tile; /* bytes that a tile prefetches */
    int32_t n_tiles;     /* of the same size, whose rows follow one another */
    int32_t n;
    const float *lane_scales; /* int8: out is multiplied by these. Not with accumulate */
    bool accumulate;          /* false: out = sum */
} product;

/* Changes *p: a copy of a struct that was just written field by field would wait for all of those stores. */
typedef void (*product_fn)(product *p);

/* Tiles are written once, for any number of rows and vectors, and become code where these are constants. */
#define TILE_INLINE static inline __attribute__((always_inline))

/*
 * Calls `multiply` for each tile of *p. One call processes all tiles of a size: the 150 or so instructions between two calls
 * are more than a core's window of pending arithmetic can hide, even more so if another hardware thread shares the window.
 * Reading *p anew for each tile costs less than the registers to keep what is made of it.
 */
#define EACH_TILE(p, rows, multiply)                                                                                           \
    for (; (p)->n_tiles > 0; (p)->n_tiles--) {                                                                                 \
        __asm__("" : "+m"(*(p)));                                                                                              \
        multiply;                                                                                                              \
        (p)->factors = (const char *)(p)->factors + (rows) * (p)->factor_stride;                                               \
        (p)->out += (rows) * (p)->out_stride;                                                                                  \
        (p)->next += (p)->next_tile;                                                                                           \
    }

enum product_use {
    USE_FIRST, /* panel as stored; prefetches as many cache lines as it reads */
    USE_KEEP,  /* panel as stored, and unpacked to kept; prefetches one for each line, as the next does */
    USE_AGAIN, /* panel that is unpacked already, or needs no unpacking */
    N_USES
};

/* The largest register tile of a product: rows, and vectors of its panel. */
typedef struct tile_shape {
    int32_t rows, vecs;
} tile_shape;

#endif
