/* A small deterministic random generator for tests (SplitMix64): the same seed gives the same numbers on every machine. */
#ifndef TESTS_SUPPORT_RNG_H
#define TESTS_SUPPORT_RNG_H

#include <stdbool.h>
#include <stdint.h>

/* Any value of `state` is a valid seed. */
typedef struct rng {
    uint64_t state;
} rng;

static inline uint64_t rng_next(rng *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint32_t rng_u32(rng *r) { return (uint32_t)(rng_next(r) >> 32); }

/* Uniform in [low, high]. */
static inline int64_t rng_range(rng *r, int64_t low, int64_t high) {
    return low + (int64_t)(rng_next(r) % (uint64_t)(high - low + 1));
}

/* Uniform in [0, n). */
static inline int32_t rng_below(rng *r, int32_t n) { return (int32_t)((uint64_t)rng_u32(r) * (uint32_t)n >> 32); }

/* Uniform in [-1, 1). */
static inline float rng_float(rng *r) { return (float)(int32_t)rng_u32(r) * 0x1p-31f; }

/* True once in `one_in` calls on average. */
static inline bool rng_chance(rng *r, int one_in) { return rng_next(r) % (uint64_t)one_in == 0; }

#endif
