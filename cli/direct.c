/* Runs steps over a model and a cache of its own, without the engine. */
#include "direct.h"

#include <stdlib.h>

#include "chunkllama/model/kv_cache.h"

static const char *budget_hint(cl_status status) { return status == CL_ERR_LIMIT ? " (raise it with --kv-budget)" : ""; }

cl_status direct_fail(const cattn_error *cause, cl_error *error) {
    const cl_status status = cl_kv_status(cause->code);
    return cl_fail(error, status, "%s%s", cause->message, budget_hint(status));
}

cl_status direct_open(cli_direct *d, const cli_options *opt, int32_t max_rows, int32_t max_logits, cl_error *error) {
    cl_engine_config config;
    cl_status status = session_load(&d->s, opt, error);
    if (status == CL_OK) status = session_engine_config(&d->s, opt, opt->max_seqs, &config, error);
    if (status != CL_OK) return status;
    config.retention = CATTN_RETAIN_NONE;
    status = cl_runner_init(&d->runner, d->s.model, d->s.pool, &config, config.kv_budget_bytes, max_rows, max_rows, max_logits,
                            error);
    if (status != CL_OK) return options_name_field(error);
    d->entry_seq = calloc((size_t)max_rows, sizeof *d->entry_seq);
    return d->entry_seq ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory for steps of %d rows", max_rows);
}

void direct_close(cli_direct *d) {
    cl_runner_free(&d->runner);
    free(d->entry_seq);
    session_close(&d->s);
}

cl_status direct_join(cli_direct *d, const int32_t *tokens, int64_t n_tokens, cli_direct_seq *seq, cl_error *error) {
    cattn_error cause;
    *seq = (cli_direct_seq){.tokens = tokens, .n_tokens = n_tokens};
    if (cattn_seq_join(d->runner.cache, tokens, n_tokens, NULL, &seq->seq, NULL, &cause) == CATTN_OK) return CL_OK;
    return direct_fail(&cause, error);
}

/* List an entry for each sequence that has tokens to compute, at most max_rows of them. */
static void list_entries(cli_direct *d, const cli_direct_seq *seqs, int32_t n_seqs, int64_t segment) {
    cl_runner_clear(&d->runner);
    for (int32_t i = 0; i < n_seqs && d->runner.n_entries < d->runner.max_rows; i++) {
        const int64_t left = seqs[i].n_tokens - seqs[i].n_ready;
        if (left <= 0) continue;
        d->entry_seq[d->runner.n_entries] = i;
        cl_runner_add(&d->runner, seqs[i].seq, segment && segment < left ? segment : left, seqs[i].tokens);
    }
}

/* What choose_logits needs: the sequences, and which rows give logits. */
typedef struct selection {
    const cli_direct *d;
    const cli_direct_seq *seqs;
    cli_direct_want want;
} selection;

static void choose_logits(void *ctx, cl_runner *r) {
    const selection *sel = ctx;
    int32_t row = 0;
    for (int32_t e = 0; e < r->n_entries; e++) {
        const cli_direct_seq *s = &sel->seqs[sel->d->entry_seq[e]];
        for (int64_t i = 0; i < r->entries[e].n_rows; i++, row++)
            if (sel->want == WANT_ALL || r->positions[row] == s->n_tokens - 1) r->logit_rows[r->n_logits++] = row;
    }
}

cl_status direct_step(cli_direct *d, cli_direct_seq *seqs, int32_t n_seqs, int64_t segment, cli_direct_want want,
                      cl_error *error) {
    cl_runner *r = &d->runner;
    r->n_rows = r->n_logits = 0;
    list_entries(d, seqs, n_seqs, segment);
    if (r->n_entries == 0) return CL_OK;
    cl_error cause;
    const cl_status status = cl_runner_step(r, r->max_rows, choose_logits, &(selection){d, seqs, want}, &cause);
    if (status != CL_OK) return cl_fail(error, status, "%s%s", cause.message, budget_hint(status));
    for (int32_t e = 0; e < r->n_entries; e++) {
        cli_direct_seq *s = &seqs[d->entry_seq[e]];
        cattn_seq_info info = {.struct_size = sizeof info};
        cattn_error kv_error;
        if (cattn_seq_get_info(r->cache, s->seq, &info, &kv_error) != CATTN_OK) return direct_fail(&kv_error, error);
        s->n_ready = info.n_ready;
    }
    return CL_OK;
}
