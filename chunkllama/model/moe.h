/*
 * The mixture of experts in the place of a feed-forward block, or beside it. A router chooses a few experts for each row, and
 * the sum of their outputs, weighted, is the output. Source: Shazeer et al., arXiv 1701.06538; fine-grained experts and shared
 * ones: DeepSeekMoE, arXiv 2401.06066.
 *
 * Exact: a row's choice and its products do not depend on other rows (router.h, experts.h), and its outputs are added in the
 * order of its choice.
 */
#ifndef CHUNKLLAMA_MODEL_MOE_H
#define CHUNKLLAMA_MODEL_MOE_H

#include "chunkllama/linear/experts.h"
#include "model.h"

/* The workspace of a mixture, for one thread at a time. Model and pool are borrowed until cl_moe_free. */
typedef struct cl_moe cl_moe;

/* For at most max_rows rows, and experts with this activation. NULL: no memory. */
cl_moe *cl_moe_create(const cl_model *m, ca_pool *pool, int32_t max_rows, cl_linear_activate *activate);
void cl_moe_free(cl_moe **moe);

/*
 * Choose the experts of each row of a prepared input for a layer, and take the rows: x [n_rows][n_embd], those that were
 * prepared. Allocates nothing, as the next function.
 */
void cl_moe_route(cl_moe *moe, const cl_layer_weights *layer, const cl_linear_input *in, const float *x, int32_t n_rows);

/* Write the rows' outputs to y [n_rows][n_embd]. has_shared: y holds those of the shared expert, to which they are added. */
void cl_moe_apply(cl_moe *moe, bool has_shared, float *y);

#endif
