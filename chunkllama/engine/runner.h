/*
 * Runs steps: a model, a K/V cache in its shape, and the workspace of both. A step is opened, its rows are filled in, the
 * forward pass runs, and the step is closed, or aborted where any of these fails: no step stays open.
 *
 * The caller lists one entry for each sequence (cl_runner_clear, cl_runner_add), then calls cl_runner_step. The results
 * are valid until the next step. One thread at a time.
 */
#ifndef CHUNKLLAMA_ENGINE_RUNNER_H
#define CHUNKLLAMA_ENGINE_RUNNER_H

#include "chunkllama/model/forward.h"
#include "engine.h"

/*
 * Fill *error from an error of the cache. Its message begins with the field of cattn_config that is at fault, which gets the
 * name that it has in cl_engine_config. Returns its code. status: not CATTN_OK.
 */
cl_status cl_kv_fail(cattn_status status, const cattn_error *cause, cl_error *error);

typedef struct cl_runner {
    const cl_model *model; /* borrowed */
    cattn_cache *cache;    /* owned */
    cl_forward *forward;   /* owned */
    bool has_fingerprint;  /* the cache knows of what model and program its K/V are */
    int32_t max_rows;

    /* The sequences of the step. cl_runner_step fills in first_pos and n_rows of each entry. */
    cattn_entry *entries;         /* [n_entries] */
    const int32_t **entry_tokens; /* [n_entries] all tokens of each entry's sequence, from position 0; borrowed */
    int32_t n_entries;

    /* The rows of the step, in the order of the entries. */
    int32_t *tokens;    /* [n_rows] */
    int64_t *positions; /* [n_rows] */
    int32_t n_rows;

    /* The rows whose logits are computed, ascending, and their logits. */
    int32_t *logit_rows; /* [n_logits] */
    float *logits;       /* [n_logits][n_vocab] */
    int32_t n_logits;

    /* The rows whose final states are passed to take_state during the step, ascending. */
    int32_t *state_rows; /* [n_states] */
    int32_t n_states;
    void (*take_state)(void *ctx, int32_t row, const float *state); /* as in cl_forward_output; set by the caller if needed */
    void *take_ctx;
} cl_runner;

/*
 * Create the cache, with the K/V type, chunk size, sharing mode, retention and kernel level of *config and a budget of
 * budget_bytes, and the workspace of steps of at most max_entries sequences, max_rows rows and max_logits rows of logits.
 * m and pool are borrowed until cl_runner_free, which is due after a failure too.
 */
cl_status cl_runner_init(cl_runner *r, const cl_model *m, ca_pool *pool, const cl_engine_config *config, uint64_t budget_bytes,
                         int32_t max_entries, int32_t max_rows, int32_t max_logits, cl_error *error);
/* Ignores a runner that is all zeros. */
void cl_runner_free(cl_runner *r);

/* Start a new list of entries. */
void cl_runner_clear(cl_runner *r);
/* Add an entry of at most max_rows >= 1 rows for seq, whose tokens must not change until the step has run. */
void cl_runner_add(cl_runner *r, cattn_seq seq, int64_t max_rows, const int32_t *tokens);

/*
 * Called when the rows of the step are known and not computed yet: fills in logit_rows and n_logits, which is 0 before, and
 * state_rows and n_states likewise. Must not call the cache.
 */
typedef void cl_runner_choose_rows(void *ctx, cl_runner *r);

/*
 * Compute at most row_limit rows, itself at most max_rows. If no entry has a token to compute, n_rows is 0 and nothing else
 * happens. After an error nothing was computed; CL_ERR_LIMIT: the workspace of the rows exceeds the K/V budget.
 */
cl_status cl_runner_step(cl_runner *r, int32_t row_limit, cl_runner_choose_rows *choose, void *ctx, cl_error *error);

#endif
