/* One step of a world's run on a cache of the CPU. Included where a program runs worlds through the public calls. */
#ifndef TESTS_CHUNKATTN_EXACT_WORLD_STEP_H
#define TESTS_CHUNKATTN_EXACT_WORLD_STEP_H

#include "world_run.h"

typedef struct world_cpu_run {
    world_run t;
    void (*before)(struct world_cpu_run *x); /* called before each step; may be NULL */
    float *q, *k, *v, *out, *lse;            /* rows of a step */
    int64_t rows_capacity, n_rows;           /* rows of the last step */
} world_cpu_run;

/* One step over all runners with tokens to compute. ctx: a world_cpu_run. */
void world_cpu_step(void *ctx);

/* Free the rows. */
void world_cpu_free(world_cpu_run *x);

#endif
