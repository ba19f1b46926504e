/*
 * Paired timing: two ways to do the same work are timed in pairs until the ratio of their times is precise enough.
 *
 * A round times both, in random order, one directly after the other, so that what disturbs the machine for longer than a round
 * disturbs both. The ratio is the median of the rounds' ratios. Its 95 % interval is that of the sign test: from the rank
 * (n - 1.96 sqrt(n)) / 2 from below to the same rank from above, of n sorted ratios. It assumes no distribution, so a few
 * disturbed rounds do not widen it. It assumes that rounds are independent: an influence that lasts for the whole measurement,
 * such as where memory lies, shifts the ratio and is not in the interval. Repeat the setup in parts where that matters.
 *
 * Rounds end when the interval is narrow enough. A rule that looks at the data raises the rate at which intervals miss the true
 * ratio, but this one looks at the width alone, not at the side on which the ratio lies, and the ranks are rounded outwards: in
 * simulations with normal and heavy-tailed noise, 1 to 6 % of intervals miss it.
 */
#ifndef BENCH_SHARED_STATISTICS_H
#define BENCH_SHARED_STATISTICS_H

#include <stdbool.h>

enum { PAIRED_LEAST_ROUNDS = 6, PAIRED_MAX_ROUNDS = 4000 }; /* fewer rounds have no 95 % interval */

typedef enum paired_way { PAIRED_A, PAIRED_B } paired_way;

/* Do the work once in one of the two ways. False, with a message on stderr, ends the measurement. */
typedef bool paired_work(void *ctx, paired_way way, double *seconds);

/* Rounds so far; begins as {0}. */
typedef struct paired {
    int n;
    double seconds[2][PAIRED_MAX_ROUNDS];
} paired;

/* The median time of each way in seconds, the median of time A / time B, and the ends of its interval. */
typedef struct paired_ratio {
    int n;
    double seconds[2], ratio, low, high;
} paired_ratio;

/* When to stop: once both ends of the interval are within `precision` of the ratio, but not before min_rounds, and after
 * `cap` seconds in any case. It is checked every ten rounds. */
typedef struct paired_goal {
    double precision, cap;
    int min_rounds;
} paired_goal;

/* Add rounds until the goal is reached. False if the work failed. */
bool paired_measure(paired *p, const paired_goal *goal, paired_work *work, void *ctx);

/* The goal of part i of n, of which each has its own setup and adds rounds to the same pairs. All parts have about the same
 * number of rounds and the same part of the cap, so that none of the setups decides the ratio alone. */
paired_goal paired_goal_of_part(const paired_goal *goal, const paired *p, int i, int n);

/* n >= 1 rounds must have been added. */
paired_ratio paired_evaluate(const paired *p);

#endif
