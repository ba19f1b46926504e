/*
 * Failures that a plan requests, and a clock that it drives. At link time these functions take the place of malloc, calloc,
 * realloc, aligned_alloc, free, mprotect, cattn_step_end and cl_now.
 *
 * Failures happen only while faults are armed, which is while the engine's code runs and the simulation's own does not.
 */
#ifndef TESTS_SIM_FAULTS_H
#define TESTS_SIM_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fault_kind {
    FAULT_ALLOCATION, /* malloc, calloc, realloc or aligned_alloc returns NULL */
    FAULT_COMMIT,     /* mprotect fails: the system has no memory for a slab */
    FAULT_FORWARD,    /* the forward pass fails, and the step is aborted */
    FAULT_STEP_END,   /* cattn_step_end fails, and the step is aborted */
    FAULT_KINDS,
} fault_kind;

/* The n-th call of this kind from now on fails, and `times - 1` calls after it; replaces an earlier request. n = 0: none. */
void fault_request(fault_kind kind, int64_t n, int64_t times);

/* Count a call, and say whether it fails. */
bool fault_fires(fault_kind kind);

/* Start and stop counting and failing. */
void faults_arm(void);
void faults_disarm(void);

/* The number of calls that failed so far. */
int64_t faults_n_fired(void);

/* Allocations that were not freed. */
int64_t faults_n_allocated(void);

/* The virtual time, in seconds, which cl_now returns. */
extern double sim_time;

/* The seconds that a forward pass takes for each row. */
extern double sim_row_seconds;

#endif
