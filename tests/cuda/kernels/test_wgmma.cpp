/*
 * The prefill kernels by wgmma: their bits against those of the kernels by mma, in every shape of jobs, and against the
 * reference. In the emulation both sum alike; on a device this test passes only where `products` finds that they do.
 *
 *   test_wgmma [first seed [problems [d]]]
 */
#include <cstdio>

#include "chunkattn.h"
#include "problem.h"

namespace {

int check(const problem &p) {
    memory m(p);
    std::mt19937_64 rng(p.seed);
    int failures = run_shape(p, m, "prefill", SHAPE_RANDOM, 64, rng);
    const std::vector<uint32_t> by_mma = output_bits(p, m);
    const int most = 64 / p.group * p.group, groups = p.d == 256 ? 1 : 2; /* of each warp group, whole tokens */
    for (const int shape : {0, (int)SHAPE_CHAIN, SHAPE_RANDOM | SHAPE_CARRY, SHAPE_RANDOM | SHAPE_CARRY | SHAPE_CHAIN}) {
        failures += run_shape(p, m, "prefill_wgmma", shape, most * groups, rng);
        if (output_bits(p, m) == by_mma) continue;
        printf("other bits than by mma, in shape %d\n", shape);
        failures++;
    }
    const double worst = compare_with_reference(p, m);
    if (!(worst <= 1)) printf("error %g of what is allowed\n", worst), failures++;
    if (failures) printf("FAILED: %s\n", p.text().c_str());
    return failures;
}

} // namespace

int main(int argc, char **argv) {
    const seed_range seeds(argc, argv, 8);
    int failures = 0;
    for (uint64_t seed = seeds.begin; seed < seeds.end; seed++) {
        problem p = seeds.make(seed, 64, 1100);
        if (seed % 3) p.out_type = CATTN_F32;  /* a rounded output hides the last bits */
        if (seed % 5 < 2) p.how = WIDE_SCORES; /* nothing else shows in which order weights are summed */
        if (seed % 4 > 1)                      /* a prompt: each row must not see the later ones */
            p = prompt_problem(p, 1 + (int)(seed * 37 % 150), (int)(seed * 61 % 900));
        failures += check(p);
    }
    printf("%d problems, %d failures\n", (int)(seeds.end - seeds.begin), failures);
    return failures != 0;
}
