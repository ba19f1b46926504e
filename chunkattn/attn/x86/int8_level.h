/*
 * The functions of a level for int8 K and V that differ from those of its other types, since rows have another form there. A
 * file of their own has them, so that each file has one form of rows.
 */
#ifndef CHUNKATTN_ATTN_X86_INT8_LEVEL_H
#define CHUNKATTN_ATTN_X86_INT8_LEVEL_H

#include "chunkattn/attn/kernels.h"

#define INT8_LEVEL(level)                                                                                                      \
    size_t ca_##level##_int8_query_bytes(int32_t d_k);                                                                         \
    size_t ca_##level##_int8_scratch_bytes(int32_t d_k, int32_t d_v, int32_t c);                                               \
    void ca_##level##_int8_pack_query(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2,     \
                                      void *packed);                                                                           \
    void ca_##level##_int8_attend(const ca_tile *tile);

INT8_LEVEL(avx2)
INT8_LEVEL(avx512)
INT8_LEVEL(amx)

enum { INT8_TILE_ROWS = 4 }; /* ca_kernel.tile_rows of avx2 and avx512 */

/* The level's kernel, in the file of its table. cost: ca_kernel.chunk_cost. */
#define INT8_KERNEL(level, tile_rows, cost, leave)                                                                             \
    {                                                                                                                          \
#level, CATTN_I8, MAX_ROWS, tile_rows, cost, ca_##level##_int8_query_bytes, state_bytes,                               \
            ca_##level##_int8_scratch_bytes, ca_##level##_int8_pack_query, init, ca_##level##_int8_attend, merge, write_i8,    \
            widen_rows, narrow_rows, leave                                                                                     \
    }

#endif
