/*
 * Random traffic of a small engine: sequences of a world join, fork, grow, shrink and leave, and each step's batch of block
 * tables is in one of the forms that cattn_pages_batch allows.
 */
#ifndef TESTS_CHUNKATTN_PAGES_TRAFFIC_H
#define TESTS_CHUNKATTN_PAGES_TRAFFIC_H

#include "engine.h"

enum { TRAFFIC_MAX_RUNNING = 12 };

typedef struct traffic {
    world w;
    rng r;
    engine e;
    engine_seq running[TRAFFIC_MAX_RUNNING];
    int n_running;
    int most_rows; /* of a sequence in a batch; 0: no limit */
} traffic;

/* A batch of all running sequences. The rows query_indptr[i] to query_indptr[i + 1] - 1 are the last tokens of sequence i. */
typedef struct traffic_batch {
    cattn_pages_batch is; /* refers to the arrays below */
    int32_t ids[TRAFFIC_MAX_RUNNING * ENGINE_MAX_TABLE], page_indptr[TRAFFIC_MAX_RUNNING + 1];
    int32_t query_indptr[TRAFFIC_MAX_RUNNING + 1], lengths[TRAFFIC_MAX_RUNNING], last_lens[TRAFFIC_MAX_RUNNING];
} traffic_batch;

/* The shape and options of a world, with enough pages for sequences of up to `longest` tokens. */
cattn_pages_config traffic_config(const world *w, int32_t page_size, int64_t longest);

/* The batch of all running sequences, with random numbers of rows. */
void traffic_make_batch(traffic *t, traffic_batch *b);

/* The position of a row of sequence i. */
int64_t traffic_position(const traffic *t, const traffic_batch *b, int i, int32_t row);

/* What happens between two steps. */
void traffic_change(traffic *t);

#endif
