/*
 * How long completions are: a histogram of those that ended, in buckets of powers of two, from which the rest of a running one
 * is estimated. Older completions decay, so that it follows the load.
 */
#ifndef CHUNKLLAMA_ENGINE_LENGTHS_H
#define CHUNKLLAMA_ENGINE_LENGTHS_H

#include <stdint.h>

enum { CL_LENGTHS_BUCKETS = 32 };

/* Zero-initialise. Bucket b has the lengths from 2^b to 2^(b+1) - 1, in tokens. */
typedef struct cl_lengths {
    double n[CL_LENGTHS_BUCKETS];   /* completions; not whole numbers, because of the decay */
    double sum[CL_LENGTHS_BUCKETS]; /* of their lengths */
} cl_lengths;

/* Add a completion that ended with n_tokens >= 1. */
void cl_lengths_add(cl_lengths *l, int64_t n_tokens);

/*
 * The mean number of tokens that follow in completions of more than n_tokens; `unknown` if there are too few of these.
 */
double cl_lengths_left(const cl_lengths *l, int64_t n_tokens, double unknown);

#endif
