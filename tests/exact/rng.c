/* A small deterministic generator for tests (SplitMix64). */
#include "rng.h"

uint64_t rng_next(rng *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t rng_range(rng *r, int64_t low, int64_t high) { return low + (int64_t)(rng_next(r) % (uint64_t)(high - low + 1)); }

bool rng_chance(rng *r, int one_in) { return rng_next(r) % (uint64_t)one_in == 0; }
