/*
 * Rows of the levels that multiply quads of int8 with quads as they are stored: q is a byte a dimension, a weight two unsigned
 * bytes.
 *
 * Before it is included, a level must have included vec256.h or vec512.h.
 */
#ifndef CHUNKATTN_ATTN_X86_INT8_QUADS_H
#define CHUNKATTN_ATTN_X86_INT8_QUADS_H

#if !defined(CHUNKATTN_ATTN_X86_VEC256_H) && !defined(CHUNKATTN_ATTN_X86_VEC512_H)
#error "include vec256.h or vec512.h before int8_quads.h"
#endif

#include "int8_rows.h"

static size_t query_bytes(int32_t d_k) { return ((size_t)d_k + 63) / 64 * 64 + END_BYTES; }

/*
 * A vector of weights as integers: for each quad 16 bytes, of which the first four are the high bytes, then the low ones.
 * Adding 2^23 rounds to an integer and leaves it in the low bytes.
 */
static inline veci weights_to_quads(const float *weights, vec up) {
    const __m128i quads = _mm_setr_epi8(1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1);
    return vi_shuffle(v_bits(v_fma(v_load(weights), up, v_set1(0x1p23f))), quads);
}

#endif
