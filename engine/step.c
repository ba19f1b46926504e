/* One step: see step.h. */
#include "step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "llama/kv_status.h"

bool cl_step_init(cl_step *st, cattn_cache *cache, cl_forward *f, int32_t n_vocab, int32_t max_seqs, int32_t max_rows) {
    const size_t n_seqs = (size_t)max_seqs, n_rows = (size_t)max_rows,
                 n_logits = n_seqs + CL_STEP_SCORED_ROWS + CL_STEP_DRAFTED_ROWS;
    *st = (cl_step){
        .cache = cache,
        .forward = f,
        .n_vocab = n_vocab,
        .entries = calloc(n_seqs, sizeof *st->entries),
        .dealt = calloc(n_seqs, sizeof *st->dealt),
        .tokens = calloc(n_rows, sizeof *st->tokens),
        .positions = calloc(n_rows, sizeof *st->positions),
        .logits_of = calloc(n_rows, sizeof *st->logits_of),
        .logit_rows = calloc(n_logits, sizeof *st->logit_rows),
        .logits = calloc(n_logits * (size_t)n_vocab, sizeof *st->logits),
    };
    return st->entries && st->dealt && st->tokens && st->positions && st->logits_of && st->logit_rows && st->logits;
}

void cl_step_free(cl_step *st) {
    free(st->entries);
    free(st->dealt);
    free(st->tokens);
    free(st->positions);
    free(st->logits_of);
    free(st->logit_rows);
    free(st->logits);
    memset(st, 0, sizeof *st);
}

void cl_step_clear(cl_step *st) {
    st->n_entries = 0;
    st->scored_rows_left = CL_STEP_SCORED_ROWS;
}

void cl_step_add(cl_step *st, cl_choice *c, int64_t max_rows) {
    if (cl_step_scores(c)) {
        if (max_rows > st->scored_rows_left) max_rows = st->scored_rows_left;
        if (max_rows == 0) return; /* nobody else waits for its rows: it shares with no other request */
        st->scored_rows_left -= (int32_t)max_rows;
    }
    st->dealt[st->n_entries] = (cattn_entry){.seq = c->seq, .max_rows = max_rows};
    st->entries[st->n_entries++] = (cl_step_entry){.choice = c};
}

/* Tokens and positions of the rows dealt. */
static void fill_rows(cl_step *st) {
    int32_t row = 0;
    for (int32_t i = 0; i < st->n_entries; i++) {
        cl_step_entry *e = &st->entries[i];
        e->first_pos = st->dealt[i].first_pos;
        e->n_rows = st->dealt[i].n_rows;
        e->first_row = row;
        for (int64_t p = e->first_pos; p < e->first_pos + e->n_rows; p++, row++) {
            st->tokens[row] = e->choice->tokens[p];
            st->positions[row] = p;
            st->logits_of[row] = -1;
        }
    }
    st->n_rows = row;
}

static int32_t row_at(const cl_step_entry *e, int64_t position) {
    const int64_t i = position - e->first_pos;
    return i >= 0 && i < e->n_rows ? e->first_row + (int32_t)i : -1;
}

/*
 * The row that computes the last token of entry e's choice. A sequence that begins with all of another one's tokens may have
 * been dealt that row. It is found by comparing tokens: rows behind equal tokens have equal logits.
 */
static int32_t find_last_row(const cl_step *st, const cl_step_entry *e) {
    const cl_choice *c = e->choice;
    const int64_t last = c->n_tokens - 1;
    int32_t row = row_at(e, last);
    if (c->decoding) return row;
    for (int32_t i = 0; row < 0 && i < st->n_entries; i++) {
        const cl_choice *other = st->entries[i].choice;
        if (row_at(&st->entries[i], last) >= 0 && other->owner->asked.domain == c->owner->asked.domain &&
            memcmp(other->tokens, c->tokens, (size_t)c->n_tokens * sizeof *c->tokens) == 0)
            row = row_at(&st->entries[i], last);
    }
    return row;
}

/* List the rows whose logits are wanted; returns how many. */
static int32_t want_logits(cl_step *st) {
    for (int32_t i = 0; i < st->n_entries; i++) {
        cl_step_entry *e = &st->entries[i];
        e->last_row = find_last_row(st, e);
        e->n_drawn = e->choice->decoding ? e->first_row + (int32_t)e->n_rows - e->last_row : 1;
        for (int32_t k = 0; k < e->n_drawn && e->last_row >= 0; k++) st->logits_of[e->last_row + k] = 0;
        if (!cl_step_scores(e->choice)) continue;
        for (int64_t k = 0; k < e->n_rows; k++) st->logits_of[e->first_row + k] = 0;
    }
    int32_t n = 0;
    for (int32_t row = 0; row < st->n_rows; row++) {
        if (st->logits_of[row] < 0) continue;
        st->logits_of[row] = n;
        st->logit_rows[n++] = row;
    }
    return n;
}

static cl_status fail(cl_error *error, const char *call, const cattn_error *cause) {
    return cl_fail(error, cl_kv_status(cause->code), "%s: %s", call, cause->message);
}

cl_status cl_step_run(cl_step *st, int32_t row_limit, cl_error *error) {
    cattn_error cause;
    if (cattn_step_begin(st->cache, st->dealt, st->n_entries, row_limit, &cause) != CATTN_OK)
        return fail(error, "opening a step", &cause);
    fill_rows(st);
    assert(st->n_rows > 0); /* whoever is first in line has a token that nobody computes yet */
    const int32_t n_logits = want_logits(st);
    const cl_status status =
        cl_forward_step(st->forward, st->tokens, st->positions, st->n_rows, st->logit_rows, n_logits, st->logits, error);
    if (status != CL_OK) {
        cattn_step_abort(st->cache, NULL);
        return status;
    }
    if (cattn_step_end(st->cache, &cause) != CATTN_OK) {
        cattn_step_abort(st->cache, NULL);
        return fail(error, "closing a step", &cause);
    }
    return CL_OK;
}

const float *cl_step_logits(const cl_step *st, int32_t row) {
    return st->logits + (size_t)st->logits_of[row] * (size_t)st->n_vocab;
}

int64_t cl_step_n_missing(const cl_step *st, const cl_choice *c) {
    cattn_seq_info info = {.struct_size = sizeof info};
    cattn_seq_get_info(st->cache, c->seq, &info, NULL);
    return info.n_tokens - info.n_ready;
}
