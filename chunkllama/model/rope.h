/*
 * Rotary position embedding: how many radians each pair of dimensions turns per position, and by what its length is multiplied.
 * Without scaling, pair i of the n_rot / 2 pairs turns by base^(-2i / n_rot).
 *
 * Kinds of scaling, by GGUF's names:
 *   linear     all pairs turn slower, by one factor
 *   yarn       pairs that turn often within the context of the first training keep their speed, those that turn seldom turn
 *              slower by the factor, with a linear ramp between (arXiv 2309.00071)
 *   longrope   each pair turns slower by a divisor of its own (arXiv 2402.13753)
 * Llama 3's scaling is given by divisors, too.
 */
#ifndef CHUNKLLAMA_MODEL_ROPE_H
#define CHUNKLLAMA_MODEL_ROPE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cl_rope_params {
    int32_t n_rot; /* number of leading dimensions of each head that are rotated; even */
    double base;
    double factor;    /* of linear and yarn; 1: none */
    double magnitude; /* multiplies cosine and sine */
    bool ramps;       /* yarn: pairs before ramp_begin keep their speed, those from ramp_end on turn slower by the factor */
    double ramp_begin, ramp_end;
    const float *divisors; /* [n_rot / 2] of the speeds, borrowed from the weights; NULL: all 1 */
    /*
     * longrope: the divisors of an engine whose sequences have at most n_short positions, borrowed from the weights; NULL:
     * none. The engine decides it once, so that no bit depends on the length of a sequence.
     */
    const float *short_divisors;
    int64_t n_short;
} cl_rope_params;

/* Whether sequences of at most n_ctx positions are rotated by the short divisors. */
static inline bool cl_rope_is_short(const cl_rope_params *r, int64_t n_ctx) { return r->short_divisors && n_ctx <= r->n_short; }

/* Radians per position of pair i in sequences of at most n_ctx positions. */
double cl_rope_frequency(const cl_rope_params *r, int32_t i, int64_t n_ctx);

#endif
