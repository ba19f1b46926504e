/*
 * What register tiles share that read a row's rounded softmax weights where its scores were: the rounding, and what becomes of
 * a tile's integer sums.
 *
 * Before it is included, a level must have included int8_rows.h and product.h, and defined
 *     void weights_to_factors(float *weights, vec up)   a vector of weights times `up` to integers, in the place of the weights
 *     veci factors_of_nothing(void)                     what stands there where the weights are 0
 */
#ifndef CHUNKATTN_ATTN_X86_INT8_SEAL_H
#define CHUNKATTN_ATTN_X86_INT8_SEAL_H

#if !defined(CHUNKATTN_ATTN_X86_INT8_ROWS_H)
#error "include int8_rows.h before int8_seal.h"
#endif

#include "chunkattn/cache/layout.h"
#include "product.h"

/* Convert `groups` vectors of weights. Returns the factor for sums over them. */
TILE_INLINE __m128 weights_to_integers(float *weights, int groups) {
    const unit u = unit_of(weights, groups);
#pragma GCC unroll 8
    for (int g = 0; g < groups; g++) weights_to_factors(weights + g * V_LANES, u.up);
    return u.down;
}

/* What the factors of a row of a tile end with. */
TILE_INLINE const factors_end *end_of(const product *p, int row) {
    return (const factors_end *)((const char *)p->factors + (row + 1) * p->factor_stride - END_BYTES);
}

/* The sums of a row of a tile: added to O if they are of values, else stored as scores. */
TILE_INLINE void store_sums(const product *p, int row, const veci *sums, int vecs, bool values) {
    float *out = p->out + row * p->out_stride;
    const vec scale = v_set1(end_of(p, row)->scale);
#pragma GCC unroll 4
    for (int j = 0; j < vecs; j++, out += V_LANES) {
        const vec sum = vi_to_float(sums[j]);
        v_store(out, values ? v_fma(sum, scale, v_load(out)) : v_mul(v_mul(sum, scale), v_load(p->lane_scales + j * V_LANES)));
    }
}

/* A row's first n slots, and those up to the end of the slot group of `end`, whose weights are 0. */
static inline void seal_weights(float *scores, int32_t c, int32_t n, int32_t end) {
    enum { USUAL = 64 / V_LANES, GROUP_VECS = CA_SLOT_GROUP / V_LANES };
    const int groups = (n + V_LANES - 1) / V_LANES, all = (end + CA_SLOT_GROUP - 1) / CA_SLOT_GROUP * GROUP_VECS;
    __m128 scale = scale_of_nothing();
    if (groups == USUAL) /* whole chunks of the usual size, straight on */
        scale = weights_to_integers(scores, USUAL);
    else if (groups > 0)
        scale = weights_to_integers(scores, groups);
    for (int g = groups; g < all; g++) vi_store(scores + g * V_LANES, factors_of_nothing());
    end_weights(scores, c, scale);
}

#endif
