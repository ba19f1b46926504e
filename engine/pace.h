/*
 * The rows of a step, so that it ends within a target time while choices decode: from the measured times of earlier steps it
 * follows what a row costs now, as sequences grow and prompts get deeper. Pure arithmetic.
 */
#ifndef ENGINE_PACE_H
#define ENGINE_PACE_H

#include <stdint.h>

enum { CL_PACE_MIN_ROWS = 8 }; /* rows of prefill that a step may always compute, so that prompts progress */

typedef struct cl_pace {
    double target_s; /* 0: no target */
    double rows;     /* of prefill, that a step may compute */
    double max_rows;
} cl_pace;

void cl_pace_init(cl_pace *p, double target_s, int32_t max_rows);

/* Most rows of a step in which n_decoding choices decode; at most max_rows. */
int32_t cl_pace_rows(const cl_pace *p, int32_t n_decoding);

/* Learn from a step of n_prefill rows of prefill beside n_decoding choices. */
void cl_pace_learn(cl_pace *p, double seconds, int32_t n_decoding, int32_t n_prefill);

#endif
