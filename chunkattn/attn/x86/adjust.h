/*
 * A tile's options, applied to its scores between the product with K and the softmax: soft-cap, ALiBi, window.
 *
 * Whole vectors are computed: the scores of slots that a row does not see may be anything, before and after. Before it is
 * included, a level must have included vec256.h or vec512.h.
 */
#ifndef CHUNKATTN_ATTN_X86_ADJUST_H
#define CHUNKATTN_ATTN_X86_ADJUST_H

#if !defined(CHUNKATTN_ATTN_X86_VEC256_H) && !defined(CHUNKATTN_ATTN_X86_VEC512_H)
#error "include vec256.h or vec512.h before adjust.h"
#endif

#include <float.h>

#include "chunkattn/attn/kernels.h"

static inline int32_t slots_seen(const ca_tile *t, int32_t row) { return t->n_seen ? t->n_seen[row] : t->c; }

/*
 * tanh x as x P(x^2) / Q(x^2), minimax for the relative error on [0, 9.02], 2.2e-8; with its roundings 5 2^-24. Beyond that it
 * is 1 in f32. Infinities give +-1, NaN stays.
 */
static inline vec tanh_vec(vec x) {
    x = v_min(v_set1(9.02f), v_max(v_set1(-9.02f), x));
    const vec y = v_mul(x, x);
    vec p = v_fma(v_set1(1.33187683e-08f), y, v_set1(2.05832566e-05f));
    vec q = v_fma(v_set1(7.76189324e-07f), y, v_set1(0.00032830704f));
    p = v_fma(p, y, v_set1(0.00349402078f));
    q = v_fma(q, y, v_set1(0.0258710217f));
    p = v_fma(p, y, v_set1(0.133797064f));
    q = v_fma(q, y, v_set1(0.467130214f));
    p = v_fma(p, y, v_set1(1));
    q = v_fma(q, y, v_set1(1));
    return v_div(v_mul(x, p), q);
}

/* Change the scores of a row's first n slots. Hidden ones become so low that they neither raise M nor have a weight. */
static inline void adjust_row(const ca_tile_options *o, int32_t row, float *scores, int n) {
    const float inverse = o->softcap > 0 ? 1 / o->softcap : 0;
    for (int i = 0; i < n; i += V_LANES) {
        vec s = v_load(scores + i);
        if (o->softcap > 0) s = v_mul(v_set1(o->softcap), tanh_vec(v_mul(s, v_set1(inverse))));
        if (o->slopes) s = v_fma(v_set1(o->slopes[row]), v_add(v_set1(o->distances[row] + (float)i), v_lanes()), s);
        if (o->n_hidden && i < o->n_hidden[row]) {
            const vec hidden = v_select(v_below(o->n_sink_slots - i), s, v_set1(-FLT_MAX));
            s = v_select(v_below(o->n_hidden[row] - i), hidden, s);
        }
        v_store(scores + i, s);
    }
}

/* All rows of a tile that has options; their scores are `stride` floats apart. Not inlined, since options are rare. */
static __attribute__((noinline)) void adjust_scores(const ca_tile *t, float *scores, ptrdiff_t stride) {
    for (int32_t row = 0; row < t->n_rows; row++) adjust_row(t->options, row, scores + row * stride, slots_seen(t, row));
}

#endif
