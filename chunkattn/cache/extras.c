/* The table of pairs of a token and an extra hash: see extras.h. */
#include "extras.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* ---- Places ---- */

/* The place of an id, or the free one where it would be. */
static size_t place_of(const ca_extras *x, int32_t id) {
    size_t i = (size_t)(uint32_t)id & (x->size - 1);
    while (x->at[i].id != 0 && x->at[i].id != id) i = (i + 1) & (x->size - 1);
    return i;
}

static ca_extra *find(const ca_extras *x, int32_t id) {
    ca_extra *found = &x->at[place_of(x, id)];
    assert(found->id == id);
    return found;
}

static bool has_room(const ca_extras *x) { return 2 * (x->n + 1) <= x->size; }

static size_t next_size(const ca_extras *x) {
    enum { FIRST_SIZE = 16 };
    return x->size > 0 ? 2 * x->size : FIRST_SIZE;
}

size_t ca_extras_growth(const ca_extras *x) { return next_size(x) * sizeof *x->at; }

int ca_extras_grow(ca_extras *x, ca_alloc *alloc) {
    ca_extras larger = {.n = x->n, .size = next_size(x)};
    larger.at = ca_new_zero(alloc, larger.size, sizeof *larger.at);
    if (!larger.at) return -1;
    for (size_t i = 0; i < x->size; i++)
        if (x->at[i].id != 0) larger.at[place_of(&larger, x->at[i].id)] = x->at[i];
    ca_extras_free(x, alloc);
    *x = larger;
    return 0;
}

/* Free a place; what was behind it because it was taken moves up. */
static void drop(ca_extras *x, size_t i) {
    const size_t mask = x->size - 1;
    x->at[i].id = 0;
    x->n--;
    for (size_t k = (i + 1) & mask; x->at[k].id != 0; k = (k + 1) & mask) {
        const ca_extra moved = x->at[k];
        x->at[k].id = 0;
        x->at[place_of(x, moved.id)] = moved;
    }
}

void ca_extras_free(ca_extras *x, ca_alloc *alloc) {
    ca_delete(alloc, x->at, x->size, sizeof *x->at);
    *x = (ca_extras){0};
}

/* ---- Pairs ---- */

/* The first id that a pair may have, which is negative. */
static int32_t first_id(int32_t token, uint64_t hash) {
    uint64_t h = (hash ^ (uint64_t)token * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return (int32_t)(h >> 34) - INT32_MAX;
}

static int32_t next_id(int32_t id) { return id < -1 ? id + 1 : INT32_MIN; }

/* The place of a pair, or the free one that it gets, with its id. There is a free one. */
static ca_extra *place_for(const ca_extras *x, int32_t token, uint64_t hash, int32_t *id) {
    for (*id = first_id(token, hash);; *id = next_id(*id)) {
        ca_extra *at = &x->at[place_of(x, *id)];
        if (at->id == 0 || (at->token == token && at->hash == hash)) return at;
    }
}

void ca_extras_find(const ca_extras *x, int32_t *tokens, int64_t n, uint64_t hash) {
    for (int64_t i = 0; i < n; i++) {
        int32_t id = first_id(tokens[i], hash);
        if (x->size > 0) place_for(x, tokens[i], hash, &id);
        tokens[i] = id;
    }
}

int64_t ca_extras_hold(ca_extras *x, int32_t *tokens, int64_t n, uint64_t hash) {
    int64_t i = 0;
    for (; i < n; i++) {
        int32_t id;
        ca_extra *at = x->size > 0 ? place_for(x, tokens[i], hash, &id) : NULL;
        if (!at || (at->id == 0 && !has_room(x))) break;
        if (at->id == 0) {
            *at = (ca_extra){id, tokens[i], hash, 0};
            x->n++;
        }
        at->refs++;
        tokens[i] = id;
    }
    return i;
}

void ca_extras_end_hold(ca_extras *x, const int32_t *ids, int64_t n) { ca_extras_unref(x, ids, n); }

/* ---- References ---- */

void ca_extras_ref(ca_extras *x, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; x->n > 0 && i < n; i++)
        if (ids[i] < 0) find(x, ids[i])->refs++;
}

void ca_extras_unref(ca_extras *x, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; x->n > 0 && i < n; i++)
        if (ids[i] < 0 && --find(x, ids[i])->refs == 0) drop(x, place_of(x, ids[i]));
}

void ca_extras_show(const ca_extras *x, int32_t *ids, uint64_t *hashes, int64_t n) {
    if (hashes) memset(hashes, 0, (size_t)n * sizeof *hashes);
    for (int64_t i = 0; x->n > 0 && i < n; i++) {
        if (ids[i] >= 0) continue;
        const ca_extra *found = find(x, ids[i]);
        if (hashes) hashes[i] = found->hash;
        ids[i] = found->token;
    }
}
