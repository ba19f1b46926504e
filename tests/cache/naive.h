/* The matching rule without a tree: what a list of token lists must give. */
#ifndef TESTS_CACHE_NAIVE_H
#define TESTS_CACHE_NAIVE_H

#include <stdint.h>

/* Leading tokens that a and b have in common, rounded down to even. */
static inline int64_t naive_common(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b) {
    int64_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n]) n++;
    return n & ~(int64_t)1;
}

/*
 * Tokens to compute for prompts that join in this order, all kept: each without the longest match among those before it,
 * which ends at an even position before the last token.
 */
static inline int64_t naive_computed(const int32_t *const *prompts, const int64_t *lengths, int n_prompts) {
    int64_t sum = 0;
    for (int i = 0; i < n_prompts; i++) {
        int64_t longest = 0;
        for (int j = 0; j < i; j++) {
            const int64_t n = naive_common(prompts[j], lengths[j], prompts[i], lengths[i] - 1);
            if (n > longest) longest = n;
        }
        sum += lengths[i] - longest;
    }
    return sum;
}

#endif
