/* Draws and drafts what a grammar allows: see constraint.h. */
#include "constraint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Scratch ---- */

static bool list_end_tokens(cl_constraint_scratch *sc, const cl_tokenizer *tok) {
    for (int32_t id = 0; id < sc->n_vocab; id++) sc->n_end_tokens += cl_tokenizer_is_end(tok, id);
    sc->end_tokens = calloc((size_t)sc->n_end_tokens + 1, sizeof *sc->end_tokens);
    if (!sc->end_tokens) return false;
    for (int32_t id = 0, n = 0; id < sc->n_vocab; id++)
        if (cl_tokenizer_is_end(tok, id)) sc->end_tokens[n++] = id;
    return true;
}

bool cl_constraint_scratch_init(cl_constraint_scratch *sc, const cl_tokenizer *tok, int32_t n_vocab, int32_t n_workers) {
    *sc = (cl_constraint_scratch){.n_vocab = n_vocab};
    sc->logits = calloc((size_t)n_workers * (size_t)n_vocab, sizeof *sc->logits);
    sc->masks = calloc((size_t)n_workers * cl_mask_words(n_vocab), sizeof *sc->masks);
    return list_end_tokens(sc, tok) && sc->logits && sc->masks;
}

void cl_constraint_scratch_free(cl_constraint_scratch *sc) {
    free(sc->end_tokens);
    free(sc->logits);
    free(sc->masks);
    memset(sc, 0, sizeof *sc);
}

/* ---- Masks ---- */

static bool is_empty(const uint32_t *mask, int32_t n_vocab) {
    uint32_t any = 0;
    for (size_t i = 0; i < cl_mask_words(n_vocab); i++) any |= mask[i];
    return any == 0;
}

static void remove_tokens(uint32_t *mask, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) mask[tokens[i] / 32] &= ~(1u << tokens[i] % 32);
}

static void add_tokens(uint32_t *mask, const int32_t *tokens, int32_t n) {
    for (int32_t i = 0; i < n; i++) mask[tokens[i] / 32] |= 1u << tokens[i] % 32;
}

/* With ignore_eos an end token is drawn only where nothing else may follow. */
static void remove_end_tokens(const cl_constraint_scratch *sc, uint32_t *mask) {
    int32_t allowed[64], n = 0;
    for (int32_t i = 0; i < sc->n_end_tokens && n < 64; i++)
        if (cl_mask_has(mask, sc->end_tokens[i])) allowed[n++] = sc->end_tokens[i];
    remove_tokens(mask, allowed, n);
    if (is_empty(mask, sc->n_vocab)) add_tokens(mask, allowed, n);
}

/*
 * Copy logits, with minus infinity in place of those that the mask lacks. In most words of a mask few bits differ from the
 * others, so the others are written first.
 */
static void apply(const uint32_t *mask, const float *logits, float *out, int32_t n_vocab) {
    for (int32_t first = 0; first < n_vocab; first += 32) {
        const int32_t n = n_vocab - first < 32 ? n_vocab - first : 32;
        const uint32_t within = n < 32 ? (1u << n) - 1 : UINT32_MAX, word = mask[first / 32] & within;
        const bool most = __builtin_popcount(word) > 16;
        if (most)
            memcpy(out + first, logits + first, (size_t)n * sizeof *out);
        else
            for (int32_t i = 0; i < n; i++) out[first + i] = -INFINITY;
        for (uint32_t bits = most ? ~word & within : word; bits; bits &= bits - 1) {
            const int32_t id = first + __builtin_ctz(bits);
            out[id] = most ? -INFINITY : logits[id];
        }
    }
}

/* The likeliest token of a mask. */
static int32_t best_of(const uint32_t *mask, const float *logits, int32_t n_vocab) {
    int32_t best = -1;
    for (int32_t id = 0; id < n_vocab; id++)
        if (cl_mask_has(mask, id) && (best < 0 || logits[id] > logits[best])) best = id;
    return best;
}

/* ---- Draws ---- */

static int32_t fail(cl_constraint *con) {
    con->failed = true;
    return -1;
}

static bool find_forced(cl_constraint *con) {
    con->first_forced = 0;
    con->n_forced = con->matcher->get_forced(con->matcher, con->forced, CL_FORCED_MAX);
    if (con->n_forced >= 0) return true;
    con->n_forced = 0;
    return false;
}

static bool start(cl_constraint *con, cl_grammar *grammar) {
    con->matcher = grammar->start(grammar);
    return con->matcher && find_forced(con);
}

static int32_t draw_allowed(const cl_constraint_scratch *sc, int32_t worker, cl_sampler *s, const cl_choice *c,
                            const float *logits, int64_t position) {
    const cl_engine_request *params = &c->owner->params;
    uint32_t *mask = sc->masks + (size_t)worker * cl_mask_words(sc->n_vocab);
    float *allowed = sc->logits + (size_t)worker * (size_t)sc->n_vocab;
    if (!c->constraint->matcher->get_mask(c->constraint->matcher, mask)) return -1;
    if (params->ignore_eos) remove_end_tokens(sc, mask);
    const float *ruled = cl_sampler_restrict(s, &c->owner->rules, logits, c->tokens, params->n_prompt, position);
    apply(mask, ruled, allowed, sc->n_vocab);
    const int32_t token =
        cl_sampler_draw(s, &params->sampling, allowed, c->tokens, params->n_prompt, position, c->index, position);
    /* Where no allowed token has a finite logit, the draw goes by ids. */
    return cl_mask_has(mask, token) ? token : best_of(mask, logits, sc->n_vocab);
}

/* Whether a token ends the choice whatever the grammar says, so that its matcher need not know it. */
static bool ends(const cl_constraint_scratch *sc, const cl_choice *c, int32_t token) {
    const cl_engine_request *params = &c->owner->params;
    for (int32_t i = 0; i < sc->n_end_tokens && !params->ignore_eos; i++)
        if (sc->end_tokens[i] == token) return true;
    return false;
}

int32_t cl_constraint_draw(const cl_constraint_scratch *sc, int32_t worker, cl_sampler *s, cl_choice *c, const float *logits,
                           int64_t position, bool *completes) {
    cl_constraint *con = c->constraint;
    *completes = false;
    if (con->failed || (!con->matcher && !start(con, c->owner->grammar))) return fail(con);
    int32_t token;
    if (con->n_forced > 0) {
        token = con->forced[con->first_forced++];
        con->n_forced--;
    } else {
        token = draw_allowed(sc, worker, s, c, logits, position);
    }
    if (token < 0) return fail(con);
    if (ends(sc, c, token)) return token;
    if (!con->matcher->advance(con->matcher, token)) return fail(con);
    *completes = con->n_forced == 0 && con->matcher->is_complete(con->matcher);
    if (!*completes && con->n_forced == 0 && !find_forced(con)) return fail(con);
    return token;
}

/* ---- Drafts ---- */

int32_t cl_constraint_n_forced(const cl_choice *c) { return c->constraint ? c->constraint->n_forced : 0; }

int32_t cl_constraint_draft(cl_choice *c, cattn_cache *cache, int32_t n_max) {
    const cl_constraint *con = c->constraint;
    const int32_t n = con->n_forced < n_max ? con->n_forced : n_max;
    const int32_t *tokens = con->forced + con->first_forced;
    if (n < 1 || cattn_seq_append(cache, c->seq, tokens, n, NULL) != CATTN_OK) return 0;
    memcpy(c->tokens + c->n_tokens, tokens, (size_t)n * sizeof *tokens);
    c->n_drafted = n;
    c->drafts_forced = true;
    return n;
}

int32_t cl_constraint_count_valid(cl_choice *c, const int32_t *tokens, int32_t n) {
    cl_constraint *con = c->constraint;
    if (!con || n == 0) return n;
    return con->matcher && !con->failed ? con->matcher->count_valid(con->matcher, tokens, n) : 0;
}

/* ---- The end ---- */

void cl_constraint_explain(const cl_choice *c, cl_error *error) {
    cl_matcher *m = c->constraint->matcher;
    if (m)
        m->explain(m, error);
    else
        cl_fail(error, CL_ERR_NOMEM, "no memory for the grammar of a choice");
}

void cl_constraint_end(cl_choice *c) {
    cl_matcher *m = c->constraint ? c->constraint->matcher : NULL;
    if (!m) return;
    m->free(m);
    c->constraint->matcher = NULL;
    c->constraint->n_forced = 0;
}
