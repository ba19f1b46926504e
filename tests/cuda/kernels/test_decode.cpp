/*
 * The decode kernels: against the reference, and the bits of one problem in every shape of jobs, by cp.async and by bulk
 * copies.
 *
 *   test_decode [first seed [seeds [d]]]
 */
#include <cstdio>

#include "problem.h"

static int check(const problem &p) {
    const char *const families[] = {"decode", p.e4m3 ? "decode" : "decode_bulk"};
    memory m(p);
    std::mt19937_64 rng(p.seed);
    std::vector<uint32_t> first;
    const struct {
        int shape, max_rows;
    } shapes[] = {
        {SHAPE_CARRY, 32}, {SHAPE_ALONE | SHAPE_CHAIN, 16}, {SHAPE_RANDOM | SHAPE_CARRY | SHAPE_CHAIN, 32}, {SHAPE_RANDOM, 16}};
    int failures = 0, n_run = (int)(p.seed / 8 % 2);
    for (const auto &s : shapes) {
        failures += run_shape(p, m, families[n_run++ % 2], s.shape, s.max_rows, rng);
        const std::vector<uint32_t> bits = output_bits(p, m);
        if (first.empty()) {
            const double worst = compare_with_reference(p, m);
            if (!(worst <= 1)) printf("error %g of what is allowed\n", worst), failures++;
            first = bits;
        } else if (bits != first) {
            printf("other bits in shape %d\n", s.shape);
            failures++;
        }
    }
    if (failures) printf("FAILED: %s\n", p.text().c_str());
    return failures;
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
