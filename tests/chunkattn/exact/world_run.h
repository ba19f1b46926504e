/*
 * Running a world's sequences: they join in random order, are stepped until each has all its tokens, and are forked, truncated
 * and removed at random. The caller provides the cache and the step. Failed checks are printed and counted.
 */
#ifndef TESTS_CHUNKATTN_EXACT_WORLD_RUN_H
#define TESTS_CHUNKATTN_EXACT_WORLD_RUN_H

#include <stdio.h>

#include "world.h"

extern int world_failures;

#define CHECK(condition, ...)                                                                                                  \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            printf("FAILED %s:%d: %s: ", __FILE__, __LINE__, #condition);                                                      \
            printf(__VA_ARGS__);                                                                                               \
            printf("\n");                                                                                                      \
            world_failures++;                                                                                                  \
        }                                                                                                                      \
    } while (0)

enum { WORLD_MAX_RUNNERS = 2 * WORLD_MAX_SEQS };

/* A way to run a world. */
typedef struct world_variant {
    const char *name;
    cattn_sharing sharing;
    cattn_retention retention;
    int threads;
    int64_t piece;   /* most rows of a sequence in a step; 0: random */
    bool one_by_one; /* each sequence alone: the next joins when the previous one has left */
    bool events;     /* forks, truncations, aborted steps, early leaves, row limits */
    bool expected;   /* fill in the expected results instead of comparing */
} world_variant;

/*
 * How often something happens after a step: with a probability of 1 / rate, for each sequence, or for `drop` in each step. Only
 * `drop` may be 0: never.
 */
typedef struct world_rates {
    int append_many, most_appended; /* more than one token at a time, and the most */
    int fork, truncate, leave, drop;
} world_rates;

/* A running copy of a world's sequence. */
typedef struct world_runner {
    cattn_seq seq;
    world_seq *is;
    int64_t length; /* tokens in the cache */
} world_runner;

typedef struct world_run {
    world *w;
    const world_variant *how;
    const world_rates *rates;
    cattn_cache *cache; /* borrowed */
    rng r;
    int n_runners;
    world_runner runners[WORLD_MAX_RUNNERS];
    int64_t rows_compared;
} world_run;

/* Start a run: its random numbers follow from the world's seed and the variant. */
world_run world_run_of(world *w, const world_variant *how, const world_rates *rates);

/* Run all sequences until they have left. `step` computes one step over all runners; ctx is passed to it. */
void world_run_all(world_run *t, void (*step)(void *ctx), void *ctx);

/* Store a row's result as the expected one, or compare it with that bit by bit. out [n_heads][head_dim_v], lse [n_heads]. */
void world_take_row(world_run *t, world_seq *s, int64_t position, int layer, const float *out, const float *lse);

/* Allocate the sequences' expected results, which world_free frees. */
void world_new_results(world *w);

#endif
