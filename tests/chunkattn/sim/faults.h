/*
 * Failures that a plan requests, and a clock that it drives. At link time these functions take the place of malloc, calloc,
 * realloc, aligned_alloc, free, mprotect, cattn_step_end, cl_now and clock_gettime.
 *
 * Failures happen only while faults are armed, which is while the engine's code runs and the simulation's own does not. Those
 * of the file tier's disk and thread happen at any time.
 */
#ifndef TESTS_CHUNKATTN_SIM_FAULTS_H
#define TESTS_CHUNKATTN_SIM_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fault_kind {
    FAULT_ALLOCATION,  /* malloc, calloc, realloc or aligned_alloc returns NULL */
    FAULT_COMMIT,      /* mprotect fails: the system has no memory for a slab */
    FAULT_FORWARD,     /* the forward pass fails, and the step is aborted */
    FAULT_STEP_END,    /* cattn_step_end fails, and the step is aborted */
    FAULT_OPEN,        /* the tier's file cannot be opened, locked, measured or resized; the first of the disk's kinds */
    FAULT_READ,        /* a read returns EIO */
    FAULT_WRITE,       /* a write returns EIO, and some of it has been written */
    FAULT_FULL,        /* a write returns ENOSPC */
    FAULT_SHORT,       /* a read or write transfers less than it was given */
    FAULT_INTERRUPT,   /* a read or write returns EINTR */
    FAULT_LYING_READ,  /* a read returns wrong bytes, and success */
    FAULT_LYING_WRITE, /* a write writes nothing, a part, wrong bytes or elsewhere, and returns success */
    FAULT_STALL,       /* an I/O thread stops for a while, in a call or before it locks a mutex */
    FAULT_THREAD,      /* an I/O thread cannot be started */
    FAULT_KINDS,
} fault_kind;

/* The n-th call of this kind from now on fails, and `times - 1` calls after it; replaces an earlier request. n = 0: none. */
void fault_request(fault_kind kind, int64_t n, int64_t times);

/* Count a call, and say whether it fails. */
bool fault_fires(fault_kind kind);

/* Start and stop counting and failing. faults_disarm: whether faults were armed. */
void faults_arm(void);
bool faults_disarm(void);

/* The number of calls that failed so far: of the engine's, which excuses errors, and of the disk's kinds, which does not. */
int64_t faults_n_fired(void);
int64_t faults_n_fired_disk(void);

/* Allocations that were not freed, and all of them. */
int64_t faults_n_allocated(void);
int64_t faults_n_allocations(void);

/* The virtual time, in seconds, which cl_now returns, and by how much of it the plan has made the clock jump. */
extern double sim_time, sim_jumped;

/* The virtual time without jumps, which clock_gettime returns. */
double sim_steady_time(void);

/* The real time. */
double real_seconds(void);

/* The seconds that a forward pass takes for each row. */
extern double sim_row_seconds;

#endif
