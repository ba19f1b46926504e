/*
 * The prefill kernels by wgmma: their bits against those of the kernels by mma, in every shape of jobs, and against the
 * reference. In the emulation both sum alike; on a device this test passes only where `products` finds that they do.
 *
 *   test_wgmma [first seed [problems [d]]]
 */
#include "check.h"

static int check(const problem &p) {
    const int groups = p.d == 256 ? 1 : 2, most = groups * (64 / p.group * p.group); /* whole tokens for each warp group */
    return check_runs(p, {{"prefill", SHAPE_RANDOM, 64},
                          {"prefill_wgmma", 0, most},
                          {"prefill_wgmma", SHAPE_CHAIN, most},
                          {"prefill_wgmma", SHAPE_RANDOM | SHAPE_CARRY, most},
                          {"prefill_wgmma", SHAPE_RANDOM | SHAPE_CARRY | SHAPE_CHAIN, most}});
}

int main(int argc, char **argv) {
    const seed_range seeds(argc, argv, 8);
    int failures = 0;
    for (uint64_t seed = seeds.begin; seed < seeds.end; seed++) failures += check(bits_problem(seeds, seed, 64, 700, 150));
    printf("%d problems, %d failures\n", (int)(seeds.end - seeds.begin), failures);
    return failures != 0;
}
