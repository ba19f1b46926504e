/*
 * Register tiles of 6 rows x 2 or 4 vectors for instructions that multiply pairs or quads as they are stored: nothing is
 * unpacked.
 *
 * Before it is included, a level must have defined TILE_ROWS = 6, the macro TILE_VECS, 2 or 4, and
 *     TILE_INLINE void multiply(const product *p, int rows, int vecs, enum product_use use)
 */
#ifndef CHUNKATTN_ATTN_X86_DOT_TILES_H
#define CHUNKATTN_ATTN_X86_DOT_TILES_H

#include "chunkattn.h"
#include "product.h"

#define PRODUCT(rows, vecs)                                                                                                    \
    static void first_##rows##x##vecs(product *p) { EACH_TILE(p, rows, multiply(p, rows, vecs, USE_FIRST)) }                   \
    static void again_##rows##x##vecs(product *p) { EACH_TILE(p, rows, multiply(p, rows, vecs, USE_AGAIN)) }
#define PRODUCTS(vecs) PRODUCT(1, vecs) PRODUCT(2, vecs) PRODUCT(3, vecs) PRODUCT(4, vecs) PRODUCT(5, vecs) PRODUCT(6, vecs)
PRODUCTS(1)
PRODUCTS(2)
#if TILE_VECS == 4
PRODUCTS(3)
PRODUCTS(4)
#endif

#define ROW(use, vecs)                                                                                                         \
    { NULL, use##_1x##vecs, use##_2x##vecs, use##_3x##vecs, use##_4x##vecs, use##_5x##vecs, use##_6x##vecs }
#if TILE_VECS == 4
#define ROWS_OF(use)                                                                                                           \
    { {NULL}, ROW(use, 1), ROW(use, 2), ROW(use, 3), ROW(use, 4) }
#else
#define ROWS_OF(use)                                                                                                           \
    { {NULL}, ROW(use, 1), ROW(use, 2) }
#endif
static const product_fn first[TILE_VECS + 1][TILE_ROWS + 1] = ROWS_OF(first);
static const product_fn again[TILE_VECS + 1][TILE_ROWS + 1] = ROWS_OF(again);

enum { KEPT_VECS = 0 };

static inline bool converts(cattn_type type) {
    (void)type;
    return false;
}
static inline bool unpacks(cattn_type type, int32_t tiles) {
    (void)type, (void)tiles;
    return false;
}
static inline product_fn find_tiles(enum product_use use, int32_t rows, int32_t vecs) {
    return use == USE_FIRST ? first[vecs][rows] : again[vecs][rows];
}

#endif
