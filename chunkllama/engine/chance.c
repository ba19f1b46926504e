/* Estimates of acceptance: see chance.h. */
#include "chance.h"

/*
 * Verified tokens after which an older one has decayed to about a third. The estimate of one choice must adapt faster than that
 * of all.
 */
static const float OWN_MEMORY = 10, COMMON_MEMORY = 200;
/*
 * Undrafted tokens after which the evidence has decayed to about a third. One wrong draft in this many tokens costs about 0.5 %
 * of the steps of one sequence.
 */
static const float OWN_PATIENCE = 50, COMMON_PATIENCE = 200;
/* The number of verified tokens of a choice from which on its own evidence outweighs the common one. */
static const float OWN_TRUST = 8;

/* The prior: the probability of each rank, and the number of verified tokens that it counts as. */
static const float FIRST[CL_CHANCE_RANKS] = {0, 0.15f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.75f, 0.8f};
static const float FIRST_TRIED = 4;

void cl_chance_init(cl_chance *all) {
    for (int rank = 0; rank < CL_CHANCE_RANKS; rank++) {
        all->tried[rank] = FIRST_TRIED;
        all->accepted[rank] = FIRST_TRIED * FIRST[rank];
    }
}

float cl_chance_of(const cl_chance *own, const cl_chance *all, int rank) {
    const float common = all->accepted[rank] / all->tried[rank];
    return (own->accepted[rank] + OWN_TRUST * common) / (own->tried[rank] + OWN_TRUST);
}

static void learn(cl_chance *c, int rank, bool accepted, float memory) {
    const float kept = 1 - 1 / memory;
    c->tried[rank] = c->tried[rank] * kept + 1;
    c->accepted[rank] = c->accepted[rank] * kept + (accepted ? 1 : 0);
}

void cl_chance_learn(cl_chance *own, cl_chance *all, int rank, bool accepted) {
    learn(own, rank, accepted, OWN_MEMORY);
    learn(all, rank, accepted, COMMON_MEMORY);
}

void cl_chance_forget(cl_chance *own, cl_chance *all, int rank) {
    own->tried[rank] -= own->tried[rank] / OWN_PATIENCE;
    own->accepted[rank] -= own->accepted[rank] / OWN_PATIENCE;
    all->tried[rank] += (FIRST_TRIED - all->tried[rank]) / COMMON_PATIENCE;
    all->accepted[rank] += (FIRST_TRIED * FIRST[rank] - all->accepted[rank]) / COMMON_PATIENCE;
}
