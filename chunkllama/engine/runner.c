/* The only code that opens and closes steps: see runner.h. */
#define CATTN_EXPERIMENTAL
#include "runner.h"

#include <stdlib.h>
#include <string.h>

#include "chunkattn_cuda.h"
#include "chunkllama/model/device_model.h"
#include "chunkllama/model/kv_cache.h"
#include "kv_fingerprint.h"

cl_status cl_kv_fail(cattn_status status, const cattn_error *cause, cl_error *error) {
    static const char *const names[][2] = {
        {"budget_bytes", "kv_budget_bytes"}, {"chunk_size", "chunk_size"}, {"kv_type", "kv_type"},
        {"pin_bytes", "pin_bytes"},          {"retention", "retention"},   {"sharing", "sharing"},
        {"tier_bytes", "kv_tier_bytes"},     {"tier_dir", "kv_tier_dir"},
    };
    const size_t size = strcspn(cause->message, " ");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i][0]) == size && memcmp(names[i][0], cause->message, size) == 0)
            return cl_fail_field(error, cl_kv_status(status), names[i][1], "%s", cause->message + size + 1);
    return cl_fail(error, cl_kv_status(status), "K/V cache: %s", cause->message);
}

static cl_status create_cache(cl_runner *r, ca_pool *pool, const cl_engine_config *config, uint64_t budget_bytes,
                              cl_error *error) {
    cattn_config cc;
    cattn_config_init(&cc);
    cl_params_to_cache(&r->model->params, &cc);
    cc.chunk_size = config->chunk_size;
    cc.kv_type = config->kv_type;
    cc.sharing = config->sharing;
    cc.retention = config->retention;
    cc.budget_bytes = budget_bytes;
    cc.pin_bytes = config->pin_bytes;
    cc.n_threads = ca_pool_size(pool);
    cc.level = config->level;
    cc.parallel = (cattn_parallel){.run = ca_pool_run, .ctx = pool};
    const cattn_cuda_config device = {r->model->on_device ? r->model->on_device->device : 0};
    if (r->model->on_device) cc.cuda = &device;
    cc.tier_dir = config->kv_tier_dir;
    cc.tier_bytes = config->kv_tier_bytes;
    const cl_status known = cl_kv_fingerprint(r->model, config->n_ctx, cc.tier_fingerprint, cc.tier_dir ? error : NULL);
    if (cc.tier_dir && known != CL_OK) return known;
    r->has_fingerprint = known == CL_OK && (cc.tier_fingerprint[0] || cc.tier_fingerprint[1]);
    cattn_error cause;
    const cattn_status status = cattn_cache_create(&cc, &r->cache, &cause);
    return status == CATTN_OK ? CL_OK : cl_kv_fail(status, &cause, error);
}

cl_status cl_runner_init(cl_runner *r, const cl_model *m, ca_pool *pool, const cl_engine_config *config, uint64_t budget_bytes,
                         int32_t max_entries, int32_t max_rows, int32_t max_logits, cl_error *error) {
    const size_t n_entries = (size_t)max_entries, n_rows = (size_t)max_rows, n_logits = (size_t)max_logits;
    *r = (cl_runner){.model = m, .max_rows = max_rows};
    cl_status status = create_cache(r, pool, config, budget_bytes, error);
    if (status == CL_OK) status = cl_forward_create(m, r->cache, pool, max_rows, config->n_ctx, &r->forward, error);
    if (status != CL_OK) return status;
    r->entries = calloc(n_entries, sizeof *r->entries);
    r->entry_tokens = calloc(n_entries, sizeof *r->entry_tokens);
    r->tokens = calloc(n_rows, sizeof *r->tokens);
    r->positions = calloc(n_rows, sizeof *r->positions);
    r->logit_rows = calloc(n_logits, sizeof *r->logit_rows);
    r->logits = calloc(n_logits * (size_t)m->params.n_vocab, sizeof *r->logits);
    r->state_rows = calloc(n_rows, sizeof *r->state_rows);
    if (r->entries && r->entry_tokens && r->tokens && r->positions && r->logit_rows && r->logits && r->state_rows) return CL_OK;
    return cl_fail(error, CL_ERR_NOMEM, "no memory for steps of %d sequences, %d rows and %d rows of logits", max_entries,
                   max_rows, max_logits);
}

void cl_runner_free(cl_runner *r) {
    if (r->forward) cl_forward_free(&r->forward);
    cattn_cache_destroy(&r->cache);
    free(r->entries);
    free((void *)r->entry_tokens);
    free(r->tokens);
    free(r->positions);
    free(r->logit_rows);
    free(r->logits);
    free(r->state_rows);
    memset(r, 0, sizeof *r);
}

void cl_runner_clear(cl_runner *r) { r->n_entries = 0; }

void cl_runner_add(cl_runner *r, cattn_seq seq, int64_t max_rows, const int32_t *tokens) {
    r->entry_tokens[r->n_entries] = tokens;
    r->entries[r->n_entries++] = (cattn_entry){.seq = seq, .max_rows = max_rows};
}

/* Fill in tokens and positions of the rows that the entries were given. */
static void fill_rows(cl_runner *r) {
    r->n_rows = 0;
    for (int32_t i = 0; i < r->n_entries; i++) {
        const cattn_entry *e = &r->entries[i];
        for (int64_t p = e->first_pos; p < e->first_pos + e->n_rows; p++, r->n_rows++) {
            r->tokens[r->n_rows] = r->entry_tokens[i][p];
            r->positions[r->n_rows] = p;
        }
    }
}

static cl_status abort_step(cl_runner *r, cl_status status) {
    cattn_step_abort(r->cache, NULL);
    return status;
}

cl_status cl_runner_step(cl_runner *r, int32_t row_limit, cl_runner_choose_rows *choose, void *ctx, cl_error *error) {
    cattn_error cause;
    r->n_rows = r->n_logits = r->n_states = 0;
    cattn_status kv = cl_forward_begin(r->forward, r->entries, r->n_entries, row_limit, &cause);
    if (kv != CATTN_OK) return cl_fail(error, cl_kv_status(kv), "opening a step: %s", cause.message);
    fill_rows(r);
    if (r->n_rows == 0) return abort_step(r, CL_OK);
    choose(ctx, r);
    const cl_forward_output out = {r->logit_rows, r->n_logits,   r->logits,  r->state_rows,
                                   r->n_states,   r->take_state, r->take_ctx};
    const cl_status status = cl_forward_step(r->forward, r->tokens, r->positions, r->n_rows, &out, error);
    if (status != CL_OK) return abort_step(r, status);
    kv = cattn_step_end(r->cache, &cause);
    if (kv == CATTN_OK) return CL_OK;
    return abort_step(r, cl_fail(error, cl_kv_status(kv), "closing a step: %s", cause.message));
}
