/*
 * The decode kernels: against the reference, and the bits of one problem in every shape of jobs, by cp.async and by bulk
 * copies.
 *
 *   test_decode [first seed [seeds [d]]]
 */
#include <cstdio>
#include <cstdlib>

#include "problem.h"

static int check(const problem &p) {
    const std::string kernels[] = {attend_name("decode", p), attend_name(p.e4m3 ? "decode" : "decode_bulk", p)};
    memory m(p);
    std::mt19937_64 rng(p.seed);
    std::vector<uint32_t> first;
    const struct {
        int shape, max_rows;
    } shapes[] = {
        {SHAPE_CARRY, 32}, {SHAPE_ALONE | SHAPE_CHAIN, 16}, {SHAPE_RANDOM | SHAPE_CARRY | SHAPE_CHAIN, 32}, {SHAPE_RANDOM, 16}};
    int failures = 0, n_run = (int)(p.seed / 8 % 2);
    for (const auto &s : shapes) {
        const job_lists lists = make_jobs(p, s.shape, s.max_rows, 1 + (int)(rng() % 4), rng());
        failures += run_jobs(p, m, lists, kernels[n_run++ % 2], {rng(), 1 + (int)(rng() % 3), 0});
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
    const uint64_t begin = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
    const int n = argc > 2 ? atoi(argv[2]) : 16, only = argc > 3 ? atoi(argv[3]) : 0;
    const int sizes[] = {64, 96, 128, 256};
    int failures = 0;
    for (uint64_t seed = begin; seed < begin + (uint64_t)n; seed++) {
        const problem p = random_problem(seed, seed % 2 ? BF16 : F16, only ? only : sizes[seed / 2 % 4], 32, 1400);
        failures += check(p);
        if (seed % 2) failures += check(in_e4m3(p));
    }
    printf("%d problems, half of them in e4m3, too: %d failures\n", n, failures);
    return failures != 0;
}
