/*
 * The kernels over foreign pages: their bits are those of the same problem in chunks of the library's own, for every size and
 * layout of pages and in every shape of jobs.
 *
 *   test_pages [first seed [problems [d]]]
 */
#include "check.h"

int main(int argc, char **argv) {
    const seed_range seeds(argc, argv, 8);
    int failures = 0;
    for (uint64_t seed = seeds.begin; seed < seeds.end; seed++)
        failures += check_runs(bits_problem(seeds, seed, 32, 700, 0), {{"decode", SHAPE_RANDOM, 16},
                                                                       {"decode_pages", SHAPE_CARRY, 32},
                                                                       {"decode_pages", SHAPE_RANDOM | SHAPE_CHAIN, 16},
                                                                       {"prefill_pages", SHAPE_RANDOM | SHAPE_CARRY, 64}});
    printf("%d problems, %d failures\n", (int)(seeds.end - seeds.begin), failures);
    return failures != 0;
}
