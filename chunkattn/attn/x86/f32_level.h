/*
 * The K/V types of a level that it multiplies in f32, and its table.
 *
 * Before it is included, a level must have included f32_lines.h and row.h, and defined TILE_SHAPES(X, ...), which is
 * X(rows, vecs, ...) for each shape of a register tile, and what attend.h needs except find_product, and
 *     TILE_INLINE void multiply(const product *p, int rows, int vecs, cattn_type type, enum product_use use)
 */
#ifndef CHUNKATTN_ATTN_X86_F32_LEVEL_H
#define CHUNKATTN_ATTN_X86_F32_LEVEL_H

#if !defined(CHUNKATTN_ATTN_X86_F32_LINES_H) || !defined(CHUNKATTN_ATTN_X86_ROW_H)
#error "include f32_lines.h and row.h before f32_level.h"
#endif

#define PRODUCT_NAME(rows, vecs, type, use) multiply_##rows##x##vecs##_##type##_##use
#define PRODUCT(rows, vecs, type, use)                                                                                         \
    static void PRODUCT_NAME(rows, vecs, type, use)(product * p) { EACH_TILE(p, rows, multiply(p, rows, vecs, type, use)) }
#define PRODUCT_ENTRY(rows, vecs, type, use) [vecs][rows] = PRODUCT_NAME(rows, vecs, type, use),
#define PRODUCTS(type, use)                                                                                                    \
    TILE_SHAPES(PRODUCT, type, use)                                                                                            \
    static const product_fn type##_##use[][TILE_ROWS + 1] = {TILE_SHAPES(PRODUCT_ENTRY, type, use)};

PRODUCTS(CATTN_F32, USE_FIRST)
PRODUCTS(CATTN_F32, USE_AGAIN)
PRODUCTS(CATTN_F16, USE_FIRST)
PRODUCTS(CATTN_F16, USE_KEEP)
PRODUCTS(CATTN_BF16, USE_FIRST)
PRODUCTS(CATTN_BF16, USE_KEEP)

static inline bool converts(cattn_type type) { return type != CATTN_F32; }

static inline product_fn find_product(cattn_type type, enum product_use use, int32_t rows, int32_t vecs) {
    if (use == USE_AGAIN) return CATTN_F32_USE_AGAIN[vecs][rows]; /* unpacked, whatever it was */
    if (type == CATTN_F32) return CATTN_F32_USE_FIRST[vecs][rows];
    if (type == CATTN_F16) return use == USE_KEEP ? CATTN_F16_USE_KEEP[vecs][rows] : CATTN_F16_USE_FIRST[vecs][rows];
    return use == USE_KEEP ? CATTN_BF16_USE_KEEP[vecs][rows] : CATTN_BF16_USE_FIRST[vecs][rows];
}

#include "attend.h"
#include "int8_level.h"

#include "write.h"

static void attend_f32(const ca_tile *t) { attend(t, CATTN_F32); }
static void attend_f16(const ca_tile *t) { attend(t, CATTN_F16); }
static void attend_bf16(const ca_tile *t) { attend(t, CATTN_BF16); }

static void write_f32(const ca_write *w) { write_tokens(CATTN_F32, w); }
static void write_f16(const ca_write *w) { write_tokens(CATTN_F16, w); }
static void write_bf16(const ca_write *w) { write_tokens(CATTN_BF16, w); }
static void write_i8(const ca_write *w) { write_tokens(CATTN_I8, w); }

/* Its table, with costs as ca_kernel.chunk_cost. int8 is multiplied in integers, in a file of its own. */
#define F32_KERNEL(level, type, cost, attend_type, write_type)                                                                 \
    {                                                                                                                          \
#level, type, MAX_ROWS, TILE_ROWS, cost, query_bytes, state_bytes, scratch_bytes, pack_query, init, attend_type,       \
            merge, write_type, widen_rows, narrow_rows, NULL                                                                   \
    }
#define F32_KERNELS(level, cost_f32, cost_f16, cost_bf16, cost_i8)                                                             \
    {                                                                                                                          \
        F32_KERNEL(level, CATTN_F32, cost_f32, attend_f32, write_f32),                                                         \
            F32_KERNEL(level, CATTN_F16, cost_f16, attend_f16, write_f16),                                                     \
            F32_KERNEL(level, CATTN_BF16, cost_bf16, attend_bf16, write_bf16),                                                 \
            INT8_KERNEL(level, INT8_TILE_ROWS, cost_i8, NULL),                                                                 \
    }

#endif
