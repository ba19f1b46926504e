/*
 * Products of AMX tiles for the kernels of level amx: factors A, of q or weights, times lines B of K or V as they are stored.
 *
 * A block is up to 16 lines of B, each with the pairs or quads of 16 columns, and as many words of each row of A. There are
 * four tiles of sums: two row tiles by two columns of tiles, so that each A and each B is loaded for two products. A single row
 * tile, whose time depends on its B tiles, however few its rows are, has four columns.
 */
#ifndef CHUNKATTN_ATTN_X86_AMX_TILES_H
#define CHUNKATTN_ATTN_X86_AMX_TILES_H

#include <stdbool.h>
#include <stddef.h>

#include "chunkattn/base/tiles.h"

enum { TILE_ROWS = 16, TILE_COLUMNS = 16, TILE_LINES = 16, COLUMN_BYTES = 64 /* of a line of B, or a row of sums */ };

/* What is multiplied, A by B. */
enum tile_dot { DOT_BF16, DOT_SIGNED_BY_UNSIGNED, DOT_UNSIGNED_BY_SIGNED };

/* One row tile, or two, by all columns: out = or += A times B. */
typedef struct product {
    const char *a, *a_below; /* factors of each row tile's first row */
    const char *b;           /* the first line */
    const char *next;        /* what to prefetch, as many bytes as the lines have; NULL: nothing */
    char *out, *out_below;
    ptrdiff_t a_stride, b_stride, out_stride; /* bytes to the next row, line, row */
    ptrdiff_t a_block;                        /* bytes to the next block's factors */
    int32_t n_rows, n_rows_below;             /* 1..16 each; none below: a single row tile */
    int32_t n_columns;                        /* of tiles */
    int32_t n_blocks, n_lines;                /* blocks, and the lines of each */
    bool accumulate;
} product;

/* To be called before multiply. Products with the same rows, and lines of a block, share their shapes. */
static inline void use_shapes(const product *p) {
    ca_tile_shapes shapes = {0};
    const int32_t below = p->n_rows_below ? p->n_rows_below : p->n_rows;
    for (int i = 0; i < 4; i++) ca_tiles_shape(&shapes, i, i < 2 ? p->n_rows : below, COLUMN_BYTES);
    ca_tiles_shape(&shapes, 4, p->n_rows, 4 * p->n_lines);
    ca_tiles_shape(&shapes, 5, below, 4 * p->n_lines);
    for (int i = 6; i < 8; i++) ca_tiles_shape(&shapes, i, p->n_lines, COLUMN_BYTES);
    ca_tiles_use(&shapes);
}

#define TILE_INLINE static inline __attribute__((always_inline))

/* sums += a times b, which are numbers of registers. */
#define TILE_DOT(dot, sums, a, b)                                                                                              \
    do {                                                                                                                       \
        if ((dot) == DOT_BF16) _tile_dpbf16ps(sums, a, b);                                                                     \
        if ((dot) == DOT_SIGNED_BY_UNSIGNED) _tile_dpbsud(sums, a, b);                                                         \
        if ((dot) == DOT_UNSIGNED_BY_SIGNED) _tile_dpbusd(sums, a, b);                                                         \
    } while (0)

/*
 * Prefetch as many cache lines as a block of n_lines and `columns` has, in the order of memory, so that the processor's own
 * prefetcher runs ahead of them. They go to L2, since L1 cannot hold the next chunk beside what 32 rows need.
 */
TILE_INLINE const char *prefetch(const char *next, int32_t n_lines, int columns) {
    for (int32_t i = 0; i < n_lines * columns; i++) _mm_prefetch(next + i * 64, _MM_HINT_T1);
    return next + n_lines * columns * 64;
}

/* Where a column's prefetches begin: after those of the columns before it. */
TILE_INLINE const char *next_of(const product *p, int column) {
    return p->next ? p->next + (ptrdiff_t)column * p->n_blocks * p->n_lines * 64 : NULL;
}

/* Up to 32 rows: tiles 0 and 1 are the sums of the first 16 in one column or two, 2 and 3 those of the others. */
TILE_INLINE void multiply_two(const product *p, const enum tile_dot dot, int column, const int columns) {
    const ptrdiff_t a_stride = p->a_stride, b_stride = p->b_stride, out_stride = p->out_stride;
    const ptrdiff_t a_block = p->a_block, b_block = p->n_lines * b_stride;
    const char *a = p->a, *a_below = p->a_below, *b = p->b + column * COLUMN_BYTES;
    const char *next = next_of(p, column);
    char *out = p->out + column * COLUMN_BYTES, *out_below = p->out_below + column * COLUMN_BYTES;
    if (p->accumulate) {
        _tile_loadd(0, out, out_stride);
        if (columns > 1) _tile_loadd(1, out + COLUMN_BYTES, out_stride);
        _tile_loadd(2, out_below, out_stride);
        if (columns > 1) _tile_loadd(3, out_below + COLUMN_BYTES, out_stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int32_t block = 0; block < p->n_blocks; block++, a += a_block, a_below += a_block, b += b_block) {
        _tile_loadd(4, a, a_stride);
        _tile_loadd(6, b, b_stride);
        TILE_DOT(dot, 0, 4, 6);
        _tile_loadd(5, a_below, a_stride);
        TILE_DOT(dot, 2, 5, 6);
        if (columns > 1) {
            _tile_loadd(7, b + COLUMN_BYTES, b_stride);
            TILE_DOT(dot, 1, 4, 7);
            TILE_DOT(dot, 3, 5, 7);
        }
        if (next) next = prefetch(next, p->n_lines, columns);
    }
    _tile_stored(0, out, out_stride);
    if (columns > 1) _tile_stored(1, out + COLUMN_BYTES, out_stride);
    _tile_stored(2, out_below, out_stride);
    if (columns > 1) _tile_stored(3, out_below + COLUMN_BYTES, out_stride);
}

/* Up to 16 rows: tiles 0 to 3 are their sums in up to four columns. */
TILE_INLINE void multiply_one(const product *p, const enum tile_dot dot, int column, const int columns) {
    const ptrdiff_t a_stride = p->a_stride, b_stride = p->b_stride, out_stride = p->out_stride;
    const ptrdiff_t a_block = p->a_block, b_block = p->n_lines * b_stride;
    const char *a = p->a, *b = p->b + column * COLUMN_BYTES, *next = next_of(p, column);
    char *out = p->out + column * COLUMN_BYTES;
    if (p->accumulate) {
        _tile_loadd(0, out, out_stride);
        if (columns > 1) _tile_loadd(1, out + COLUMN_BYTES, out_stride);
        if (columns > 2) _tile_loadd(2, out + 2 * COLUMN_BYTES, out_stride);
        if (columns > 3) _tile_loadd(3, out + 3 * COLUMN_BYTES, out_stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int32_t block = 0; block < p->n_blocks; block++, a += a_block, b += b_block) {
        _tile_loadd(4, a, a_stride);
        _tile_loadd(6, b, b_stride);
        TILE_DOT(dot, 0, 4, 6);
        if (columns > 1) {
            _tile_loadd(7, b + COLUMN_BYTES, b_stride);
            TILE_DOT(dot, 1, 4, 7);
        }
        if (columns > 2) {
            _tile_loadd(6, b + 2 * COLUMN_BYTES, b_stride);
            TILE_DOT(dot, 2, 4, 6);
        }
        if (columns > 3) {
            _tile_loadd(7, b + 3 * COLUMN_BYTES, b_stride);
            TILE_DOT(dot, 3, 4, 7);
        }
        if (next) next = prefetch(next, p->n_lines, columns);
    }
    _tile_stored(0, out, out_stride);
    if (columns > 1) _tile_stored(1, out + COLUMN_BYTES, out_stride);
    if (columns > 2) _tile_stored(2, out + 2 * COLUMN_BYTES, out_stride);
    if (columns > 3) _tile_stored(3, out + 3 * COLUMN_BYTES, out_stride);
}

/* All columns by a function that takes up to `most` of them at once; the compiler makes one of each number. */
#define EACH_COLUMNS(multiply, most)                                                                                           \
    for (int column = 0; column < p->n_columns; column += (most)) switch (p->n_columns - column) {                             \
        case 1: multiply(p, dot, column, 1); break;                                                                            \
        case 2: multiply(p, dot, column, 2); break;                                                                            \
        case 3: multiply(p, dot, column, (most) < 3 ? (most) : 3); break;                                                      \
        default: multiply(p, dot, column, most); break;                                                                        \
        }

TILE_INLINE void multiply(const product *p, const enum tile_dot dot) {
    if (p->n_rows_below > 0) {
        EACH_COLUMNS(multiply_two, 2)
    } else {
        EACH_COLUMNS(multiply_one, 4)
    }
}

#endif
