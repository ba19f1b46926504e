/*
 * Level avx2: AVX2 with FMA and F16C, f32 arithmetic.
 *
 * Sixteen registers hold a tile of 6 rows x 2 vectors, a line of the panel, a factor and the bf16 mask.
 */
#include "lib/attn/x86/vec256.h"

#define TILE_EACH_ROWS(X, ...)                                                                                                 \
    X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__)
enum { TILE_ROWS = 6, TILE_VECS = 2 };

#include "lib/attn/x86/f32_tile.h"

#include "lib/attn/x86/row.h"

#include "lib/attn/x86/attend.h"

#include "lib/attn/x86/write.h"

static void attend_f32(const ca_tile *t) { attend(t, CATTN_F32); }
static void attend_f16(const ca_tile *t) { attend(t, CATTN_F16); }
static void attend_bf16(const ca_tile *t) { attend(t, CATTN_BF16); }
static void attend_i8(const ca_tile *t) { attend(t, CATTN_I8); }

static void write_f32(const ca_write *w) { write_tokens(CATTN_F32, w); }
static void write_f16(const ca_write *w) { write_tokens(CATTN_F16, w); }
static void write_bf16(const ca_write *w) { write_tokens(CATTN_BF16, w); }
static void write_i8(const ca_write *w) { write_tokens(CATTN_I8, w); }

#define TABLE(type, cost, scratch, attend_type, write_type)                                                                    \
    {                                                                                                                          \
        "avx2", type, MAX_ROWS, TILE_ROWS, cost, query_bytes, state_bytes, scratch, pack_query, init, attend_type, merge,      \
            write_type                                                                                                         \
    }
const ca_kernel ca_kernels_avx2[CA_N_TYPES] = {
    TABLE(CATTN_F32, 5, scratch_bytes, attend_f32, write_f32),
    TABLE(CATTN_F16, 2, scratch_bytes, attend_f16, write_f16),
    TABLE(CATTN_BF16, 2.5f, scratch_bytes, attend_bf16, write_bf16),
    TABLE(CATTN_I8, 2, scratch_bytes_i8, attend_i8, write_i8),
};
