/*
 * The prefill kernels: against the reference, and their bits against those of the decode kernels, in every shape of jobs, by
 * cp.async and by bulk copies. A prompt may be cut anywhere: rows of any tile have the bits of rows alone.
 *
 *   test_prefill [first seed [problems [d]]]
 */
#include <cstdio>

#include "chunkattn.h"
#include "problem.h"

namespace {

int check(const problem &p) {
    memory m(p);
    std::mt19937_64 rng(p.seed);
    int failures = run_shape(p, m, "decode", SHAPE_RANDOM, 16, rng);
    const std::vector<uint32_t> decoded = output_bits(p, m);
    int n_run = (int)(p.seed / 2 % 2);
    for (const int shape : {(int)SHAPE_CHAIN, SHAPE_RANDOM | SHAPE_CARRY, SHAPE_RANDOM | SHAPE_CHAIN}) {
        failures += run_shape(p, m, n_run++ % 2 && !p.e4m3 ? "prefill_bulk" : "prefill", shape, 64, rng);
        if (output_bits(p, m) == decoded) continue;
        printf("other bits than decode, in shape %d\n", shape);
        failures++;
    }
    const double worst = compare_with_reference(p, m);
    if (!(worst <= 1)) printf("error %g of what is allowed\n", worst), failures++;
    if (failures) printf("FAILED: %s\n", p.text().c_str());
    return failures;
}

} // namespace

int main(int argc, char **argv) {
    const seed_range seeds(argc, argv, 6);
    int failures = 0;
    for (uint64_t seed = seeds.begin; seed < seeds.end; seed++) {
        problem p = seeds.make(seed, 64, 700);
        if (seed % 3) p.out_type = CATTN_F32;  /* a rounded output hides the last bits */
        if (seed % 5 < 2) p.how = WIDE_SCORES; /* nothing else shows in which order weights are summed */
        if (seed % 2)                          /* a prompt: each row must not see the later ones */
            p = prompt_problem(p, 1 + (int)(seed * 37 % 90), (int)(seed * 61 % 700));
        failures += check(p);
        failures += check(in_e4m3(p));
    }
    printf("%d problems, each in e4m3 as well: %d failures\n", (int)(seeds.end - seeds.begin), failures);
    return failures != 0;
}
