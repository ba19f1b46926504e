/*
 * Drafts by lookup: the tokens that followed the same tokens earlier.
 *
 * Two sources are searched: the choice's own tokens, backwards from the end, and a store of what was new in choices that have
 * left: the uncached ends of their prompts, and their completions. The store is a ring buffer of runs. A place is hashed by its
 * domain and the two tokens before it; places with the same hash are linked, newest first.
 */
#include <stdlib.h>
#include <string.h>

#include "draft.h"

enum {
    MATCH_MIN = 2,                   /* tokens; a match of one token is too weak */
    MATCH_MAX = CL_CHANCE_RANKS - 1, /* tokens; longer matches are no better */
    STORE = 1 << 17,                 /* places in the ring */
    HEADS = 1 << 16,                 /* hash values */
    LINKS = 8,                       /* links that a search follows at most */
};

typedef struct place {
    int32_t token; /* -1: a separator, before the first token of a run */
    uint32_t domain;
    int64_t older; /* the next older place with the same hash; 0: none */
} place;

typedef struct lookup {
    cl_drafter base;
    place *store;   /* [STORE] place i is at i % STORE; owned */
    int64_t *heads; /* [HEADS] the newest place with each hash; 0: none; owned */
    int64_t n;      /* places written so far; the first one is 1 */
} lookup;

/* Tokens equal to the end of the choice, and where those that followed begin: in the store or in the choice's own tokens. */
typedef struct match {
    int32_t length;
    bool stored;
    int64_t next;
} match;

static place *at(const lookup *l, int64_t i) { return &l->store[i % STORE]; }
static bool is_there(const lookup *l, int64_t i) { return i > 0 && i > l->n - STORE && i <= l->n; }

static uint32_t hash(uint32_t domain, int32_t a, int32_t b) {
    uint64_t x = ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) ^ (uint64_t)domain * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 32) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 40) % HEADS;
}

/* ---- Search ---- */

static void find_own(const int32_t *tokens, int64_t n, match *best) {
    const int32_t last = tokens[n - 1], before = tokens[n - 2];
    for (int64_t i = n - 1; i >= MATCH_MIN && best->length < MATCH_MAX; i--) {
        if (tokens[i - 1] != last || tokens[i - 2] != before) continue;
        int32_t length = MATCH_MIN;
        while (length < MATCH_MAX && length < i && tokens[i - 1 - length] == tokens[n - 1 - length]) length++;
        if (length > best->length) *best = (match){.length = length, .next = i};
    }
}

/* The number of tokens before place i that equal those at the end of the choice. */
static int32_t stored_length(const lookup *l, int64_t i, uint32_t domain, const int32_t *tokens, int64_t n) {
    int32_t length = 0;
    while (length < MATCH_MAX && length < n && is_there(l, i - 1 - length)) {
        const place *p = at(l, i - 1 - length);
        if (p->domain != domain || p->token != tokens[n - 1 - length]) break;
        length++;
    }
    return length;
}

static void find_stored(const lookup *l, uint32_t domain, const int32_t *tokens, int64_t n, match *best) {
    int64_t i = l->heads[hash(domain, tokens[n - 2], tokens[n - 1])];
    for (int links = 0; links < LINKS && is_there(l, i) && best->length < MATCH_MAX; links++, i = at(l, i)->older) {
        const int32_t length = stored_length(l, i, domain, tokens, n);
        if (length >= MATCH_MIN && length > best->length) *best = (match){.length = length, .stored = true, .next = i};
    }
}

static void propose_one(const lookup *l, cl_draft *d) {
    const cl_choice *c = d->choice;
    const int64_t n = c->n_tokens;
    match m = {0};
    d->n = 0;
    if (n < MATCH_MIN) return;
    find_own(c->tokens, n, &m);
    find_stored(l, cl_request_kv_domain(c->owner), c->tokens, n, &m);
    if (m.length == 0) return;
    for (; d->n < d->n_max; d->n++, m.next++) {
        int32_t token;
        if (m.stored)
            token = is_there(l, m.next) ? at(l, m.next)->token : -1;
        else
            token = m.next < n ? c->tokens[m.next] : d->tokens[m.next - n]; /* a loop repeats itself */
        if (token < 0) break;
        d->tokens[d->n] = token;
        d->ranks[d->n] = (uint8_t)(m.length + d->n < MATCH_MAX ? m.length + d->n : MATCH_MAX);
    }
}

static void propose(cl_drafter *base, cl_draft *drafts, int32_t n_drafts) {
    for (int32_t i = 0; i < n_drafts; i++) propose_one((const lookup *)base, &drafts[i]);
}

/* ---- Store ---- */

static void put(lookup *l, int32_t token, uint32_t domain) {
    const int64_t i = ++l->n;
    place *p = at(l, i);
    *p = (place){.token = token, .domain = domain};
    if (token < 0 || !is_there(l, i - 2) || at(l, i - 1)->token < 0 || at(l, i - 2)->token < 0) return;
    int64_t *head = &l->heads[hash(domain, at(l, i - 2)->token, at(l, i - 1)->token)];
    p->older = *head;
    *head = i;
}

/*
 * Store what was new in a choice that has ended; one that was preempted returns. The cached beginning of its prompt was stored
 * when an earlier choice ended.
 */
static void leave(cl_drafter *base, cl_choice *c) {
    lookup *l = (lookup *)base;
    if (c->finish == CL_ENGINE_RUNNING) return;
    const cl_request *r = c->owner;
    const int64_t known = c->index == 0 ? r->n_cached : r->params.n_prompt;
    int64_t from = known > MATCH_MAX ? known - MATCH_MAX : 0;
    if (from < c->n_tokens - STORE / 4) from = c->n_tokens - STORE / 4;
    if (c->n_tokens - known < 1) return;
    put(l, -1, cl_request_kv_domain(r));
    for (int64_t i = from; i < c->n_tokens; i++) put(l, c->tokens[i], cl_request_kv_domain(r));
}

static void drop_left(cl_drafter *base) {
    lookup *l = (lookup *)base;
    memset(l->heads, 0, HEADS * sizeof *l->heads);
    l->n = 0;
}

static void free_lookup(cl_drafter *base) {
    lookup *l = (lookup *)base;
    free(l->store);
    free(l->heads);
    free(l);
}

cl_drafter *cl_draft_lookup_create(void) {
    lookup *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->base = (cl_drafter){.propose = propose, .leave = leave, .drop_left = drop_left, .free = free_lookup};
    l->store = calloc(STORE, sizeof *l->store);
    l->heads = calloc(HEADS, sizeof *l->heads);
    if (l->store && l->heads) return &l->base;
    free_lookup(&l->base);
    return NULL;
}
