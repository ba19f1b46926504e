/* A small deterministic generator for tests (SplitMix64). */
#ifndef TESTS_EXACT_RNG_H
#define TESTS_EXACT_RNG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

uint64_t rng_next(rng *r);
/* Uniform in [low, high]. */
int64_t rng_range(rng *r, int64_t low, int64_t high);
bool rng_chance(rng *r, int one_in);

#endif
