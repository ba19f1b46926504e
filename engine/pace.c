/* Follows the time of steps: see pace.h. */
#include "pace.h"

#include <stdbool.h>

/* Where nothing is known, a step begins with this many rows. */
static const double FIRST_ROWS = 32;

void cl_pace_init(cl_pace *p, double target_s, int32_t max_rows) {
    *p = (cl_pace){.target_s = target_s, .rows = target_s > 0 ? FIRST_ROWS : max_rows, .max_rows = max_rows};
}

int32_t cl_pace_rows(const cl_pace *p, int32_t n_decoding) {
    if (p->target_s <= 0 || n_decoding == 0 || p->rows + n_decoding >= p->max_rows) return (int32_t)p->max_rows;
    return n_decoding + (int32_t)p->rows;
}

static double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/*
 * A step takes t0 + c n for n rows. Scaling n by target / time converges to the n that takes the target time for every t0 below
 * it and every c: from either side, without overshooting. A step that had fewer rows than it might says nothing about more, but
 * that it was late.
 */
void cl_pace_learn(cl_pace *p, double seconds, int32_t n_decoding, int32_t n_prefill) {
    if (p->target_s <= 0 || n_decoding == 0 || n_prefill == 0) return;
    const double scaled = n_prefill * clamp(p->target_s / seconds, 0.5, 2);
    const bool full = n_prefill >= (int32_t)p->rows, late = seconds > p->target_s;
    if (full || late) p->rows = clamp(scaled, CL_PACE_MIN_ROWS, p->max_rows);
}
