/*
 * The rows of a step, so that it ends within a target time while choices decode: from the measured times of earlier steps it
 * follows what a row costs now, as sequences grow and prompts get deeper. Pure arithmetic.
 *
 * The target is a time. Where decoding alone takes that time or nearly so, the target is a quarter more than decoding takes, so
 * that prompts progress. If target_itl_s is negative, each prompt may add twice what decoding takes: a prompt alone makes steps
 * three times as long, and many prompts beside few choices, which would decode alone for most of the time, cost little
 * throughput. Decoding is timed in steps without rows of prefill; while prompts are computed, one step now and then has none,
 * and so has the next one when the number of choices has doubled or halved.
 *
 * A fixed number of rows that keeps the same target takes 1.2 to 2 times as long for a prompt of 16,384 tokens
 * (docs/experiments.md, "Scheduling").
 */
#ifndef CHUNKLLAMA_ENGINE_PACE_H
#define CHUNKLLAMA_ENGINE_PACE_H

#include <stdint.h>

enum { CL_PACE_MIN_ROWS = 1 };    /* rows of prefill that a step may compute, whatever they take */
enum { CL_PACE_MOST_MIXED = 32 }; /* consecutive steps with rows of prefill */

typedef struct cl_pace {
    double target_s; /* 0: none; negative: by what decoding takes */
    double decode_s; /* time of steps without prefill */
    int32_t n_timed; /* choices that decoded in the last one; 0: there was none */
    int32_t n_mixed; /* steps with prefill beside decoding since then */
    double rows;     /* of prefill, that a step may compute; by default for each prompt */
    double max_rows;
} cl_pace;

/* target_s: as cl_engine_config.target_itl_s. */
void cl_pace_init(cl_pace *p, double target_s, int32_t max_rows);

/* Most rows of a step in which n_decoding choices decode while n_prompts >= 1 prompts lack rows; at most max_rows. */
int32_t cl_pace_rows(const cl_pace *p, int32_t n_decoding, int32_t n_prompts);

/* Learn from such a step, which had n_prefill rows of prefill. */
void cl_pace_learn(cl_pace *p, double seconds, int32_t n_decoding, int32_t n_prompts, int32_t n_prefill);

#endif
