/* Follows the time of steps: see pace.h. */
#include "pace.h"

#include <stdbool.h>

/* Where nothing is known, a step begins with this many rows. */
static const double FIRST_ROWS = 32;
/* The least target, over the time of decoding alone. */
static const double LEAST_OVER_DECODING = 1.25;

void cl_pace_init(cl_pace *p, double target_s, int32_t max_rows) {
    *p = (cl_pace){.target_s = target_s, .rows = target_s > 0 ? FIRST_ROWS : max_rows, .max_rows = max_rows};
}

int32_t cl_pace_rows(const cl_pace *p, int32_t n_decoding) {
    if (p->target_s <= 0 || n_decoding == 0) return (int32_t)p->max_rows;
    if (p->n_mixed >= CL_PACE_MOST_MIXED) return n_decoding;
    return p->rows + n_decoding < p->max_rows ? n_decoding + (int32_t)p->rows : (int32_t)p->max_rows;
}

static double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* The last steps without prefill count most, but a single slow one cannot double the time. */
static void learn_decoding(cl_pace *p, double seconds) {
    if (p->decode_s > 0)
        p->decode_s += (clamp(seconds, 0, 2 * p->decode_s) - p->decode_s) / 2;
    else
        p->decode_s = seconds;
    p->n_mixed = 0;
}

/*
 * A step takes t0 + c n for n rows. Scaling n by target / time converges to the n that takes the target time for every t0 below
 * it and every c: from either side, without overshooting. A step that had fewer rows than it might says nothing about more, but
 * that it was late.
 */
void cl_pace_learn(cl_pace *p, double seconds, int32_t n_decoding, int32_t n_prefill) {
    if (p->target_s <= 0 || n_decoding == 0) return;
    if (n_prefill == 0) {
        learn_decoding(p, seconds);
        return;
    }
    p->n_mixed++;
    const double least = LEAST_OVER_DECODING * p->decode_s, target = p->target_s > least ? p->target_s : least;
    const bool full = n_prefill >= (int32_t)p->rows, late = seconds > target;
    const double n = full ? p->rows : n_prefill; /* a fraction of a row counts, or one row would never become two */
    if (full || late) p->rows = clamp(n * clamp(target / seconds, 0.5, 2), CL_PACE_MIN_ROWS, p->max_rows);
}
