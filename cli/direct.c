/* The model and a cache of its own, stepped by hand. */
#include "direct.h"

#include <stdlib.h>

#include "engine/model_cache.h"
#include "llama/kv_status.h"

cl_status direct_fail(const cattn_error *cause, cl_error *error) {
    return cl_fail(error, cl_kv_status(cause->code), "%s%s", cause->message,
                   cause->code == CATTN_ERR_BUDGET ? " (--kv-budget raises it)" : "");
}

static cl_status make_cache(direct *d, const options *opt, cl_error *error) {
    cl_engine_config config;
    const cl_status status = session_engine_config(&d->s, opt, opt->max_seqs, &config, error);
    if (status != CL_OK) return status;
    config.retention = CATTN_RETAIN_NONE;
    return cl_model_cache_create(&d->s.model->params, d->s.pool, &config, config.kv_budget_bytes, &d->cache, error);
}

cl_status direct_open(direct *d, const options *opt, int32_t max_rows, int32_t max_logits, cl_error *error) {
    cl_status status = session_load(&d->s, opt, error);
    if (status == CL_OK) status = make_cache(d, opt, error);
    if (status == CL_OK) status = cl_forward_create(d->s.model, d->cache, d->s.pool, max_rows, &d->forward, error);
    if (status != CL_OK) return status;
    const size_t rows = (size_t)max_rows, n_logits = (size_t)max_logits;
    d->max_rows = max_rows;
    d->max_logits = max_logits;
    d->entries = calloc(rows, sizeof *d->entries);
    d->entry_seq = calloc(rows, sizeof *d->entry_seq);
    d->tokens = calloc(rows, sizeof *d->tokens);
    d->positions = calloc(rows, sizeof *d->positions);
    d->logit_rows = calloc(n_logits, sizeof *d->logit_rows);
    d->logits = calloc(n_logits * (size_t)d->s.model->params.n_vocab, sizeof *d->logits);
    if (d->entries && d->entry_seq && d->tokens && d->positions && d->logit_rows && d->logits) return CL_OK;
    return cl_fail(error, CL_ERR_NOMEM, "no memory for steps of %d rows and %d rows of logits", max_rows, max_logits);
}

void direct_close(direct *d) {
    if (d->forward) cl_forward_free(&d->forward);
    cattn_cache_destroy(&d->cache);
    free(d->entries);
    free(d->entry_seq);
    free(d->tokens);
    free(d->positions);
    free(d->logit_rows);
    free(d->logits);
    session_close(&d->s);
}

cl_status direct_join(direct *d, const int32_t *tokens, int64_t n_tokens, direct_seq *seq, cl_error *error) {
    cattn_error cause;
    *seq = (direct_seq){.tokens = tokens, .n_tokens = n_tokens};
    if (cattn_seq_join(d->cache, tokens, n_tokens, NULL, &seq->seq, NULL, &cause) == CATTN_OK) return CL_OK;
    return direct_fail(&cause, error);
}

/* Entries for the sequences that have tokens left, as many as there are rows. */
static int32_t fill_entries(direct *d, const direct_seq *seqs, int32_t n_seqs, int64_t piece) {
    int32_t n = 0;
    for (int32_t i = 0; i < n_seqs && n < d->max_rows; i++) {
        const int64_t left = seqs[i].n_tokens - seqs[i].n_ready;
        if (left <= 0) continue;
        d->entries[n] = (cattn_entry){.seq = seqs[i].seq, .max_rows = piece && piece < left ? piece : left};
        d->entry_seq[n++] = i;
    }
    return n;
}

/* The step's rows, and which of them give logits. */
static void fill_rows(direct *d, const direct_seq *seqs, int32_t n_entries, direct_want want, int32_t *n_rows,
                      int32_t *n_logits) {
    *n_rows = *n_logits = 0;
    for (int32_t e = 0; e < n_entries; e++) {
        const direct_seq *s = &seqs[d->entry_seq[e]];
        for (int64_t i = 0; i < d->entries[e].n_rows; i++) {
            const int64_t position = d->entries[e].first_pos + i;
            d->tokens[*n_rows] = s->tokens[position];
            d->positions[*n_rows] = position;
            if (want == WANT_ALL || position == s->n_tokens - 1) d->logit_rows[(*n_logits)++] = *n_rows;
            (*n_rows)++;
        }
    }
}

cl_status direct_step(direct *d, direct_seq *seqs, int32_t n_seqs, int64_t piece, direct_want want, int32_t *n_rows,
                      int32_t *n_logits, cl_error *error) {
    *n_rows = *n_logits = 0;
    const int32_t n_entries = fill_entries(d, seqs, n_seqs, piece);
    if (!n_entries) return CL_OK;
    cattn_error cause;
    if (cattn_step_begin(d->cache, d->entries, n_entries, d->max_rows, &cause) != CATTN_OK) return direct_fail(&cause, error);
    fill_rows(d, seqs, n_entries, want, n_rows, n_logits);
    const cl_status status =
        cl_forward_step(d->forward, d->tokens, d->positions, *n_rows, d->logit_rows, *n_logits, d->logits, error);
    if (status != CL_OK) {
        cattn_step_abort(d->cache, NULL);
        return status;
    }
    if (cattn_step_end(d->cache, &cause) != CATTN_OK) return direct_fail(&cause, error);
    for (int32_t e = 0; e < n_entries; e++) {
        direct_seq *s = &seqs[d->entry_seq[e]];
        cattn_seq_info info = {.struct_size = sizeof info};
        if (cattn_seq_get_info(d->cache, s->seq, &info, &cause) != CATTN_OK) return direct_fail(&cause, error);
        s->n_ready = info.n_ready;
    }
    return CL_OK;
}
