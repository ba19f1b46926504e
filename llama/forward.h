/*
 * The forward pass of a llama model over one step of a chunkattn cache: token ids in, logits of chosen rows out.
 */
#ifndef LLAMA_FORWARD_H
#define LLAMA_FORWARD_H

#include "chunkattn.h"
#include "model.h"

typedef struct cl_forward cl_forward;

/*
 * A workspace for steps of up to max_rows rows, for one thread at a time. Model, cache and pool are borrowed until
 * cl_forward_free. CL_ERR_ARG: max_rows is below 1; CL_ERR_NOMEM.
 */
cl_status cl_forward_create(const cl_model *m, cattn_cache *cache, ca_pool *pool, int32_t max_rows, cl_forward **f,
                            cl_error *error);
void cl_forward_free(cl_forward **f);

/*
 * Run all layers for the rows of the cache's open step.
 * tokens, positions: [n_rows], in the step's row order. logit_rows: [n_logits] ascending row indices whose logits are wanted;
 * logits: [n_logits][n_vocab] f32, the caller's. The caller ends or aborts the step. Allocates nothing.
 */
cl_status cl_forward_step(cl_forward *f, const int32_t *tokens, const int64_t *positions, int32_t n_rows,
                          const int32_t *logit_rows, int32_t n_logits, float *logits, cl_error *error);

#endif
