/* The history of prefixes: see reuse.h. */
#include "reuse.h"

#include <assert.h>

enum {
    WAYS = 4,               /* entries of the history that a hash may have */
    HISTORY_PER_CHUNK = 16, /* entries for each chunk of the cache, so that uses far apart are seen, too */
    BUDGET_SHARE = 512,     /* the history takes at most this part of the budget, */
    MIN_SETS = 128,         /* but has at least this many sets, which is 8 KB */
    MEMORY_PER_CHUNK = 16,  /* clock ticks for each chunk of the cache after which counts are halved */
    LEAVES_FOR_AN_UPDATE = 32
};

/*
 * What is assumed of each class at first: PRIOR chunks, of which a part is used again at each age, and fewer at the next. The
 * part is smaller of chunks that were used once, so that a batch of prompts that never come back does not evict a conversation
 * before anything is learnt.
 */
static const double PRIOR = 8, PRIOR_PART[CA_USE_CLASSES] = {0.006, 0.03}, PRIOR_NEXT = 0.97;

/* ---- Ages ---- */

static int age_index(uint64_t age) {
    if (age < 1) return 0;
    const int octave = 63 - __builtin_clzll(age);
    if (octave >= CA_AGES / 2) return CA_AGES - 1;
    return 2 * octave + (age * age >= UINT64_C(2) << (2 * octave)); /* age >= sqrt(2) * 2^octave */
}

/* The number of clock ticks for which a chunk has age i. */
static double age_width(int i) {
    const double octave = (double)(UINT64_C(1) << (i / 2)), root = 1.4142135623730951;
    return i % 2 == 0 ? octave * (root - 1) : octave * (2 - root);
}

/* ---- Worth ---- */

/* A chunk that is kept from age `from` on: the uses and the time that ages from there on add, and the best ratio of sums. */
static double best_worth(const double *n_reused, const double *n_left, int from) {
    double best = 0, uses = 0, time = 0;
    for (int i = from; i < CA_AGES; i++) {
        uses += n_reused[i];
        time += (n_left[i] + n_left[i + 1]) / 2 * age_width(i);
        if (uses > best * time) best = uses / time;
    }
    return best;
}

static void update_worth(ca_reuse *r) {
    for (int k = 0; k < CA_USE_CLASSES; k++) {
        double n_left[CA_AGES + 1] = {r->n_chunks[k]}; /* chunks that reach an age unused; never 0, so that no time is */
        for (int i = 0; i < CA_AGES; i++) {
            const double n = n_left[i] - r->n_reused[k][i], least = 1e-3 * r->n_chunks[k];
            n_left[i + 1] = n > least ? n : least;
        }
        for (int i = 0; i < CA_AGES; i++) r->worth[k][i] = best_worth(r->n_reused[k], n_left, i);
    }
}

double ca_reuse_worth(const ca_reuse *r, int use_class, uint64_t age) { return r->worth[use_class][age_index(age)]; }

/* ---- Memory ---- */

/* Sets of the history for a cache of that many chunks: a power of two. */
static size_t count_sets(size_t n_chunks, size_t chunk_bytes) {
    const size_t most = n_chunks * chunk_bytes / BUDGET_SHARE / (WAYS * sizeof(ca_history_entry));
    size_t n = MIN_SETS;
    while (n * WAYS < n_chunks * HISTORY_PER_CHUNK && 2 * n <= most) n *= 2;
    return n;
}

int ca_reuse_init(ca_reuse *r, ca_alloc *alloc, size_t n_chunks, size_t chunk_bytes) {
    const size_t n_memory = n_chunks < 1 << 24 ? n_chunks : 1 << 24;
    *r = (ca_reuse){.n_sets = count_sets(n_chunks, chunk_bytes), .memory = (uint32_t)n_memory * MEMORY_PER_CHUNK};
    r->history = ca_new_zero(alloc, r->n_sets, WAYS * sizeof *r->history);
    if (!r->history) return -1;
    for (int k = 0; k < CA_USE_CLASSES; k++) {
        r->n_chunks[k] = PRIOR;
        double part = PRIOR_PART[k];
        for (int i = 0; i < CA_AGES; i++, part *= PRIOR_NEXT) r->n_reused[k][i] = PRIOR * part;
    }
    update_worth(r);
    return 0;
}

void ca_reuse_free(ca_reuse *r, ca_alloc *alloc) {
    ca_delete(alloc, r->history, r->n_sets, WAYS * sizeof *r->history);
    *r = (ca_reuse){0};
}

/* ---- History ---- */

uint32_t ca_reuse_hash(const int32_t *tokens, int64_t first, int64_t n) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = ((uint32_t)tokens[i] + 1) * 0x9e3779b1u ^ ((uint32_t)(first + i) + 1) * 0x85ebca6bu;
        x ^= x >> 15;
        x *= 0xc2b2ae35u;
        sum += x ^ x >> 13;
    }
    return sum;
}

/* The entry of a hash; or else that which was used longest ago, made free. */
static ca_history_entry *find_or_free(ca_reuse *r, uint32_t hash, uint32_t now) {
    assert(r->n_sets > 0);
    ca_history_entry *set = r->history + (hash & (r->n_sets - 1)) * WAYS, *oldest = set;
    for (int i = 0; i < WAYS; i++) {
        if (set[i].hash == hash) return &set[i];
        if (now - set[i].last_use > now - oldest->last_use) oldest = &set[i];
    }
    *oldest = (ca_history_entry){.hash = hash};
    return oldest;
}

uint32_t ca_reuse_note(ca_reuse *r, uint32_t hash, uint32_t joined, uint32_t now) {
    ca_history_entry *e = find_or_free(r, hash, now);
    const uint32_t age = joined - e->last_use;
    if (e->n_uses == 0) {
        e->n_uses = 1;
        r->n_chunks[0]++;
    } else if (age > 0 && age <= INT32_MAX) { /* otherwise sequences used it at the same time, for which it is not retained */
        r->n_reused[ca_use_class(e->n_uses)][age_index(age)]++;
        if (e->n_uses < UINT8_MAX) e->n_uses++;
        r->n_chunks[ca_use_class(e->n_uses)]++;
    }
    e->last_use = now;
    return e->n_uses;
}

void ca_reuse_note_evicted(ca_reuse *r, uint32_t hash, uint32_t now, uint32_t time) {
    ca_history_entry *e = find_or_free(r, hash, now);
    if (e->n_uses == 0) e->last_use = now;
    e->evicted = time + 1;
}

bool ca_reuse_find_evicted(const ca_reuse *r, uint32_t hash, uint32_t *time) {
    const ca_history_entry *set = r->n_sets > 0 ? r->history + (hash & (r->n_sets - 1)) * WAYS : NULL;
    for (int i = 0; set && i < WAYS; i++) {
        if (set[i].hash != hash || set[i].evicted == 0) continue;
        *time = set[i].evicted - 1;
        return true;
    }
    return false;
}

static void halve(ca_reuse *r) {
    for (int k = 0; k < CA_USE_CLASSES; k++) {
        r->n_chunks[k] /= 2;
        for (int i = 0; i < CA_AGES; i++) r->n_reused[k][i] /= 2;
    }
}

void ca_reuse_note_leave(ca_reuse *r, uint32_t now) {
    if (now - r->halved > r->memory) {
        r->halved = now;
        halve(r);
    }
    if (r->n_leaves++ % LEAVES_FOR_AN_UPDATE == 0) update_worth(r);
}
