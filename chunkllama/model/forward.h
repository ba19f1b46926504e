/* The forward pass of a model over one step of a K/V cache: from token ids to the logits of chosen rows. */
#ifndef CHUNKLLAMA_MODEL_FORWARD_H
#define CHUNKLLAMA_MODEL_FORWARD_H

#include "chunkattn.h"
#include "model.h"

/* What the workspaces of all backends begin with. */
typedef struct cl_forward {
    const struct cl_backend *backend;
    const cl_model *m; /* borrowed */
    int32_t max_rows;
    uint64_t device_bytes; /* of the workspace that is on a device */
} cl_forward;

/*
 * Allocate the workspace of steps of at most max_rows rows, of sequences of at most n_ctx positions, for one thread at a time.
 * n_ctx decides between two rotations where a model has them (rope.h), so K/V of one cannot be used with the other. Model,
 * cache and pool are borrowed until cl_forward_free. CL_ERR_ARG: max_rows is below 1; CL_ERR_NOMEM. *f is NULL then.
 */
cl_status cl_forward_create(const cl_model *m, cattn_cache *cache, ca_pool *pool, int32_t max_rows, int64_t n_ctx,
                            cl_forward **f, cl_error *error);
void cl_forward_free(cl_forward **f);

/* Open a step of the cache, as cattn_step_begin. */
cattn_status cl_forward_begin(cl_forward *f, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error);

/* The results of a step beside K/V. Rows are ascending indices into those of the step. Borrowed for the call only. */
typedef struct cl_forward_output {
    const int32_t *logit_rows; /* [n_logits] the rows whose logits are computed */
    int32_t n_logits;
    float *logits;             /* [n_logits][n_vocab] f32, filled */
    const int32_t *state_rows; /* [n_states] the rows whose final states are computed: the input of the output layer */
    int32_t n_states;
    /* Called for each of state_rows in their order, on the caller's thread. state: [n_embd] f32, valid during the call. */
    void (*take_state)(void *ctx, int32_t row, const float *state);
    void *ctx;
} cl_forward_output;

/*
 * Run all layers over the rows of the cache's open step, which the caller ends or aborts. Allocates nothing.
 *
 * tokens, positions: [n_rows] in the order of the step's rows, borrowed for the call only. After an error *out holds nothing.
 */
cl_status cl_forward_step(cl_forward *f, const int32_t *tokens, const int64_t *positions, int32_t n_rows,
                          const cl_forward_output *out, cl_error *error);

/* For backends: list the rows of *out in rows [], ascending; returns their number. */
int32_t cl_forward_list_rows(const cl_forward_output *out, int32_t *rows);

/*
 * Where a forward pass runs: what differs, behind the functions above, which check the arguments. The cache is one in the same
 * place. A step must be over when `step` returns.
 */
typedef struct cl_backend {
    cl_status (*create)(const cl_model *m, cattn_cache *cache, ca_pool *pool, int32_t max_rows, int64_t n_ctx, cl_forward **f,
                        cl_error *error);
    void (*free)(cl_forward *f);
    cattn_status (*begin)(cl_forward *f, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error);
    cl_status (*step)(cl_forward *f, const int32_t *tokens, const int64_t *positions, int32_t n_rows,
                      const cl_forward_output *out, cl_error *error);
} cl_backend;

extern const cl_backend cl_backend_cpu;  /* forward_cpu.c */
extern const cl_backend cl_backend_cuda; /* chunkllama/model/device_forward.c, for a model that is on a device */

#endif
