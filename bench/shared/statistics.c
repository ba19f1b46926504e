/* Paired timing of two ways to do the same work: see statistics.h. */
#include "statistics.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "bench/loadgen/quantiles.h"
#include "chunkattn/base/clock.h"

/* Index of the interval's lower end among n sorted ratios: the rank (n - 1.96 sqrt(n)) / 2 counts from 1. */
static int lower_index(int n) {
    const int rank = (int)floor((n - 1.96 * sqrt(n)) / 2);
    return rank > 1 ? rank - 1 : 0;
}

paired_ratio paired_evaluate(const paired *p) {
    double sorted[PAIRED_MAX_ROUNDS];
    paired_ratio r = {.n = p->n};
    for (int way = 0; way < 2; way++) {
        memcpy(sorted, p->seconds[way], (size_t)p->n * sizeof *sorted);
        r.seconds[way] = load_median(sorted, (size_t)p->n);
    }
    for (int i = 0; i < p->n; i++) sorted[i] = p->seconds[PAIRED_A][i] / p->seconds[PAIRED_B][i];
    r.ratio = load_median(sorted, (size_t)p->n);
    r.low = sorted[lower_index(p->n)];
    r.high = sorted[p->n - 1 - lower_index(p->n)];
    return r;
}

/* Looks only now and then, since it sorts all rounds. */
static bool is_reached(const paired *p, const paired_goal *goal) {
    enum { EVERY = 10 };
    if (p->n < goal->min_rounds || p->n % EVERY != 0) return false;
    const paired_ratio r = paired_evaluate(p);
    return r.high - r.ratio <= goal->precision && r.ratio - r.low <= goal->precision;
}

/* The same orders in every run. */
static bool random_bit(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 63;
}

/* The interval's width falls with the square root of the rounds. Later parts have at least as many as the average before. */
paired_goal paired_goal_of_part(const paired_goal *goal, const paired *p, int i, int n) {
    return (paired_goal){.precision = goal->precision * sqrt((double)n / (i + 1)),
                         .cap = goal->cap / n,
                         .min_rounds = p->n + (i > 0 ? p->n / i : (goal->min_rounds + n - 1) / n)};
}

bool paired_measure(paired *p, const paired_goal *goal, paired_work *work, void *ctx) {
    const double end = clock_seconds() + goal->cap;
    uint64_t state = (uint64_t)p->n + 1;
    while (p->n < PAIRED_MAX_ROUNDS && !is_reached(p, goal)) {
        const bool b_first = random_bit(&state);
        for (int i = 0; i < 2; i++) {
            const paired_way way = (i == 0) == b_first ? PAIRED_B : PAIRED_A;
            if (!work(ctx, way, &p->seconds[way][p->n])) return false;
        }
        p->n++;
        if (clock_seconds() >= end) break;
    }
    return true;
}
