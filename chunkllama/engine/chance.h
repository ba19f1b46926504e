/*
 * Estimates how probable it is that a drafted token is accepted, from the drafted tokens that were verified before. Evidence is
 * kept by the rank of a draft's source, such as the length of the match that it comes from.
 *
 * Two estimates are combined: that of the choice itself, and that of all choices that are drawn alike, which stands in for
 * evidence that the choice lacks yet. Beside estimates that are fixed, they save 2 to 6 % of the cost of decoding; beside a
 * common one alone, 6 % where a draft model suits some choices and not others (docs/experiments.md, "Drafts").
 */
#ifndef CHUNKLLAMA_ENGINE_CHANCE_H
#define CHUNKLLAMA_ENGINE_CHANCE_H

#include <stdbool.h>

enum { CL_CHANCE_RANKS = 9 };

/* Verified tokens by rank, and those of them that were accepted. Older ones decay, so the numbers are not whole. */
typedef struct cl_chance {
    float tried[CL_CHANCE_RANKS], accepted[CL_CHANCE_RANKS];
} cl_chance;

/* Fill the estimate of all choices with its prior. The estimate of one choice starts from zeros. */
void cl_chance_init(cl_chance *all);

/* The probability, in [0, 1], that a token of this rank is accepted. */
float cl_chance_of(const cl_chance *own, const cl_chance *all, int rank);

/* Count a verified token. */
void cl_chance_learn(cl_chance *own, cl_chance *all, int rank, bool accepted);

/*
 * Count a token that was not drafted because its probability is too low. What is not tried is not learnt, so both estimates
 * decay slowly towards their priors, until the rank is tried again.
 */
void cl_chance_forget(cl_chance *own, cl_chance *all, int rank);

#endif
