/* Decides what is drafted: see speculation.h. */
#include "speculation.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine_step.h"

/* Estimated probabilities are multiplied by this, since a wrong draft costs more than a missed one. */
static const float CAUTION = 0.8f;

/* A drafted token that may get a row. */
typedef struct bid {
    float chance;  /* the probability that it and all before it are accepted */
    int32_t draft; /* its index */
    int32_t n;     /* tokens of the draft up to and including it */
} bid;

struct cl_speculation {
    cattn_cache *cache;
    cl_drafter *drafter;
    float row_cost;
    cl_draft *drafts; /* [n_drafts] owned */
    bid *bids;        /* [max_seqs * CL_DRAFT_MAX] owned */
    int32_t n_drafts;
    cl_chance common[2]; /* of choices that are drawn greedily, and of all others */
    cl_engine_drafts counts;
};

cl_speculation *cl_speculation_create(cattn_cache *cache, cl_drafter *d, int32_t max_seqs, float row_cost) {
    cl_speculation *sp = calloc(1, sizeof *sp);
    if (!sp) {
        d->free(d);
        return NULL;
    }
    sp->cache = cache;
    sp->drafter = d;
    sp->row_cost = row_cost;
    sp->drafts = calloc((size_t)max_seqs, sizeof *sp->drafts);
    sp->bids = calloc((size_t)max_seqs * CL_DRAFT_MAX, sizeof *sp->bids);
    cl_chance_init(&sp->common[0]);
    cl_chance_init(&sp->common[1]);
    if (!sp->drafts || !sp->bids) cl_speculation_free(&sp);
    return sp;
}

void cl_speculation_free(cl_speculation **spp) {
    cl_speculation *sp = *spp;
    if (!sp) return;
    sp->drafter->free(sp->drafter);
    free(sp->drafts);
    free(sp->bids);
    free(sp);
    *spp = NULL;
}

/* ---- Before a step ---- */

void cl_speculation_clear(cl_speculation *sp) { sp->n_drafts = 0; }

/* The number of tokens that the choice may still get. */
static int64_t n_left(const cl_choice *c) { return c->owner->params.n_prompt + c->owner->params.max_tokens - c->n_tokens; }

void cl_speculation_add(cl_speculation *sp, cl_choice *c) {
    const int64_t before_last = n_left(c) - 1; /* the last token is drawn after them */
    const int64_t n_max = before_last < CL_DRAFT_MAX ? before_last : CL_DRAFT_MAX;
    if (n_max > 0) sp->drafts[sp->n_drafts++] = (cl_draft){.choice = c, .n_max = (int32_t)n_max};
}

/* Whether a further token is expected to cost less than the n_tokens so far did, on average, for `spent`. */
static bool pays(float chance, float cost, float n_tokens, float spent) { return CAUTION * chance * spent > n_tokens * cost; }

/* The same for one more row in a step of n_rows that is expected to yield n_tokens. A step costs 1 + row_cost * rows. */
static bool row_pays(const cl_speculation *sp, float chance, float n_tokens, int32_t n_rows) {
    return pays(chance, sp->row_cost, n_tokens, 1 + sp->row_cost * (float)n_rows);
}

static cl_chance *common_of(cl_speculation *sp, const cl_choice *c) {
    return &sp->common[c->owner->params.sampling.temperature > 0];
}

/*
 * Lower n_max to the tokens that are worth their drafting too: a choice pays its part of the step, and of the steps of the
 * draft model, which drafts one token of all choices in each. A completion is assumed to reach half of the length that it may
 * have.
 */
static void limit_draft(cl_speculation *sp, cl_draft *d, int32_t n_decoding) {
    cl_choice *c = d->choice;
    const float alone = 1 / (float)n_decoding + sp->row_cost;
    const float cost = sp->row_cost + sp->drafter->token_cost * (1 / (float)sp->n_drafts + sp->row_cost);
    float chance = 1, n_tokens = 1, spent = alone;
    int32_t n = 0;
    for (; n < d->n_max; n++) {
        chance *= cl_chance_of(&c->chance, common_of(sp, c), CL_CHANCE_RANKS - 1);
        if (!pays(chance, cost, n_tokens, spent)) break;
        n_tokens += chance;
        spent += cost;
    }
    if (n == 0) cl_chance_forget(&c->chance, common_of(sp, c), CL_CHANCE_RANKS - 1);
    d->n_max = n;
    d->worth = (alone - spent / n_tokens) * (float)n_left(c) / 2;
}

/* Cut the drafts before the first token that a grammar forbids. */
static void cut_drafts(cl_speculation *sp) {
    for (int32_t i = 0; i < sp->n_drafts; i++) {
        cl_draft *d = &sp->drafts[i];
        d->n = cl_constraint_count_valid(d->choice, d->tokens, d->n);
    }
}

static int32_t list_bids(cl_speculation *sp) {
    int32_t n = 0;
    for (int32_t i = 0; i < sp->n_drafts; i++) {
        const cl_draft *d = &sp->drafts[i];
        float chance = 1;
        for (int32_t k = 0; k < d->n; k++) {
            chance *= cl_chance_of(&d->choice->chance, common_of(sp, d->choice), d->ranks[k]);
            sp->bids[n++] = (bid){chance, i, k + 1};
        }
    }
    return n;
}

/* The most probable first; equal ones by length, so that a token comes after those before it. */
static int compare_bids(const void *left, const void *right) {
    const bid *a = left, *b = right;
    if (a->chance != b->chance) return a->chance > b->chance ? -1 : 1;
    if (a->n != b->n) return a->n - b->n;
    return a->draft - b->draft;
}

/* Give rows to the tokens that are worth them, and shorten the drafts to these. */
static void assign_rows(cl_speculation *sp, int32_t n_decoding, int32_t max_rows) {
    const int32_t n_bids = list_bids(sp);
    qsort(sp->bids, (size_t)n_bids, sizeof *sp->bids, compare_bids);
    for (int32_t i = 0; i < sp->n_drafts; i++) sp->drafts[i].n = 0;
    float n_tokens = (float)n_decoding;
    int32_t n = 0;
    for (; n < n_bids && n < max_rows && row_pays(sp, sp->bids[n].chance, n_tokens, n_decoding + n); n++) {
        n_tokens += sp->bids[n].chance;
        sp->drafts[sp->bids[n].draft].n = sp->bids[n].n;
    }
    for (; n < n_bids && n < max_rows; n++) {
        const cl_draft *d = &sp->drafts[sp->bids[n].draft];
        if (sp->bids[n].n == 1) cl_chance_forget(&d->choice->chance, common_of(sp, d->choice), d->ranks[0]);
    }
}

static void append(cl_speculation *sp, const cl_draft *d) {
    cl_choice *c = d->choice;
    assert(c->n_drafted == 0);
    if (d->n == 0 || cattn_seq_append(sp->cache, c->seq, d->tokens, d->n, NULL) != CATTN_OK) return;
    memcpy(c->tokens + c->n_tokens, d->tokens, (size_t)d->n * sizeof *d->tokens);
    memcpy(c->draft_ranks, d->ranks, (size_t)d->n * sizeof *d->ranks);
    c->n_drafted = d->n;
    c->drafts_forced = false;
}

void cl_speculation_draft(cl_speculation *sp, int32_t n_decoding, int32_t max_rows) {
    if (max_rows > CL_STEP_DRAFTED_ROWS) max_rows = CL_STEP_DRAFTED_ROWS;
    if (sp->n_drafts == 0 || max_rows < 1 || !row_pays(sp, 1, (float)n_decoding, n_decoding)) return;
    for (int32_t i = 0; i < sp->n_drafts && sp->drafter->token_cost > 0; i++) limit_draft(sp, &sp->drafts[i], n_decoding);
    sp->drafter->propose(sp->drafter, sp->drafts, sp->n_drafts);
    cut_drafts(sp);
    assign_rows(sp, n_decoding, max_rows);
    for (int32_t i = 0; i < sp->n_drafts; i++) append(sp, &sp->drafts[i]);
}

/* ---- After it ---- */

void cl_speculation_learn(cl_speculation *sp, cl_choice *c, const cl_draw *draws, int32_t n) {
    if (n == 0) return;
    sp->counts.n_drafts++;
    sp->counts.n_tokens += c->n_drafted;
    sp->counts.n_accepted += n - 1;
    for (int32_t i = 0; i < n && i < c->n_drafted; i++)
        cl_chance_learn(&c->chance, common_of(sp, c), c->draft_ranks[i], draws[i].token == c->tokens[draws[i].position]);
}

void cl_speculation_leave(cl_speculation *sp, cl_choice *c) {
    if (c->decoding) sp->drafter->leave(sp->drafter, c);
}

void cl_speculation_set_budget(cl_speculation *sp, double part) {
    if (sp->drafter->set_budget) sp->drafter->set_budget(sp->drafter, part);
}

void cl_speculation_drop_left(cl_speculation *sp) { sp->drafter->drop_left(sp->drafter); }

cl_engine_drafts cl_speculation_get_counts(const cl_speculation *sp) { return sp->counts; }
