/*
 * What the tests of attention kernels have in common: a problem is run in several ways, whose bits must be the same. Inline,
 * since tests/chunkattn/cuda/device_run compiles these tests for a device, with a run_jobs of its own.
 */
#ifndef TESTS_CHUNKATTN_CUDA_KERNELS_CHECK_H
#define TESTS_CHUNKATTN_CUDA_KERNELS_CHECK_H

#include <cstdio>
#include <cstring>

#include "chunkattn.h"
#include "problem.h"

/* A family's kernel over jobs of one shape (job_shape), of at most max_rows rows each. */
struct kernel_run {
    const char *family; /* *_pages: the problem's K/V are copied into pages of a random size */
    int shape, max_rows;
};

/*
 * Run a problem in all these ways. The first one must agree with the reference, and the others must have its bits. Prints what
 * is wrong, and returns the number of failures.
 */
static inline int check_runs(const problem &p, const std::vector<kernel_run> &runs) {
    memory m(p);
    std::mt19937_64 rng(p.seed);
    std::vector<uint32_t> first;
    int failures = 0;
    for (const kernel_run &r : runs) {
        const bool pages = strstr(r.family, "_pages");
        if (pages) add_pages(p, m, 16 << rng() % 4, rng() % 2, rng());
        failures += run_shape(p, m, r.family, r.shape, r.max_rows, rng);
        if (pages) remove_pages(m);
        const std::vector<uint32_t> bits = output_bits(p, m);
        if (first.empty()) {
            const double worst = compare_with_reference(p, m);
            if (!(worst <= 1)) printf("error %g of what is allowed\n", worst), failures++;
            first = bits;
        }
        if (bits == first) continue;
        printf("%s in shape %d: other bits than %s\n", r.family, r.shape, runs[0].family);
        failures++;
    }
    if (failures) printf("FAILED: %s\n", p.text().c_str());
    return failures;
}

/*
 * A seed's problem for comparisons of bits. A rounded output hides the last bits, so most outputs are f32, and only wide scores
 * show in which order weights are summed. Half of the problems are prompts of up to max_prompt tokens, if that is not 0: each
 * of their rows must not see the later ones.
 */
static inline problem bits_problem(const seed_range &seeds, uint64_t seed, int max_rows, int max_tokens, int max_prompt) {
    problem p = seeds.make(seed, max_rows, max_tokens);
    if (seed % 3) p.out_type = CATTN_F32;
    if (seed % 5 < 2) p.how = WIDE_SCORES;
    if (max_prompt == 0 || (seed + seed / 8) % 2 == 0) return p;
    return prompt_problem(p, 1 + (int)(seed * 37 % (uint64_t)max_prompt), (int)(seed * 61 % (uint64_t)max_tokens));
}

#endif
