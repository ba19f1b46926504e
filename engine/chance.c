/* Chances of drafts: see chance.h. */
#include "chance.h"

/* Verified tokens until an older one counts a third: a choice changes its ways sooner than all do together. */
static const float OWN_MEMORY = 10, COMMON_MEMORY = 200;
/* A choice's own experience outweighs the common one after so many. */
static const float OWN_TRUST = 8;

void chance_init(chance *all) {
    static const float first[CHANCE_RANKS] = {0, 0.15f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.75f, 0.8f};
    for (int rank = 0; rank < CHANCE_RANKS; rank++) {
        all->tried[rank] = 4;
        all->agreed[rank] = 4 * first[rank];
    }
}

float chance_of(const chance *own, const chance *all, int rank) {
    const float common = all->agreed[rank] / all->tried[rank];
    return (own->agreed[rank] + OWN_TRUST * common) / (own->tried[rank] + OWN_TRUST);
}

static void learn(chance *c, int rank, bool agreed, float memory) {
    const float kept = 1 - 1 / memory;
    c->tried[rank] = c->tried[rank] * kept + 1;
    c->agreed[rank] = c->agreed[rank] * kept + (agreed ? 1 : 0);
}

void chance_learn(chance *own, chance *all, int rank, bool agreed) {
    learn(own, rank, agreed, OWN_MEMORY);
    learn(all, rank, agreed, COMMON_MEMORY);
}
