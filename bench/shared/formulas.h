/* What attention computes and moves on paper, to hold measurements against. */
#ifndef BENCH_SHARED_FORMULAS_H
#define BENCH_SHARED_FORMULAS_H

#include <stdint.h>

/*
 * Elements moved by one decode step of one layer, Eq. 3 of the paper's submission, for batch b, query heads h of size d, chunks
 * of c, context n, of which the part r is shared: b h d [2 n r (1/b + 1/c) + 2 + 2 n (1 - r)]; without sharing
 * b h d (2 + 2 n).
 */
double formula_moved_chunk(double b, double h, double d, double c, double n, double r);
double formula_moved_naive(double b, double h, double d, double n);

/* FLOPs of rows that see n tokens together: q.k and p v, both 2 d, for each head. */
double formula_flops(int32_t heads, int32_t head_dim, double n);

#endif
