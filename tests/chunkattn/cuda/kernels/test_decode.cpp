/*
 * The decode kernels: against the reference, and the bits of one problem in every shape of jobs.
 *
 *   test_decode [first seed [seeds [d]]]
 */
#include "check.h"

static int check(const problem &p) {
    return check_runs(p, {{"decode", SHAPE_CARRY, 32},
                          {"decode", SHAPE_ALONE | SHAPE_CHAIN, 16},
                          {"decode", SHAPE_RANDOM | SHAPE_CARRY | SHAPE_CHAIN, 32},
                          {"decode", SHAPE_RANDOM, 16}});
}

int main(int argc, char **argv) {
    const seed_range seeds(argc, argv, 16);
    int failures = 0;
    for (uint64_t seed = seeds.begin; seed < seeds.end; seed++) {
        const problem p = seeds.make(seed, 32, 1400);
        failures += check(p);
        if (seed % 2) failures += check(in_e4m3(p));
    }
    printf("%d problems, half of them in e4m3 as well: %d failures\n", (int)(seeds.end - seeds.begin), failures);
    return failures != 0;
}
