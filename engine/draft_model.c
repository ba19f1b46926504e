/*
 * Drafts by a second, smaller model with a K/V cache of its own, in which each choice has a sequence from its first draft on.
 *
 * It draws with the choice's parameters, seed and position: where the two models' distributions are alike, so are the draws.
 * A draft takes a step of the small model for each token, of all choices together.
 */
#include <stdlib.h>
#include <string.h>

#include "draft.h"
#include "llama/forward.h"
#include "llama/sampler.h"
#include "model_cache.h"

typedef struct draft_model {
    cl_drafter base;
    const cl_model *model;
    ca_pool *pool;
    cattn_cache *cache;
    cl_forward *forward;
    cl_sampler **samplers; /* [threads of the pool] */
    int32_t max_rows;
    float row_cost;    /* as of the target's steps */
    float forgone;     /* what drafts of choices that were declined since the last that was not might have saved */
    cl_draft **active; /* [n_active] those that draft in the open call, in the order of entries */
    cattn_entry *entries;
    int32_t n_active;
    int32_t *tokens;     /* [max_rows] of a step */
    int64_t *positions;  /* [max_rows] */
    int32_t *logit_rows; /* [max_seqs] */
    float *logits;       /* [max_seqs][n_vocab] */
} draft_model;

/* ---- A choice's sequence ---- */

static void forget(draft_model *m, cl_choice *c) {
    if (c->model_seq.seq != 0) cattn_seq_leave(m->cache, &c->model_seq.seq, NULL);
    c->model_seq.n_tokens = 0;
}

/* Leading tokens that the sequence has as the choice now has them: what it drafted may have come otherwise. */
static int64_t n_common(const cl_choice *c) {
    const cl_draft_seq *s = &c->model_seq;
    int64_t n = s->n_tokens - s->n_drafted;
    for (int32_t i = 0; i < s->n_drafted && n < c->n_tokens && c->tokens[n] == s->drafted[i]; i++) n++;
    return n < c->n_tokens ? n : c->n_tokens - 1; /* the last is computed again: its logits are wanted */
}

/*
 * Whether drafts are worth the rows that they take before the first. A prompt that many share is not worth it for the first of
 * them, so what has been forgone so far counts, too: where nothing is shared, no more is lost by it than might have been saved.
 * A row of a long prompt costs half of what one of a few does.
 */
static bool is_worth(draft_model *m, const cl_draft *d, int64_t n_rows) {
    const float cost = m->base.token_cost * m->row_cost / 2 * (float)n_rows;
    if (cost > d->worth + m->forgone) {
        m->forgone += d->worth;
        return false;
    }
    if (cost > d->worth) m->forgone = 0;
    return true;
}

/* A sequence for the choice, whose tokens are computed if they are worth it, but for those that there are. */
static bool join(draft_model *m, const cl_draft *d) {
    cl_choice *c = d->choice;
    cl_draft_seq *s = &c->model_seq;
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = c->owner->asked.domain;
    cattn_join_result result;
    if (s->declined || cattn_seq_join(m->cache, c->tokens, c->n_tokens, &options, &s->seq, &result, NULL) != CATTN_OK)
        return false;
    s->declined = !is_worth(m, d, c->n_tokens - result.n_ready);
    if (s->declined) forget(m, c);
    return !s->declined;
}

/* Make the sequence's tokens the choice's. False: there is no room for it, or it is not worth it. */
static bool catch_up(draft_model *m, const cl_draft *d) {
    cl_choice *c = d->choice;
    cl_draft_seq *s = &c->model_seq;
    if (s->seq == 0) {
        if (!join(m, d)) return false;
    } else {
        const int64_t n = n_common(c);
        if (cattn_seq_truncate(m->cache, s->seq, n, NULL) != CATTN_OK ||
            cattn_seq_append(m->cache, s->seq, c->tokens + n, c->n_tokens - n, NULL) != CATTN_OK) {
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
 * One step over the active ones. Those whose last token is still to come, after a long prompt, or was computed as another's
 * row, are active no longer. False: nothing was computed.
 */
static bool run_step(draft_model *m) {
    for (int32_t i = 0; i < m->n_active; i++)
        m->entries[i] = (cattn_entry){.seq = m->active[i]->choice->model_seq.seq, .max_rows = m->max_rows};
    if (m->n_active == 0 || cattn_step_begin(m->cache, m->entries, m->n_active, m->max_rows, NULL) != CATTN_OK) return false;
    int32_t row = 0, n_kept = 0;
    for (int32_t i = 0; i < m->n_active; i++) {
        const cl_choice *c = m->active[i]->choice;
        const cattn_entry *e = &m->entries[i];
        for (int64_t p = e->first_pos; p < e->first_pos + e->n_rows; p++, row++) {
            m->tokens[row] = c->tokens[p]; /* a draft's tokens stand behind the choice's own */
            m->positions[row] = p;
        }
        if (e->n_rows == 0 || e->first_pos + e->n_rows < c->model_seq.n_tokens) continue;
        m->logit_rows[n_kept] = row - 1;
        m->active[n_kept++] = m->active[i];
    }
    m->n_active = n_kept;
    const bool ok =
        row > 0 && cl_forward_step(m->forward, m->tokens, m->positions, row, m->logit_rows, n_kept, m->logits, NULL) == CL_OK;
    if (ok && cattn_step_end(m->cache, NULL) == CATTN_OK) return true;
    cattn_step_abort(m->cache, NULL);
    return false;
}

static void draw_one(void *arg, int32_t task, int32_t worker) {
    draft_model *m = arg;
    cl_draft *d = m->active[task];
    cl_choice *c = d->choice;
    const int64_t position = c->n_tokens + d->n;
    const cl_engine_request *asked = &c->owner->asked;
    const float *logits = m->logits + (size_t)task * (size_t)m->model->params.n_vocab;
    const int32_t token = cl_sampler_draw(m->samplers[worker], &asked->sampling, logits, c->tokens, asked->n_prompt, position,
                                          c->index, position);
    c->tokens[position] = token;
    d->tokens[d->n++] = token;
    d->ranks[d->n - 1] = CL_CHANCE_RANKS - 1;
}

/* Go on with those that have been drawn a token and may have another. */
static void append_drawn(draft_model *m) {
    int32_t n_kept = 0;
    for (int32_t i = 0; i < m->n_active; i++) {
        cl_draft *d = m->active[i];
        cl_draft_seq *s = &d->choice->model_seq;
        const int32_t token = d->tokens[d->n - 1];
        if (d->n == d->n_max || cattn_seq_append(m->cache, s->seq, &token, 1, NULL) != CATTN_OK) continue;
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

/* ---- Life ---- */

static cl_status check_vocabulary(const cl_model *m, const cl_model *target, cl_error *error) {
    if (m->params.n_vocab != target->params.n_vocab)
        return cl_fail(error, CL_ERR_ARG, "the draft model has %d tokens, the model %d; take one of the same family",
                       m->params.n_vocab, target->params.n_vocab);
    for (int32_t id = 0; id < m->params.n_vocab; id++) {
        char a[256], b[256];
        const size_t n_a = cl_tokenizer_piece(m->tok, id, true, a, sizeof a),
                     n_b = cl_tokenizer_piece(target->tok, id, true, b, sizeof b);
        if (n_a != n_b || memcmp(a, b, n_a < sizeof a ? n_a : sizeof a) != 0)
            return cl_fail(error, CL_ERR_ARG,
                           "token %d is '%.*s' in the draft model, '%.*s' in the model; take one of the same family", id,
                           n_a < 40 ? (int)n_a : 40, a, n_b < 40 ? (int)n_b : 40, b);
    }
    return CL_OK;
}

static uint64_t kv_size(const cl_model_params *p) {
    return (uint64_t)p->n_layers * (uint64_t)p->n_kv_heads * (uint64_t)p->head_dim;
}

static bool allocate(draft_model *m, int32_t max_seqs) {
    const size_t n_seqs = (size_t)max_seqs, n_rows = (size_t)m->max_rows, n_vocab = (size_t)m->model->params.n_vocab;
    const size_t n_threads = (size_t)ca_pool_size(m->pool);
    m->active = calloc(n_seqs, sizeof(cl_draft *));
    m->entries = calloc(n_seqs, sizeof *m->entries);
    m->tokens = calloc(n_rows, sizeof *m->tokens);
    m->positions = calloc(n_rows, sizeof *m->positions);
    m->logit_rows = calloc(n_seqs, sizeof *m->logit_rows);
    m->logits = calloc(n_seqs * n_vocab, sizeof *m->logits);
    m->samplers = calloc(n_threads, sizeof(cl_sampler *));
    bool ok = m->active && m->entries && m->tokens && m->positions && m->logit_rows && m->logits && m->samplers;
    for (size_t i = 0; ok && i < n_threads; i++) {
        m->samplers[i] = cl_sampler_create(m->model->params.n_vocab);
        ok = m->samplers[i] != NULL;
    }
    return ok;
}

static void free_model(cl_drafter *base) {
    draft_model *m = (draft_model *)base;
    for (int i = 0; m->samplers && i < ca_pool_size(m->pool); i++) cl_sampler_free(&m->samplers[i]);
    cl_forward_free(&m->forward);
    cattn_cache_destroy(&m->cache);
    free((void *)m->samplers);
    free((void *)m->active);
    free(m->entries);
    free(m->tokens);
    free(m->positions);
    free(m->logit_rows);
    free(m->logits);
    free(m);
}

cl_status cl_draft_model_create(const cl_model *small, const cl_model *target, ca_pool *pool, const cl_engine_config *config,
                                cl_drafter **out, cl_error *error) {
    *out = NULL;
    cl_status status = check_vocabulary(small, target, error);
    if (status != CL_OK) return status;
    draft_model *m = calloc(1, sizeof *m);
    if (!m) return cl_fail(error, CL_ERR_NOMEM, "no memory for the draft model");
    m->base = (cl_drafter){.propose = propose, .leave = leave, .free = free_model};
    if (target->weights.bytes > 0) m->base.token_cost = (float)small->weights.bytes / (float)target->weights.bytes;
    m->model = small;
    m->pool = pool;
    m->max_rows = config->max_step_rows;
    m->row_cost = config->row_cost;
    /* room for as many tokens as the model's own cache has */
    const uint64_t budget = config->kv_budget_bytes / kv_size(&target->params) * kv_size(&small->params);
    status = cl_model_cache_create(&small->params, pool, config, budget, &m->cache, error);
    if (status == CL_OK) status = cl_forward_create(small, m->cache, pool, m->max_rows, &m->forward, error);
    if (status == CL_OK && !allocate(m, config->max_seqs))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for the draft model's steps");
    if (status != CL_OK) {
        free_model(&m->base);
        return status;
    }
    *out = &m->base;
    return CL_OK;
}
