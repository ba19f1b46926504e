/*
 * Duels: whether what is learnt (reuse.h) chooses better than the order of least recent use, by what happens to both choices.
 *
 * Where the two policies would evict different leaves, a duel notes both: one is evicted, the other is kept. The one that is
 * used again first should have been kept, and the policy that keeps it gains the tokens that are found in it. This counts only
 * if that policy would have kept it until then. For the leaf that is kept, the use itself shows this. For the one that is
 * evicted, the duel follows what the other policy would do at each later eviction.
 *
 * Gains are summed for each kind of choice, since what is learnt may be right about prompts that are used once, and wrong about
 * those that are used often. What is learnt is trusted while it has a lead. Both start even, so a new cache evicts as LRU does.
 * A gain of what is learnt that is only supposed counts for a quarter, since it rests on the same estimates as the choice
 * itself.
 */
#ifndef CHUNKATTN_CACHE_DUEL_H
#define CHUNKATTN_CACHE_DUEL_H

#include "reuse.h"

enum {
    CA_DUELS = 128,
    CA_DUEL_PLACES = 1024,              /* of the table by hash */
    CA_DUEL_KINDS = CA_USE_CLASSES + 1, /* of the leaf that is evicted for its worth: its class, or a prefix's end (evict.c) */
    CA_DUEL_CHOICES = CA_DUEL_KINDS * CA_USE_CLASSES /* that kind times the class of the least recently used leaf */
};

typedef struct ca_duel {
    uint32_t evicted, kept;                  /* hashes of the prefixes that end with the two leaves' last chunks */
    int32_t n_evicted_tokens, n_kept_tokens; /* of these chunks */
    uint32_t last_use;                       /* of the leaf that is evicted */
    uint32_t started;                        /* the clock then; 0: the duel is free */
    uint32_t lost;     /* the clock when the other policy would have evicted the leaf as well; 0: not yet */
    uint8_t use_class; /* of the leaf that is evicted */
    uint8_t choice;
    bool learned; /* the leaf is evicted for its worth, else for its age */
} ca_duel;

/* Begins as {.c = slots of a chunk}. */
typedef struct ca_duels {
    int32_t c;
    ca_duel duels[CA_DUELS];
    uint8_t places[CA_DUEL_PLACES];   /* [hash mod places]: 1 + index of the duel with that hash, perhaps an old one */
    int32_t n_ahead[CA_DUEL_CHOICES]; /* what the learned choices have gained beyond the others, in quarters of tokens */
} ca_duels;

/* Whether leaves are evicted for their worth in this kind of choice. */
bool ca_duels_trust(const ca_duels *duels, int choice);

/*
 * Start a duel at the clock duel->started, unless its kind of choice has enough of them or one of its leaves is in another. A
 * duel that has taken `memory` clock ticks gives way.
 */
void ca_duels_start(ca_duels *duels, const ca_duel *duel, uint32_t memory);

/*
 * A leaf is about to be evicted at clock `now`: the least recently used one was used at oldest_use, and what is learnt would
 * rather evict one of a worth up to max_worth, in expected uses of tokens. Notes which duels the other policy has lost by now.
 */
void ca_duels_follow(ca_duels *duels, const ca_reuse *reuse, uint32_t now, uint32_t oldest_use, double max_worth);

/* A sequence that joined at clock `joined` has used the chunk with this hash, and has found it in the cache or not. */
void ca_duels_note(ca_duels *duels, uint32_t hash, uint32_t joined, bool found);

#endif
