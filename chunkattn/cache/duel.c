/* Duels between what is learnt and the order of least recent use: see duel.h. */
#include "duel.h"

enum {
    MOST_PER_CHOICE = CA_DUELS / 4, /* so that one kind of choice leaves duels for the others */
    SEEN = 4,                       /* weights of a token that was found */
    SUPPOSED = 1,                   /* and of one that would have been */
    LEAD = SEEN * 2,       /* for each slot of a chunk: what is learnt is trusted beyond it, so that one use does not decide */
    MOST_AHEAD = SEEN * 16 /* as above; a lead is lost within a few requests when it is no longer deserved */
};

/* The clock's low 32 bits wrap around. */
static bool earlier(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

bool ca_duels_trust(const ca_duels *duels, int choice) { return duels->n_ahead[choice] > LEAD * duels->c; }

/* The duel that waits for a use of this hash, or NULL. */
static ca_duel *find(ca_duels *duels, uint32_t hash) {
    const int place = duels->places[hash % CA_DUEL_PLACES];
    if (place == 0) return NULL;
    ca_duel *duel = &duels->duels[place - 1];
    return duel->started != 0 && (duel->evicted == hash || duel->kept == hash) ? duel : NULL;
}

static bool is_over(const ca_duel *duel, uint32_t now, uint32_t memory) {
    return duel->started == 0 || now - duel->started > memory;
}

static bool is_waiting(ca_duels *duels, uint32_t hash, uint32_t now, uint32_t memory) {
    const ca_duel *duel = find(duels, hash);
    return duel && !is_over(duel, now, memory);
}

void ca_duels_start(ca_duels *duels, const ca_duel *duel, uint32_t memory) {
    const uint32_t now = duel->started;
    if (duel->evicted == duel->kept) return;
    if (is_waiting(duels, duel->evicted, now, memory) || is_waiting(duels, duel->kept, now, memory)) return;
    int n_of_choice = 0, free = -1;
    for (int i = 0; i < CA_DUELS; i++) {
        if (!is_over(&duels->duels[i], now, memory))
            n_of_choice += duels->duels[i].choice == duel->choice;
        else if (free < 0)
            free = i;
    }
    if (free < 0 || n_of_choice >= MOST_PER_CHOICE) return;
    duels->duels[free] = *duel;
    duels->places[duel->evicted % CA_DUEL_PLACES] = duels->places[duel->kept % CA_DUEL_PLACES] = (uint8_t)(free + 1);
}

void ca_duels_follow(ca_duels *duels, const ca_reuse *reuse, uint32_t now, uint32_t oldest_use, double max_worth) {
    for (int i = 0; i < CA_DUELS; i++) {
        ca_duel *duel = &duels->duels[i];
        if (duel->started == 0 || duel->lost != 0) continue;
        const bool loses =
            duel->learned ? earlier(duel->last_use, oldest_use)
                          : duel->n_evicted_tokens * ca_reuse_worth(reuse, duel->use_class, now - duel->last_use) <= max_worth;
        if (loses) duel->lost = now;
    }
}

void ca_duels_note(ca_duels *duels, uint32_t hash, uint32_t joined, bool found) {
    ca_duel *duel = find(duels, hash);
    if (!duel || earlier(joined, duel->started)) return;
    const bool evicted = hash == duel->evicted;
    /* What was evicted while this sequence ran did not keep it from finding the chunk. */
    if (evicted ? duel->lost != 0 && earlier(duel->lost, joined) : !found) return;
    const int32_t n_tokens = evicted ? duel->n_evicted_tokens : duel->n_kept_tokens;
    const bool learned_gains = evicted != duel->learned;
    const int32_t gain = n_tokens * (learned_gains && evicted ? SUPPOSED : SEEN);
    int32_t *ahead = &duels->n_ahead[duel->choice];
    *ahead += learned_gains ? gain : -gain;
    const int32_t most = MOST_AHEAD * duels->c;
    *ahead = *ahead > most ? most : *ahead < -most ? -most : *ahead;
    duel->started = 0;
}
