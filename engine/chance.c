/* Chances of drafts: see chance.h. */
#include "chance.h"

/* Verified tokens until an older one counts a third: a choice changes its ways sooner than all do together. */
static const float OWN_MEMORY = 10, COMMON_MEMORY = 200;
/* Tokens not drafted until what was learnt counts a third: a wrong draft in so many costs a step of one sequence some 0.5 %. */
static const float OWN_PATIENCE = 50, COMMON_PATIENCE = 200;
/* A choice's own experience outweighs the common one after so many. */
static const float OWN_TRUST = 8;

/* What is thought of each rank before anything is known, and of how many tokens that is the experience. */
static const float FIRST[CL_CHANCE_RANKS] = {0, 0.15f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.75f, 0.8f};
static const float FIRST_TRIED = 4;

void cl_chance_init(cl_chance *all) {
    for (int rank = 0; rank < CL_CHANCE_RANKS; rank++) {
        all->tried[rank] = FIRST_TRIED;
        all->agreed[rank] = FIRST_TRIED * FIRST[rank];
    }
}

float cl_chance_of(const cl_chance *own, const cl_chance *all, int rank) {
    const float common = all->agreed[rank] / all->tried[rank];
    return (own->agreed[rank] + OWN_TRUST * common) / (own->tried[rank] + OWN_TRUST);
}

static void learn(cl_chance *c, int rank, bool agreed, float memory) {
    const float kept = 1 - 1 / memory;
    c->tried[rank] = c->tried[rank] * kept + 1;
    c->agreed[rank] = c->agreed[rank] * kept + (agreed ? 1 : 0);
}

void cl_chance_learn(cl_chance *own, cl_chance *all, int rank, bool agreed) {
    learn(own, rank, agreed, OWN_MEMORY);
    learn(all, rank, agreed, COMMON_MEMORY);
}

void cl_chance_forget(cl_chance *own, cl_chance *all, int rank) {
    own->tried[rank] -= own->tried[rank] / OWN_PATIENCE;
    own->agreed[rank] -= own->agreed[rank] / OWN_PATIENCE;
    all->tried[rank] += (FIRST_TRIED - all->tried[rank]) / COMMON_PATIENCE;
    all->agreed[rank] += (FIRST_TRIED * FIRST[rank] - all->agreed[rank]) / COMMON_PATIENCE;
}
