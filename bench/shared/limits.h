/* The machine's limits, measured: read bandwidth and arithmetic peaks, with which every figure is compared. */
#ifndef BENCH_SHARED_LIMITS_H
#define BENCH_SHARED_LIMITS_H

#include <stdbool.h>

#include "chunkattn/base/threads.h"
#include "peaks.h"

typedef struct limit_kind {
    const char *key; /* in the heads of results; NULL: it is not there */
    const char *name, *unit;
} limit_kind;
extern const limit_kind limit_kinds[N_LIMITS];

/* The limits of n_threads together, in 1e9 bytes or operations per second; 0 if the CPU has no such instruction. */
typedef struct limits {
    int n_threads;
    double of[N_LIMITS];
} limits;

/*
 * The best of several runs, measured once in a process for each number of threads. With quick, so little is done that the
 * figures mean nothing. Without memory or threads NULL with a message on stderr.
 */
const limits *limits_of(int n_threads, bool quick);

/*
 * A short measurement of single limits, repeated in each round of a comparison, since on a shared machine they change from
 * second to second. The pool is borrowed until destroy. NULL without memory.
 */
typedef struct limits_probe limits_probe;
limits_probe *limits_probe_create(ca_pool *pool);
void limits_probe_destroy(limits_probe **probe);
double limits_probe_run(limits_probe *probe, limit kind);

#endif
