/* Lists the choices of a step and chooses which logits it computes: see engine_step.h. */
#include "engine_step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "constraint.h"
#include "embedding.h"

static void take_state(void *step, int32_t row, const float *state);

bool cl_step_init(cl_step *st, cl_runner *runner, int32_t max_seqs) {
    *st = (cl_step){
        .runner = runner,
        .entries = calloc((size_t)max_seqs, sizeof *st->entries),
        .logits_of = calloc((size_t)runner->max_rows, sizeof *st->logits_of),
        .yields_state = calloc((size_t)runner->max_rows, sizeof *st->yields_state),
    };
    runner->take_state = take_state;
    runner->take_ctx = st;
    return st->entries && st->logits_of && st->yields_state;
}

void cl_step_free(cl_step *st) {
    free(st->entries);
    free(st->logits_of);
    free(st->yields_state);
    memset(st, 0, sizeof *st);
}

void cl_step_clear(cl_step *st) {
    cl_runner_clear(st->runner);
    st->n_entries = 0;
    st->scored_rows_left = CL_STEP_SCORED_ROWS;
}

/* The position of the first row of a scored choice whose logits are needed: they are those of the token behind it. */
static int64_t first_scored(const cl_choice *c) { return c->owner->n_scored > 0 ? c->owner->n_scored - 1 : 0; }

/* Whether an entry that was listed before may compute the token of c at `position`: it has the same tokens up to there. */
static bool may_claim(const cl_step *st, const cl_choice *c, int64_t position) {
    for (int32_t i = 0; i < st->n_entries; i++) {
        const cl_choice *other = st->entries[i].choice;
        if (other->n_tokens > position && cl_request_kv_domain(other->owner) == cl_request_kv_domain(c->owner) &&
            memcmp(other->tokens, c->tokens, (size_t)(position + 1) * sizeof *c->tokens) == 0)
            return true;
    }
    return false;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/*
 * The rows that a scored choice may get, at most max_rows. Those before its first scored one do not count, and go to a step of
 * their own: a choice gets the next rows that no entry before it takes, so where one may take these, its own may all be scored.
 */
static int64_t limit_scored(cl_step *st, const cl_choice *c, int64_t max_rows) {
    const int64_t n_missing = cl_step_n_missing(st, c), n_ready = c->n_tokens - n_missing;
    const int64_t n_before = first_scored(c) - n_ready;
    if (n_before > 0 && !may_claim(st, c, n_ready)) return least(max_rows, n_before);
    const int64_t n_scored = n_before > 0 ? n_missing - n_before : n_missing;
    const int64_t n = least(least(max_rows, n_scored), st->scored_rows_left);
    st->scored_rows_left -= (int32_t)n;
    return n;
}

void cl_step_add(cl_step *st, cl_choice *c, int64_t max_rows) {
    if (cl_step_scores(c)) max_rows = limit_scored(st, c, max_rows);
    if (max_rows == 0) return; /* whoever waits for its rows can compute them */
    cl_runner_add(st->runner, c->seq, max_rows, c->tokens);
    st->entries[st->n_entries++] = (cl_step_entry){.choice = c};
}

/* Note the rows that each entry was given. */
static void place_entries(cl_step *st) {
    st->n_rows = 0;
    for (int32_t i = 0; i < st->n_entries; i++) {
        const cattn_entry *granted = &st->runner->entries[i];
        cl_step_entry *e = &st->entries[i];
        e->first_pos = granted->first_pos;
        e->n_rows = granted->n_rows;
        e->first_row = st->n_rows;
        st->n_rows += (int32_t)granted->n_rows;
    }
}

static int32_t row_at(const cl_step_entry *e, int64_t position) {
    const int64_t i = position - e->first_pos;
    return i >= 0 && i < e->n_rows ? e->first_row + (int32_t)i : -1;
}

/*
 * The row that computes the last token of entry e's choice. It may belong to another sequence, which begins with all tokens of
 * this one. It is found by comparing tokens: rows after equal tokens have equal logits.
 */
static int32_t find_last_row(const cl_step *st, const cl_step_entry *e) {
    const cl_choice *c = e->choice;
    const int64_t last = c->n_tokens - 1;
    int32_t row = row_at(e, last);
    if (c->decoding) return row;
    for (int32_t i = 0; row < 0 && i < st->n_entries; i++) {
        const cl_choice *other = st->entries[i].choice;
        if (row_at(&st->entries[i], last) >= 0 && cl_request_kv_domain(other->owner) == cl_request_kv_domain(c->owner) &&
            memcmp(other->tokens, c->tokens, (size_t)c->n_tokens * sizeof *c->tokens) == 0)
            row = row_at(&st->entries[i], last);
    }
    return row;
}

/* Whether the token after the next k ones of a choice needs logits: it is drawn, or its logprob is reported. */
static bool needs_logits(const cl_choice *c, int32_t k) { return k >= cl_constraint_n_forced(c) || c->owner->params.logprobs; }

/* Set logits_of to 0 for the rows whose logits are needed, and to -1 for all others. */
static void mark_logits(cl_step *st) {
    for (int32_t row = 0; row < st->n_rows; row++) st->logits_of[row] = -1;
    for (int32_t i = 0; i < st->n_entries; i++) {
        cl_step_entry *e = &st->entries[i];
        e->last_row = find_last_row(st, e);
        e->n_drawn = e->choice->decoding ? e->first_row + (int32_t)e->n_rows - e->last_row : 1;
        if (e->choice->owner->params.max_tokens == 0) e->n_drawn = 0;
        for (int32_t k = 0; k < e->n_drawn && e->last_row >= 0; k++)
            if (needs_logits(e->choice, k)) st->logits_of[e->last_row + k] = 0;
        if (!cl_step_scores(e->choice)) continue;
        const int64_t n_before = first_scored(e->choice) - e->first_pos;
        for (int64_t k = n_before > 0 ? n_before : 0; k < e->n_rows; k++) st->logits_of[e->first_row + k] = 0;
    }
}

static bool pools(const cl_step_entry *e, cl_engine_pooling pooling) { return e->choice->owner->params.pooling == pooling; }

/* Set yields_state of all rows. */
static void mark_states(cl_step *st) {
    memset(st->yields_state, 0, (size_t)st->n_rows * sizeof *st->yields_state);
    for (int32_t i = 0; i < st->n_entries; i++) {
        const cl_step_entry *e = &st->entries[i];
        if (pools(e, CL_ENGINE_POOL_LAST) && e->last_row >= 0) st->yields_state[e->last_row] = true;
        for (int32_t k = 0; pools(e, CL_ENGINE_POOL_MEAN) && k < e->n_rows; k++) st->yields_state[e->first_row + k] = true;
    }
}

/* A step that fails after its states were taken is computed again, with the same states, which are ignored then. */
static void take_state(void *step, int32_t row, const float *state) {
    cl_step *st = step;
    for (int32_t i = 0; i < st->n_entries; i++) {
        const cl_step_entry *e = &st->entries[i];
        cl_embedding *embedding = e->choice->owner->embedding;
        if (pools(e, CL_ENGINE_POOL_LAST) && row == e->last_row) cl_embedding_set(embedding, state);
        if (pools(e, CL_ENGINE_POOL_MEAN) && row >= e->first_row && row < e->first_row + e->n_rows)
            cl_embedding_add(embedding, e->first_pos + row - e->first_row, state);
    }
}

static void choose_rows(void *step, cl_runner *r) {
    cl_step *st = step;
    place_entries(st);
    mark_logits(st);
    mark_states(st);
    for (int32_t row = 0; row < st->n_rows; row++) {
        if (st->yields_state[row]) r->state_rows[r->n_states++] = row;
        if (st->logits_of[row] < 0) continue;
        st->logits_of[row] = r->n_logits;
        r->logit_rows[r->n_logits++] = row;
    }
}

cl_status cl_step_run(cl_step *st, int32_t row_limit, cl_error *error) {
    st->n_rows = 0;
    return cl_runner_step(st->runner, row_limit, choose_rows, st, error);
}

const float *cl_step_logits(const cl_step *st, int32_t row) {
    if (st->logits_of[row] < 0) return NULL;
    return st->runner->logits + (size_t)st->logits_of[row] * (size_t)st->runner->model->params.n_vocab;
}

int64_t cl_step_n_missing(const cl_step *st, const cl_choice *c) {
    cattn_seq_info info = {.struct_size = sizeof info};
    cattn_seq_get_info(st->runner->cache, c->seq, &info, NULL);
    return info.n_tokens - info.n_ready;
}
