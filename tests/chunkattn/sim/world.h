/*
 * Runs a plan: it submits, cancels and fails what the plan says, drives the scheduler step by step, and checks after each that
 * nothing is wrong.
 */
#ifndef TESTS_CHUNKATTN_SIM_WORLD_H
#define TESTS_CHUNKATTN_SIM_WORLD_H

#include "plan.h"

/* What runs did, summed up. It may be in memory that processes share. */
typedef struct world_counts {
    int64_t engines, steps, rows, requests, refused, events, cancelled, errors, preemptions, faults, drafts_accepted,
        cached_tokens, evicted_tokens, restarts;
    int64_t restored_tokens, records_written, records_refused, disk_faults; /* of the file tier */
    int64_t longest_wait; /* steps of the request that took longest in relation to its bound, in thousandths of it */
    int64_t largest_lead; /* of a tenant's counter before a waiting one's, in thousandths of its bound */
} world_counts;

/* Ends with plan_fail when something is wrong. */
void world_run(const plan *p, world_counts *counts);

#endif
