/*
 * Drafts by a second, smaller model with a K/V cache of its own, in which each choice has a sequence from its first draft on.
 *
 * The draft model draws with the choice's parameters, seed and position, so where the distributions of both models are alike,
 * the draws are too. Each token of the drafts takes one step of the draft model for all choices together.
 */
#include <stdlib.h>
#include <string.h>

#include "chunkllama/model/sampler.h"
#include "draft.h"
#include "queue.h"
#include "runner.h"

typedef struct draft_model {
    cl_drafter base;
    ca_pool *pool;
    cl_runner runner;
    uint64_t budget;       /* bytes: of its cache, as configured */
    cl_sampler **samplers; /* [workers of the pool] owned */
    float row_cost;        /* of the engine's model: cl_engine_config.row_cost */
    /* In steps: what drafts of the choices that were declined since the last accepted one might have saved. */
    float missed_savings;
    cl_draft **active; /* [n_active] the drafts that are still extended, in the order of the step's entries; owned */
    int32_t n_active;
} draft_model;

/* ---- A choice's sequence ---- */

static void forget(draft_model *m, cl_choice *c) {
    if (c->model_seq.seq != 0) cattn_seq_leave(m->runner.cache, &c->model_seq.seq, NULL);
    c->model_seq.n_tokens = 0;
}

/* The number of the sequence's leading tokens that equal the choice's; drafted ones may have been drawn differently. */
static int64_t n_common(const cl_choice *c) {
    const cl_draft_seq *s = &c->model_seq;
    int64_t n = s->n_tokens - s->n_drafted;
    for (int32_t i = 0; i < s->n_drafted && n < c->n_tokens && c->tokens[n] == s->drafted[i]; i++) n++;
    return n < c->n_tokens ? n : c->n_tokens - 1; /* the last token is computed again, for its logits */
}

/*
 * Whether the drafts of a choice are worth the rows that come before the first one. A prompt that many choices share is worth
 * computing, but not for the first of them alone, so savings that were missed before count too. Where nothing is shared, this
 * never loses more than what was missed. A row of a long prompt costs half of what a row of a small step costs.
 */
static bool is_worth(draft_model *m, const cl_draft *d, int64_t n_rows) {
    const float cost = m->base.token_cost * m->row_cost / 2 * (float)n_rows;
    if (cost > d->worth + m->missed_savings) {
        m->missed_savings += d->worth;
        return false;
    }
    if (cost > d->worth) m->missed_savings = 0;
    return true;
}

/* Start a sequence for the choice, if computing the tokens that the cache does not hold is worth it. */
static bool join(draft_model *m, const cl_draft *d) {
    cl_choice *c = d->choice;
    cl_draft_seq *s = &c->model_seq;
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = cl_request_kv_domain(c->owner);
    cl_request_set_account(c->owner, &options);
    cattn_join_result result;
    if (s->declined || cattn_seq_join(m->runner.cache, c->tokens, c->n_tokens, &options, &s->seq, &result, NULL) != CATTN_OK)
        return false;
    s->declined = !is_worth(m, d, c->n_tokens - result.n_ready);
    if (s->declined) forget(m, c);
    return !s->declined;
}

/* Make the sequence's tokens equal to the choice's. False: chunks are lacking, or it is not worth the rows. */
static bool catch_up(draft_model *m, const cl_draft *d) {
    cl_choice *c = d->choice;
    cl_draft_seq *s = &c->model_seq;
    if (s->seq == 0) {
        if (!join(m, d)) return false;
    } else {
        const int64_t n = n_common(c);
        if (cattn_seq_truncate(m->runner.cache, s->seq, n, NULL) != CATTN_OK ||
            cattn_seq_append(m->runner.cache, s->seq, c->tokens + n, c->n_tokens - n, NULL) != CATTN_OK) {
            forget(m, c);
            return false;
        }
    }
    s->n_tokens = c->n_tokens;
    s->n_drafted = 0;
    return true;
}

/* ---- Steps ---- */

/*
 * Keep the drafts active whose last token is computed in this step, and choose the logits of that token. The other drafts are
 * in the middle of a long prompt, or another sequence computes their last token.
 */
static void choose_logits(void *drafter, cl_runner *r) {
    draft_model *m = drafter;
    int32_t row = 0, n_kept = 0;
    for (int32_t i = 0; i < r->n_entries; i++) {
        const cattn_entry *e = &r->entries[i];
        row += (int32_t)e->n_rows;
        if (e->n_rows == 0 || e->first_pos + e->n_rows < m->active[i]->choice->model_seq.n_tokens) continue;
        r->logit_rows[n_kept] = row - 1;
        m->active[n_kept++] = m->active[i];
    }
    m->n_active = r->n_logits = n_kept;
}

/* One step over the active drafts. False: nothing was computed. */
static bool run_step(draft_model *m) {
    cl_runner *r = &m->runner;
    cl_runner_clear(r);
    for (int32_t i = 0; i < m->n_active; i++) {
        const cl_choice *c = m->active[i]->choice;
        cl_runner_add(r, c->model_seq.seq, r->max_rows, c->tokens); /* drafted tokens follow the choice's own */
    }
    return m->n_active > 0 && cl_runner_step(r, r->max_rows, choose_logits, m, NULL) == CL_OK && r->n_rows > 0;
}

static void draw_one(void *arg, int32_t task, int32_t worker) {
    draft_model *m = arg;
    cl_draft *d = m->active[task];
    cl_choice *c = d->choice;
    const int64_t position = c->n_tokens + d->n;
    const cl_engine_request *params = &c->owner->params;
    const float *computed = m->runner.logits + (size_t)task * (size_t)m->runner.model->params.n_vocab;
    const float *logits =
        cl_sampler_restrict(m->samplers[worker], &c->owner->rules, computed, c->tokens, params->n_prompt, position);
    const int32_t token = cl_sampler_draw(m->samplers[worker], &params->sampling, &params->cuts, logits,
                                          cl_choice_history(c, position), c->index, position);
    c->tokens[position] = token;
    d->tokens[d->n++] = token;
    d->ranks[d->n - 1] = CL_CHANCE_RANKS - 1;
}

/* Append the drawn tokens, and keep the drafts active that may get another one. */
static void append_drawn(draft_model *m) {
    int32_t n_kept = 0;
    for (int32_t i = 0; i < m->n_active; i++) {
        cl_draft *d = m->active[i];
        cl_draft_seq *s = &d->choice->model_seq;
        const int32_t token = d->tokens[d->n - 1];
        if (d->n == d->n_max || cattn_seq_append(m->runner.cache, s->seq, &token, 1, NULL) != CATTN_OK) continue;
        s->drafted[s->n_drafted++] = token;
        s->n_tokens++;
        m->active[n_kept++] = d;
    }
    m->n_active = n_kept;
}

static void propose(cl_drafter *base, cl_draft *drafts, int32_t n_drafts) {
    draft_model *m = (draft_model *)base;
    m->n_active = 0;
    for (int32_t i = 0; i < n_drafts; i++) {
        drafts[i].n = 0;
        if (drafts[i].n_max > 0 && catch_up(m, &drafts[i])) m->active[m->n_active++] = &drafts[i];
    }
    while (run_step(m)) {
        if (m->n_active > 0) ca_pool_run(m->pool, m->n_active, draw_one, m);
        append_drawn(m);
    }
}

static void leave(cl_drafter *base, cl_choice *c) { forget((draft_model *)base, c); }

static void drop_left(cl_drafter *base) { cattn_cache_drop_retained(((draft_model *)base)->runner.cache, NULL); }

/* Sequences that find no chunks under a lower budget leave when they are to draft next: see catch_up. */
static void set_budget(cl_drafter *base, double part) {
    draft_model *m = (draft_model *)base;
    cattn_cache_set_budget(m->runner.cache, (uint64_t)(part * (double)m->budget), NULL);
}

/* ---- Life ---- */

static cl_status check_vocabulary(const cl_model *m, const cl_model *target, cl_error *error) {
    if (m->params.n_vocab != target->params.n_vocab)
        return cl_fail(error, CL_ERR_ARG, "the draft model has %d tokens, the model %d; choose one of the same family",
                       m->params.n_vocab, target->params.n_vocab);
    for (int32_t id = 0; id < m->params.n_vocab; id++) {
        char a[256], b[256];
        const size_t n_a = cl_tokenizer_piece(m->tok, id, true, a, sizeof a),
                     n_b = cl_tokenizer_piece(target->tok, id, true, b, sizeof b);
        if (n_a != n_b || memcmp(a, b, n_a < sizeof a ? n_a : sizeof a) != 0)
            return cl_fail(error, CL_ERR_ARG,
                           "token %d is '%.*s' in the draft model, '%.*s' in the model; choose one of the same family", id,
                           n_a < 40 ? (int)n_a : 40, a, n_b < 40 ? (int)n_b : 40, b);
    }
    return CL_OK;
}

static bool allocate(draft_model *m, int32_t max_seqs) {
    m->active = calloc((size_t)max_seqs, sizeof(cl_draft *));
    m->samplers = cl_samplers_create(ca_pool_size(m->pool), m->runner.model->params.n_vocab);
    return m->active && m->samplers;
}

static void free_model(cl_drafter *base) {
    draft_model *m = (draft_model *)base;
    cl_samplers_free(&m->samplers, ca_pool_size(m->pool));
    cl_runner_free(&m->runner);
    free((void *)m->active);
    free(m);
}

cl_status cl_draft_model_create(const cl_model *small, const cl_model *target, ca_pool *pool, const cl_engine_config *config,
                                cl_drafter **out, cl_error *error) {
    *out = NULL;
    cl_status status = check_vocabulary(small, target, error);
    if (status != CL_OK) return status;
    draft_model *m = calloc(1, sizeof *m);
    if (!m) return cl_fail(error, CL_ERR_NOMEM, "no memory for the draft model");
    m->base =
        (cl_drafter){.propose = propose, .leave = leave, .drop_left = drop_left, .set_budget = set_budget, .free = free_model};
    if (target->weights.bytes > 0) m->base.token_cost = (float)small->weights.bytes / (float)target->weights.bytes;
    m->pool = pool;
    m->row_cost = config->row_cost;
    cl_engine_config own = *config;
    own.kv_tier_dir = NULL; /* which K/V of drafts are worth a disk's time is not known */
    own.kv_tier_bytes = 0;
    /* Memory for as many tokens as the cache of the engine's model has. */
    m->budget = config->kv_budget_bytes / cl_params_kv_bytes(&target->params, 1, 0) * cl_params_kv_bytes(&small->params, 1, 0);
    status = cl_runner_init(&m->runner, small, pool, &own, m->budget, config->max_seqs, config->max_step_rows, config->max_seqs,
                            error);
    if (status == CL_OK && !allocate(m, config->max_seqs))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for the draft model's steps");
    if (status != CL_OK) {
        free_model(&m->base);
        return status;
    }
    *out = &m->base;
    return CL_OK;
}
