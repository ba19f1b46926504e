/*
 * The kernels over foreign pages: their bits are those of the same problem in chunks of the library's own, for every size and
 * layout of pages and in every shape of jobs.
 *
 *   test_pages [first seed [problems [d]]]
 */
#include <cstdio>

#include "chunkattn.h"
#include "problem.h"

namespace {

int check(const problem &p) {
    memory m(p);
    std::mt19937_64 rng(p.seed);
    int failures = run_shape(p, m, "decode", SHAPE_RANDOM, 16, rng);
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
        failures += run_shape(p, m, r.family, r.shape, r.max_rows, rng);
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
    const seed_range seeds(argc, argv, 8);
    int failures = 0;
    for (uint64_t seed = seeds.begin; seed < seeds.end; seed++) {
        problem p = seeds.make(seed, 32, 700);
        if (seed % 3) p.out_type = CATTN_F32; /* a rounded output hides the last bits */
        failures += check(p);
    }
    printf("%d problems, %d failures\n", (int)(seeds.end - seeds.begin), failures);
    return failures != 0;
}
