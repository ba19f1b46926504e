/* Sorts requests in lexical order: neighbours then have the longest common prefixes, so one pass finds the shared tokens of
 * each. */
#include "shared_tokens.h"

#include <stdlib.h>

static int compare(const void *a, const void *b) {
    const cl_token_list *x = a, *y = b;
    for (size_t i = 0; i < x->n && i < y->n; i++)
        if (x->ids[i] != y->ids[i]) return x->ids[i] < y->ids[i] ? -1 : 1;
    return (x->n > y->n) - (x->n < y->n);
}

static size_t common(const cl_token_list *x, const cl_token_list *y) {
    size_t i = 0;
    while (i < x->n && i < y->n && x->ids[i] == y->ids[i]) i++;
    return i;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* between[i]: the number of tokens that requests i - 1 and i have in common, 0 at both ends. In lexical order no other request
 * has more in common with them. */
static size_t shared_of(const size_t *between, size_t i) { return larger(between[i], between[i + 1]); }

static size_t count_prompts(const size_t *between, size_t n) {
    size_t n_prompts = 0;
    bool in_group = false;
    for (size_t i = 1; i < n; i++) {
        const size_t most = larger(shared_of(between, i - 1), shared_of(between, i));
        const bool same = between[i] > 0 && between[i] * 10 >= most * 9;
        n_prompts += same && !in_group;
        in_group = same;
    }
    return n_prompts;
}

bool shared_tokens_count(cl_token_list *requests, size_t n, shared_tokens *result) {
    *result = (shared_tokens){.n_requests = n};
    size_t *between = calloc(n + 1, sizeof *between);
    if (!between) return false;
    qsort(requests, n, sizeof *requests, compare);
    for (size_t i = 1; i < n; i++) between[i] = common(&requests[i - 1], &requests[i]);
    double sum = 0, length = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t shared = shared_of(between, i);
        result->n_distinct += i == 0 || compare(&requests[i - 1], &requests[i]) != 0;
        result->maximum = larger(result->maximum, shared);
        sum += (double)shared;
        length += (double)requests[i].n;
    }
    result->n_prompts = count_prompts(between, n);
    if (n) result->average = sum / (double)n;
    if (n) result->average_length = length / (double)n;
    free(between);
    return true;
}
