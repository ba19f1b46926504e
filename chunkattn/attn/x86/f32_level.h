/*
 * All K/V types of a level with f32 arithmetic, and its table. f32_tile.h and row.h must have been included before.
 */
#ifndef CHUNKATTN_ATTN_X86_F32_LEVEL_H
#define CHUNKATTN_ATTN_X86_F32_LEVEL_H

#if !defined(CHUNKATTN_ATTN_X86_F32_TILE_H) || !defined(CHUNKATTN_ATTN_X86_ROW_H)
#error "include f32_tile.h and row.h before f32_level.h"
#endif

#include "attend.h"

#include "write.h"

static void attend_f32(const ca_tile *t) { attend(t, CATTN_F32); }
static void attend_f16(const ca_tile *t) { attend(t, CATTN_F16); }
static void attend_bf16(const ca_tile *t) { attend(t, CATTN_BF16); }
static void attend_i8(const ca_tile *t) { attend(t, CATTN_I8); }

static void write_f32(const ca_write *w) { write_tokens(CATTN_F32, w); }
static void write_f16(const ca_write *w) { write_tokens(CATTN_F16, w); }
static void write_bf16(const ca_write *w) { write_tokens(CATTN_BF16, w); }
static void write_i8(const ca_write *w) { write_tokens(CATTN_I8, w); }

/* One line of the table; cost: ca_kernel.chunk_cost. */
#define F32_KERNEL(level, type, cost, attend_type, write_type)                                                                 \
    {                                                                                                                          \
        level, type, MAX_ROWS, TILE_ROWS, cost, query_bytes, state_bytes, scratch_bytes, pack_query, init, attend_type, merge, \
            write_type, widen_rows, narrow_rows, NULL                                                                          \
    }
#define F32_KERNELS(level, cost_f32, cost_f16, cost_bf16, cost_i8)                                                             \
    {                                                                                                                          \
        F32_KERNEL(level, CATTN_F32, cost_f32, attend_f32, write_f32),                                                         \
            F32_KERNEL(level, CATTN_F16, cost_f16, attend_f16, write_f16),                                                     \
            F32_KERNEL(level, CATTN_BF16, cost_bf16, attend_bf16, write_bf16),                                                 \
            F32_KERNEL(level, CATTN_I8, cost_i8, attend_i8, write_i8),                                                         \
    }

#endif
