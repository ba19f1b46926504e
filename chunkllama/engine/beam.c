/* Scores, continues and reports beams: see beam.h. */
#include "beam.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "draw.h"

/* The last token of a beam or of a completion. The tokens before it are those of the beam that it continues. */
typedef struct beam_token {
    int32_t parent; /* rank of that beam, among those that are one token shorter */
    int32_t token;
    float logprob;
    double sum; /* of the logprobs up to this one */
} beam_token;

/* A completion that was found. */
typedef struct found {
    int64_t n_tokens;
    beam_token last;
    double score;
} found;

struct cl_beams {
    int32_t n, n_candidates;
    int32_t n_active;         /* beams: one before the first advance, then n */
    int64_t n_tokens;         /* of each beam's completion */
    beam_token *tokens;       /* [max_tokens][n] token t of the beam that had rank k when it got it */
    cl_sampler_logprob *tops; /* [max_tokens][n][n_top] the likeliest tokens in the place of a token t whose parent is k */
    cl_sampler_logprob *candidates; /* [n][n_candidates] the likeliest next tokens of each choice */
    bool *expanded;                 /* [n] the choice has its candidates */
    int32_t *ranked;                /* [n] choice of each rank */
    int32_t *sources;               /* [n] of each choice: the one whose sequence it continues */
    int32_t *stays;   /* [n] of each choice, while beams advance: the rank of the beam that goes on in it; -1: none */
    int32_t *next;    /* [n] `ranked` after the advance */
    beam_token *best; /* [n] the beams after the advance, best first */
    int32_t n_best;
    found *found; /* [n] best first */
    int32_t n_found;
    int32_t *path; /* [max_tokens] of a completion that is reported: ranks of the beams that its tokens belonged to */
    cl_beams_answer pending;
};

/* ---- Life ---- */

static int32_t largest(int32_t a, int32_t b) { return a > b ? a : b; }

cl_beams *cl_beams_create(const cl_engine_request *params, int32_t n_end_tokens) {
    cl_beams *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    const size_t n = (size_t)params->n;
    b->n = params->n;
    b->n_active = 1;
    /* One beam alone must have n candidates that do not end it. */
    b->n_candidates = largest(largest(2 * b->n, b->n + n_end_tokens + params->n_stop_tokens), params->n_top);
    b->expanded = calloc(n, sizeof *b->expanded);
    b->ranked = calloc(n, sizeof *b->ranked);
    b->sources = calloc(n, sizeof *b->sources);
    b->stays = calloc(n, sizeof *b->stays);
    b->next = calloc(n, sizeof *b->next);
    b->best = calloc(n, sizeof *b->best);
    b->found = calloc(n, sizeof *b->found);
    if (!b->expanded || !b->ranked || !b->sources || !b->stays || !b->next || !b->best || !b->found) cl_beams_free(&b);
    return b;
}

bool cl_beams_start(cl_beams *b, const cl_engine_request *params) {
    const size_t n_tokens = (size_t)params->max_tokens, n = n_tokens * (size_t)b->n;
    if (!b->tokens) b->tokens = calloc(n + 1, sizeof *b->tokens);
    if (!b->tops) b->tops = calloc(n * (size_t)params->n_top + 1, sizeof *b->tops);
    if (!b->candidates) b->candidates = calloc((size_t)b->n * (size_t)b->n_candidates, sizeof *b->candidates);
    if (!b->path) b->path = calloc(n_tokens + 1, sizeof *b->path);
    return b->tokens && b->tops && b->candidates && b->path;
}

void cl_beams_free(cl_beams **bp) {
    cl_beams *b = *bp;
    if (!b) return;
    free(b->tokens);
    free(b->tops);
    free(b->candidates);
    free(b->expanded);
    free(b->ranked);
    free(b->sources);
    free(b->stays);
    free(b->next);
    free(b->path);
    free(b->best);
    free(b->found);
    free(b);
    *bp = NULL;
}

/* ---- Candidates ---- */

void cl_beams_expand(cl_sampler *s, const cl_choice *c, const float *logits) {
    cl_beams *b = c->owner->beams;
    cl_sampler_logprob ignored;
    cl_sampler_logprobs(s, logits, 0, &ignored, b->n_candidates, b->candidates + (size_t)c->index * (size_t)b->n_candidates);
    b->expanded[c->index] = true;
}

bool cl_beams_awaits(const cl_choice *c) { return c->owner->beams && c->owner->beams->expanded[c->index]; }

void cl_beams_forget(cl_request *r) { memset(r->beams->expanded, 0, (size_t)r->params.n * sizeof *r->beams->expanded); }

/* Whether all beams have their candidates. */
static bool is_expanded(const cl_beams *b) {
    for (int32_t k = 0; k < b->n_active; k++)
        if (!b->expanded[b->ranked[k]]) return false;
    return true;
}

/* The candidates of the beam of rank k, the likeliest first; ids from some index on may be -1. */
static const cl_sampler_logprob *candidates_of(const cl_beams *b, int32_t k) {
    return b->candidates + (size_t)b->ranked[k] * (size_t)b->n_candidates;
}

/* The tokens by which each beam is continued: the fewest, 2 n at least, of which n do not end a choice. 0: there are none. */
static int32_t n_continued(const cl_request *r, const cl_tokenizer *tok) {
    const cl_beams *b = r->beams;
    int32_t n_open = 0;
    for (int32_t i = 0; i < b->n_candidates; i++) {
        if (i >= 2 * b->n && n_open >= b->n) return i;
        for (int32_t k = 0; k < b->n_active; k++) {
            const int32_t id = candidates_of(b, k)[i].id;
            n_open += id >= 0 && !cl_request_is_end(r, tok, id);
        }
    }
    return n_open >= b->n ? b->n_candidates : 0;
}

/* ---- Advancing ---- */

static double score(const cl_request *r, double sum, int64_t n_tokens) {
    return sum / pow((double)(r->params.n_prompt + n_tokens), (double)r->params.length_penalty);
}

/* Keep a completion of n_tokens if it is among the n best; n_scored of its tokens count as its length. */
static void add_found(cl_request *r, const beam_token *last, int64_t n_tokens, int64_t n_scored) {
    cl_beams *b = r->beams;
    const found f = {n_tokens, *last, score(r, last->sum, n_scored)};
    int32_t k = b->n_found;
    while (k > 0 && f.score > b->found[k - 1].score) k--;
    if (k == b->n) return;
    if (b->n_found < b->n) b->n_found++;
    memmove(&b->found[k + 1], &b->found[k], (size_t)(b->n_found - k - 1) * sizeof *b->found);
    b->found[k] = f;
}

static void add_best(cl_beams *b, const beam_token *t) {
    int32_t k = b->n_best;
    while (k > 0 && t->sum > b->best[k - 1].sum) k--;
    if (k == b->n) return;
    if (b->n_best < b->n) b->n_best++;
    memmove(&b->best[k + 1], &b->best[k], (size_t)(b->n_best - k - 1) * sizeof *b->best);
    b->best[k] = *t;
}

/* Continue the beam of rank k by its n likeliest tokens. */
static void continue_beam(cl_request *r, const cl_tokenizer *tok, int32_t k, int32_t n) {
    cl_beams *b = r->beams;
    const size_t n_top = (size_t)r->params.n_top, row = (size_t)b->n_tokens * (size_t)b->n + (size_t)k;
    const cl_sampler_logprob *c = candidates_of(b, k);
    const double sum = b->n_tokens > 0 ? b->tokens[row - (size_t)b->n].sum : 0;
    memcpy(b->tops + row * n_top, c, n_top * sizeof *b->tops);
    for (int32_t i = 0; i < n && c[i].id >= 0; i++) {
        const beam_token t = {k, c[i].id, c[i].logprob, sum + (double)c[i].logprob};
        if (cl_request_is_end(r, tok, t.token))
            add_found(r, &t, b->n_tokens + 1, b->n_tokens);
        else
            add_best(b, &t);
    }
}

/* The first beam was alone until now, and the sequences of all choices are equal: none has to move. */
static void assign_first(cl_beams *b) {
    b->n_active = b->n;
    for (int32_t k = 0; k < b->n; k++) b->ranked[k] = b->sources[k] = k;
}

/* The first continuation of a beam stays where the beam is; the others become the choices in which no beam stays. */
static void assign(cl_beams *b) {
    for (int32_t i = 0; i < b->n; i++) b->stays[i] = -1;
    for (int32_t k = 0; k < b->n; k++) {
        int32_t *stays = &b->stays[b->ranked[b->best[k].parent]];
        if (*stays < 0) *stays = k;
    }
    for (int32_t k = 0, unused = 0; k < b->n; k++) {
        const int32_t from = b->ranked[b->best[k].parent];
        int32_t to = from;
        if (b->stays[from] != k) {
            while (b->stays[unused] >= 0) unused++;
            to = unused++;
        }
        b->next[k] = to;
        b->sources[to] = from;
    }
    memcpy(b->ranked, b->next, (size_t)b->n * sizeof *b->ranked);
}

/* Each choice gets the tokens of the beam that it becomes. */
static void advance(cl_request *r) {
    cl_beams *b = r->beams;
    const int64_t n = r->params.n_prompt + b->n_tokens;
    if (b->n_active == 1)
        assign_first(b);
    else
        assign(b);
    for (int32_t k = 0; k < b->n; k++) {
        cl_choice *c = &r->choices[b->ranked[k]];
        const cl_choice *from = cl_beams_source(c);
        if (c != from) memcpy(c->tokens, from->tokens, (size_t)n * sizeof *c->tokens);
        c->tokens[n] = b->best[k].token; /* others that continue `from` copy only the tokens before it */
        c->n_tokens = n + 1;
    }
    memcpy(b->tokens + b->n_tokens * b->n, b->best, (size_t)b->n * sizeof *b->best);
    b->n_tokens++;
}

/* Whether no beam can become one of the best completions any more. */
static bool is_decided(const cl_request *r) {
    const cl_beams *b = r->beams;
    if (b->n_found < b->n) return false;
    if (r->params.early_stopping) return true;
    /* Sums only fall. They are negative, so that a longer completion is divided by more, which helps if the penalty is > 0. */
    const int64_t best_length = r->params.length_penalty > 0 ? r->params.max_tokens : b->n_tokens;
    return b->found[b->n - 1].score >= score(r, b->tokens[(b->n_tokens - 1) * b->n].sum, best_length);
}

/* The end of the completions' length: the beams are completions too. */
static void compete(cl_request *r) {
    cl_beams *b = r->beams;
    for (int32_t k = 0; k < b->n; k++) {
        const beam_token last = b->tokens[(b->n_tokens - 1) * b->n + k];
        add_found(r, &last, b->n_tokens, b->n_tokens);
    }
}

static cl_beams_answer select_beams(cl_request *r, const cl_tokenizer *tok) {
    cl_beams *b = r->beams;
    if (!is_expanded(b)) return CL_BEAMS_AWAIT;
    const int32_t n = n_continued(r, tok);
    if (n == 0) return CL_BEAMS_FAIL;
    b->n_best = 0;
    for (int32_t k = 0; k < b->n_active; k++) continue_beam(r, tok, k, n);
    cl_beams_forget(r);
    advance(r);
    if (is_decided(r)) return CL_BEAMS_END;
    if (b->n_tokens < r->params.max_tokens) return CL_BEAMS_ADVANCE;
    compete(r);
    return CL_BEAMS_END;
}

cl_beams_answer cl_beams_select(cl_request *r, const cl_tokenizer *tok) {
    assert(r->beams->pending == CL_BEAMS_AWAIT);
    return r->beams->pending = select_beams(r, tok);
}

cl_beams_answer cl_beams_pending(const cl_request *r) { return r->beams->pending; }

void cl_beams_settle(cl_request *r) { r->beams->pending = CL_BEAMS_AWAIT; }

cl_choice *cl_beams_source(const cl_choice *c) { return &c->owner->choices[c->owner->beams->sources[c->index]]; }

cl_choice *cl_beams_ranked(const cl_request *r, int32_t k) { return &r->choices[r->beams->ranked[k]]; }

/* ---- Reporting ---- */

int64_t cl_beams_n_tokens(const cl_request *r) {
    int64_t n = 0;
    for (int32_t i = 0; i < r->beams->n_found; i++) n += r->beams->found[i].n_tokens;
    return n;
}

static void report_token(cl_choice *c, const cl_tokenizer *tok, int64_t t, const beam_token *token) {
    const cl_request *r = c->owner;
    const cl_beams *b = r->beams;
    cl_draw d = {.choice = c, .position = r->params.n_prompt + t, .token = token->token, .chosen = {.id = -1}};
    if (r->params.logprobs) {
        const size_t n_top = (size_t)r->params.n_top;
        d.chosen = (cl_sampler_logprob){token->token, token->logprob};
        d.n_top = r->params.n_top;
        memcpy(d.top, b->tops + (size_t)(t * b->n + token->parent) * n_top, n_top * sizeof *d.top);
    }
    cl_choice_add(c, tok, &d);
}

void cl_beams_report(cl_request *r, int32_t i, const cl_tokenizer *tok) {
    cl_beams *b = r->beams;
    const found *f = &b->found[i];
    cl_choice *c = &r->choices[i];
    c->n_tokens = r->params.n_prompt;
    int32_t parent = f->last.parent;
    for (int64_t t = f->n_tokens - 2; t >= 0; t--) {
        b->path[t] = parent;
        parent = b->tokens[t * b->n + parent].parent;
    }
    for (int64_t t = 0; t < f->n_tokens && c->finish == CL_ENGINE_RUNNING; t++)
        report_token(c, tok, t, t + 1 < f->n_tokens ? &b->tokens[t * b->n + b->path[t]] : &f->last);
}
