/*
 * The prefill kernels: against the reference, and their bits against those of the decode kernels, in every shape of jobs. A
 * prompt may be cut anywhere: rows of any tile have the bits of rows alone.
 *
 *   test_prefill [first seed [problems [d]]]
 */
#include "check.h"

static int check(const problem &p) {
    return check_runs(p, {{"decode", SHAPE_RANDOM, 16},
                          {"prefill", SHAPE_CHAIN, 64},
                          {"prefill", SHAPE_RANDOM | SHAPE_CARRY, 64},
                          {"prefill", SHAPE_RANDOM | SHAPE_CHAIN, 64}});
}

int main(int argc, char **argv) {
    const seed_range seeds(argc, argv, 6);
    int failures = 0;
    for (uint64_t seed = seeds.begin; seed < seeds.end; seed++) {
        const problem p = bits_problem(seeds, seed, 64, 700, 90);
        failures += check(p);
        failures += check(in_e4m3(p));
    }
    printf("%d problems, each in e4m3 as well: %d failures\n", (int)(seeds.end - seeds.begin), failures);
    return failures != 0;
}
