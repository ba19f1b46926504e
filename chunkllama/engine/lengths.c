/* The histogram of completions' lengths: see lengths.h. */
#include "lengths.h"

/* What is left of a completion's weight when another one is added: the last hundred or so count. */
static const double DECAY = 0.99;
/* The smallest weight of completions that an estimate rests on. */
static const double ENOUGH = 0.5;

static int bucket_of(int64_t n_tokens) {
    int b = 0;
    while (b < CL_LENGTHS_BUCKETS - 1 && n_tokens >> (b + 1) > 0) b++;
    return b;
}

void cl_lengths_add(cl_lengths *l, int64_t n_tokens) {
    for (int b = 0; b < CL_LENGTHS_BUCKETS; b++) {
        l->n[b] *= DECAY;
        l->sum[b] *= DECAY;
    }
    const int b = bucket_of(n_tokens);
    l->n[b]++;
    l->sum[b] += (double)n_tokens;
}

/* Add the completions of bucket b that are longer than k, as if its lengths were spread evenly around their mean. */
static void add_longer(const cl_lengths *l, int b, double k, double *n, double *sum) {
    if (l->n[b] <= 0) return;
    const double low = (double)(INT64_C(1) << b), mean = l->sum[b] / l->n[b], reach = 2 * mean - low;
    const double high = reach < 2 * low - 1 ? reach : 2 * low - 1;
    if (k >= high) return;
    const double part = k < low ? 1 : (high - k) / (high - low);
    *n += part * l->n[b];
    *sum += part * l->n[b] * (k < low ? mean : (k + high) / 2);
}

double cl_lengths_left(const cl_lengths *l, int64_t n_tokens, double unknown) {
    double n = 0, sum = 0;
    for (int b = bucket_of(n_tokens); b < CL_LENGTHS_BUCKETS; b++) add_longer(l, b, (double)n_tokens, &n, &sum);
    return n < ENOUGH ? unknown : sum / n - (double)n_tokens;
}
