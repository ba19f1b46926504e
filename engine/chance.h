/*
 * How likely a drafted token is to be accepted: learnt from those that were verified before, by the rank of their evidence.
 *
 * A choice's own experience counts, beside that of all choices drawn alike, which stands for what it has not seen yet.
 */
#ifndef ENGINE_CHANCE_H
#define ENGINE_CHANCE_H

#include <stdbool.h>

enum { CL_CHANCE_RANKS = 9 };

typedef struct cl_chance {
    float tried[CL_CHANCE_RANKS], agreed[CL_CHANCE_RANKS]; /* older ones count for less and less */
} cl_chance;

/* What all choices start from; a choice's own starts from zero. */
void cl_chance_init(cl_chance *all);

/* In [0, 1]. */
float cl_chance_of(const cl_chance *own, const cl_chance *all, int rank);

void cl_chance_learn(cl_chance *own, cl_chance *all, int rank, bool agreed);

/*
 * To be called where a token was not drafted because its chance is too low: what is never tried is never learnt, so older
 * evidence is forgotten slowly, until it is tried again.
 */
void cl_chance_forget(cl_chance *own, cl_chance *all, int rank);

#endif
