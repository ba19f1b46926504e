/* The machine's limits, measured: read bandwidth and arithmetic peaks, with which every figure is compared. */
#ifndef BENCH_SHARED_LIMITS_H
#define BENCH_SHARED_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkattn.h"
#include "chunkattn/base/threads.h"

/* The limits of n_threads together; 0 if the CPU has no such instruction. */
typedef struct limits {
    int n_threads;
    double read_gbs;                    /* memory */
    double fma_gflops, fma_avx2_gflops; /* f32: the widest vectors, 256 bits */
    double bf16_gflops, int8_gops;      /* dot products */
    double tiles_gflops;                /* products of bf16 tiles (AMX) */
    double int8_tiles_gops;             /* of int8 tiles */
} limits;

typedef struct limits_effort {
    size_t bytes; /* of memory to read */
    int64_t ms;   /* of one run of arithmetic */
} limits_effort;

/* Enough of both that figures are repeatable; with quick, so little that they mean nothing. */
limits_effort limits_default_effort(bool quick);

/* Measure the best of several runs. Without memory or threads false with a message on stderr. */
bool limits_measure(limits *limits, int n_threads, const limits_effort *effort);

/* The same with the default effort, measured once in a process for each number of threads. NULL as above. */
const limits *limits_of(int n_threads, bool quick);

/*
 * A short measurement of single limits, repeated in each round of a comparison, since on a shared machine they change from
 * second to second. The pool is borrowed until destroy. NULL without memory.
 */
typedef struct limits_probe limits_probe;
limits_probe *limits_probe_create(ca_pool *pool);
void limits_probe_destroy(limits_probe **probe);
double limits_probe_read(limits_probe *probe);
double limits_probe_peak(limits_probe *probe, const char *level, cattn_type kv_type);

/* The peak of the instruction that a kernel level computes with, in 1e9 operations/s; 0: none to compare with. */
double limits_peak(const limits *limits, const char *level, cattn_type kv_type);

#endif
