/* Times attention when whole prompts are computed, all rows of all sequences in one step. */
#ifndef BENCH_SHARED_PREFILL_TIME_H
#define BENCH_SHARED_PREFILL_TIME_H

#include "chunkattn.h"
#include "chunkattn/base/threads.h"
#include "formulas.h"

typedef struct prefill_options {
    cattn_type kv_type;
    const char *level; /* NULL: the CPU's best */
    int32_t chunk;
    int n_steps;
    ca_pool *pool;
} prefill_options;

/* Bytes that the measurement allocates. */
double prefill_time_bytes(const layer_shape *shape, int64_t batch, int64_t length);

/*
 * Median latency in microseconds of causal attention over `batch` prompts of `length` tokens that have nothing in common; K
 * and V have been written. Negative with a message on stderr if it fails.
 */
double prefill_time_us(const layer_shape *shape, int64_t batch, int64_t length, const prefill_options *options);

#endif
