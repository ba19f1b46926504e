/* Follows the time of steps: see pace.h. */
#include "pace.h"

#include <math.h>
#include <stdbool.h>

/* Where nothing is known, a step begins with this many rows. */
static const double FIRST_ROWS = 32;
/* Over the time of decoding alone: the least target beside a time that is set, and otherwise what a prompt may add. */
static const double LEAST_TARGET = 1.25, EACH_PROMPT = 2;

void cl_pace_init(cl_pace *p, double target_s, int32_t max_rows) {
    *p = (cl_pace){.target_s = target_s, .rows = FIRST_ROWS, .max_rows = max_rows};
}

/* The prompts for which rows are granted: to a time that is set their number is nothing. */
static double granted(const cl_pace *p, int32_t n_prompts) { return p->target_s > 0 ? 1 : n_prompts; }

static double target(const cl_pace *p, int32_t n_prompts) {
    return p->target_s > 0 ? fmax(p->target_s, LEAST_TARGET * p->decode_s) : (1 + EACH_PROMPT * n_prompts) * p->decode_s;
}

/* Whether what was timed says nothing about the step of n choices. */
static bool is_untimed(const cl_pace *p, int32_t n) { return n > 2 * p->n_timed || 2 * n < p->n_timed; }

int32_t cl_pace_rows(const cl_pace *p, int32_t n_decoding, int32_t n_prompts) {
    if (p->target_s == 0 || n_decoding == 0) return (int32_t)p->max_rows;
    if (p->n_mixed >= CL_PACE_MOST_MIXED || is_untimed(p, n_decoding)) return n_decoding;
    const double rows = p->rows * granted(p, n_prompts) + n_decoding;
    return (int32_t)(rows < p->max_rows ? rows : p->max_rows);
}

static double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

/* The time that a step has for the rows of one prompt. */
static double room(const cl_pace *p) { return target(p, 1) - p->decode_s; }

/*
 * The last steps without prefill count most, but a single slow one cannot double the time. With the time changes what it leaves
 * for rows, whether the number of choices has changed at once or little by little.
 */
static void learn_decoding(cl_pace *p, double seconds, int32_t n_decoding) {
    const double before = room(p);
    if (is_untimed(p, n_decoding))
        p->decode_s = seconds;
    else
        p->decode_s += (clamp(seconds, 0, 2 * p->decode_s) - p->decode_s) / 2;
    if (p->n_timed > 0) p->rows = clamp(p->rows * room(p) / before, CL_PACE_MIN_ROWS, p->max_rows);
    p->n_timed = n_decoding;
    p->n_mixed = 0;
}

/*
 * A step takes t0 + c n for n rows. Scaling n by target / time converges to the n that takes the target time for every t0 below
 * it and every c: from either side, without overshooting. A step that had fewer rows than it might says nothing about more, but
 * that it was late.
 */
void cl_pace_learn(cl_pace *p, double seconds, int32_t n_decoding, int32_t n_prompts, int32_t n_prefill) {
    if (p->target_s == 0 || n_decoding == 0) return;
    seconds = fmax(seconds, 1e-9); /* a clock may stand still, or go back */
    if (n_prefill == 0) {
        learn_decoding(p, seconds, n_decoding);
        return;
    }
    p->n_mixed++;
    const double n_granted = granted(p, n_prompts), target_s = target(p, n_prompts);
    const bool full = n_prefill >= (int32_t)(p->rows * n_granted), late = seconds > target_s;
    const double n = full ? p->rows : n_prefill / n_granted; /* a fraction of a row counts, or one row would never become two */
    if (full || late) p->rows = clamp(n * clamp(target_s / seconds, 0.5, 2), CL_PACE_MIN_ROWS, p->max_rows);
}
