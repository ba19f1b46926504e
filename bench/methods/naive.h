/*
 * Attention as it is done without a cache of chunks: each sequence has contiguous f32 K and V of its own, and one row a head
 * goes over them in two passes. What `cattn-bench kernel` compares with.
 */
#ifndef BENCH_METHODS_NAIVE_H
#define BENCH_METHODS_NAIVE_H

#include <stdint.h>

typedef struct naive_head {
    const float *k, *v; /* [n_tokens][dim] of one sequence and K/V head */
    int64_t n_tokens;
    int32_t n_rows; /* query heads of the group */
    int32_t dim;
    const float *q; /* [n_rows][dim] contiguous */
    float *out;     /* [n_rows][dim] contiguous */
    float scale;
} naive_head;

/* scores: scratch for n_rows * n_tokens elements. */
void naive_attend(const naive_head *head, float *scores);

#endif
