/*
 * The kernels over foreign pages: their bits are those of the same problem in chunks of the library's own, for every size and
 * layout of pages and in every shape of jobs.
 *
 *   test_pages [first seed [problems [d]]]
 */
#include <cstdio>
#include <cstdlib>

#include "chunkattn.h"
#include "problem.h"

namespace {

int run(const problem &p, memory &m, const char *family, int shape, int max_rows, std::mt19937_64 &rng) {
    const job_lists lists = make_jobs(p, shape, max_rows, 1 + (int)(rng() % 3), rng());
    return run_jobs(p, m, lists, attend_name(family, p), {rng(), 1 + (int)(rng() % 3), 0});
}

int check(const problem &p) {
    memory m(p);
    std::mt19937_64 rng(p.seed);
    int failures = run(p, m, "decode", SHAPE_RANDOM, 16, rng);
    const std::vector<uint32_t> own = output_bits(p, m);
    const struct {
        const char *family;
        int shape, max_rows;
    } runs[] = {{"decode_pages", SHAPE_CARRY, 32},
                {"decode_pages", SHAPE_RANDOM | SHAPE_CHAIN, 16},
                {"prefill_pages", SHAPE_RANDOM | SHAPE_CARRY, 64}};
    for (const auto &r : runs) {
        const int page_size = 16 << rng() % 4;
        add_pages(p, m, page_size, rng() % 2, rng());
        failures += run(p, m, r.family, r.shape, r.max_rows, rng);
        remove_pages(m);
        if (output_bits(p, m) == own) continue;
        printf("%s: other bits with pages of %d in shape %d\n", r.family, page_size, r.shape);
        failures++;
    }
    if (failures) printf("FAILED: %s\n", p.text().c_str());
    return failures;
}

} // namespace

int main(int argc, char **argv) {
    const uint64_t begin = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
    const int n = argc > 2 ? atoi(argv[2]) : 8, only = argc > 3 ? atoi(argv[3]) : 0;
    const int sizes[] = {64, 96, 128, 256};
    int failures = 0;
    for (uint64_t seed = begin; seed < begin + (uint64_t)n; seed++) {
        problem p = random_problem(seed, seed % 2 ? BF16 : F16, only ? only : sizes[seed / 2 % 4], 32, 700);
        if (seed % 3) p.out_type = CATTN_F32; /* a rounded output hides the last bits */
        failures += check(p);
    }
    printf("%d problems, %d failures\n", n, failures);
    return failures != 0;
}
