/* The forward pass of every backend: see forward.h. */
#include "forward.h"

cl_status cl_forward_create(const cl_model *m, cattn_cache *cache, ca_pool *pool, int32_t max_rows, int64_t n_ctx,
                            cl_forward **f, cl_error *error) {
    *f = NULL;
    if (max_rows < 1) return cl_fail(error, CL_ERR_ARG, "max_rows is %d; it must be at least 1", max_rows);
    const cl_backend *backend = m->on_device ? &cl_backend_cuda : &cl_backend_cpu;
    return backend->create(m, cache, pool, max_rows, n_ctx, f, error);
}

void cl_forward_free(cl_forward **f) {
    if (*f) (*f)->backend->free(*f);
    *f = NULL;
}

cattn_status cl_forward_begin(cl_forward *f, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error) {
    return f->backend->begin(f, entries, n_entries, row_limit, error);
}

int32_t cl_forward_list_rows(const cl_forward_output *out, int32_t *rows) {
    int32_t n = 0;
    for (int32_t i = 0, k = 0; i < out->n_logits || k < out->n_states; n++) {
        const int32_t logit_row = i < out->n_logits ? out->logit_rows[i] : INT32_MAX;
        const int32_t state_row = k < out->n_states ? out->state_rows[k] : INT32_MAX;
        rows[n] = logit_row < state_row ? logit_row : state_row;
        i += logit_row == rows[n];
        k += state_row == rows[n];
    }
    return n;
}

/* Whether rows [n] are ascending indices below n_rows. */
static cl_status check_rows(const char *what, const int32_t *rows, int32_t n, int32_t n_rows, cl_error *error) {
    for (int32_t i = 0; i < n; i++)
        if (rows[i] < 0 || rows[i] >= n_rows || (i > 0 && rows[i] <= rows[i - 1]))
            return cl_fail(error, CL_ERR_ARG, "%s of row %d; allowed: 0 to %d, ascending", what, rows[i], n_rows - 1);
    return CL_OK;
}

cl_status cl_forward_step(cl_forward *f, const int32_t *tokens, const int64_t *positions, int32_t n_rows,
                          const cl_forward_output *out, cl_error *error) {
    const cl_model *m = f->m;
    if (n_rows < 1 || n_rows > f->max_rows)
        return cl_fail(error, CL_ERR_ARG, "a step of %d rows; allowed: 1 to %d", n_rows, f->max_rows);
    for (int32_t i = 0; i < n_rows; i++)
        if (tokens[i] < 0 || tokens[i] >= m->params.n_vocab)
            return cl_fail(error, CL_ERR_ARG, "token %d of row %d; allowed: 0 to %d", tokens[i], i, m->params.n_vocab - 1);
    cl_status status = check_rows("logits", out->logit_rows, out->n_logits, n_rows, error);
    if (status == CL_OK) status = check_rows("state", out->state_rows, out->n_states, n_rows, error);
    if (status != CL_OK) return status;
    return f->backend->step(f, tokens, positions, n_rows, out, error);
}
