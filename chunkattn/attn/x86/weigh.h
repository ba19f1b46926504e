/*
 * What happens between the two products of a chunk, for all rows of a tile: the options change the scores, and the scores
 * become weights.
 *
 * Before it is included, a level must have included row.h and defined
 *     void seal_weights(float *scores, int32_t c, int32_t n, int32_t end)   finish a row's weights of its first n slots, of
 *                                                                            which the product will read `end`
 */
#ifndef CHUNKATTN_ATTN_X86_WEIGH_H
#define CHUNKATTN_ATTN_X86_WEIGH_H

#if !defined(CHUNKATTN_ATTN_X86_ROW_H)
#error "include row.h before weigh.h"
#endif

#include "adjust.h"
#include "chunkattn/attn/kernels.h"

enum { MAX_ROWS = 96, GROUP = 16 }; /* panels of K begin at a multiple of GROUP slots */

/* Slots of a whole chunk of the usual size: known to the compiler, they make the softmax an eighth faster. */
enum { USUAL_SLOTS = 64 };

/* n things in as few parts as hold them. */
static inline int32_t n_parts(int32_t n, int32_t most) { return (n + most - 1) / most; }

static inline float *state_at(const ca_tile *t, int32_t row) { return (float *)t->state + (size_t)row * state_floats(t->d_v); }

/* Floats from a row's scores to the next: a line more than needed, so that rows do not fall into the same cache sets. */
static inline ptrdiff_t scores_stride(int32_t c) { return c + GROUP; }

/* The largest number of leading slots that a row of the tile sees. */
static inline int32_t most_slots(const ca_tile *t) {
    int32_t most = slots_seen(t, 0);
    for (int32_t row = 1; t->n_seen && row < t->n_rows; row++) most = t->n_seen[row] > most ? t->n_seen[row] : most;
    return most;
}

/* v_scales: as in softmax_row. */
static inline void weigh_rows(const ca_tile *t, float *scores, const float *v_scales, int32_t most_seen) {
    if (t->options) adjust_scores(t, scores, scores_stride(t->c));
    for (int32_t row = 0; row < t->n_rows; row++) {
        float *of_row = scores + row * scores_stride(t->c);
        const int32_t n = slots_seen(t, row);
        if (n == USUAL_SLOTS)
            softmax_row(of_row, USUAL_SLOTS, v_scales, state_at(t, row), t->d_v);
        else if (n > 0)
            softmax_row(of_row, n, v_scales, state_at(t, row), t->d_v);
    }
    /* A loop of its own: each iteration is a long dependency chain, and short iterations overlap better. */
    for (int32_t row = 0; row < t->n_rows; row++)
        seal_weights(scores + row * scores_stride(t->c), t->c, slots_seen(t, row), most_seen);
}

#endif
