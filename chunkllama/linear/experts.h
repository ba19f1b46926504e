/*
 * Products of a mixture of experts: each row is multiplied by the matrices of some experts alone, those that it is routed to.
 *
 * A part is a row at one of its experts. Parts stand in the order of experts and, at one expert, of rows. So all parts of an
 * expert are neighbours, and its weights are read once for them.
 *
 * Exact: the outputs of a part are those that linear.h gives for its row alone, whichever rows have the same expert.
 */
#ifndef CHUNKLLAMA_LINEAR_EXPERTS_H
#define CHUNKLLAMA_LINEAR_EXPERTS_H

#include "linear.h"

/* Some parts of one expert, as many as a task multiplies. */
typedef struct cl_route_block {
    int32_t expert;
    int32_t first, n; /* all parts of the expert */
    int32_t row;      /* of these parts, the block's first one */
    int32_t n_rows;   /* of the block */
} cl_route_block;

/* Which experts each row goes to. */
typedef struct cl_routes {
    int32_t n_experts, n_used; /* experts, and how many of them a row goes to */
    int32_t max_rows, n_rows;
    int32_t *expert; /* [n_rows][n_used] different ones, in the order in which the row's outputs are added; by the caller */
    int32_t *part;   /* [n_rows][n_used] index of the part; by cl_routes_sort, as the rest */
    int32_t *row;    /* [n_rows * n_used] the row of each part */
    int32_t *first;  /* [n_experts + 1] the first part of each expert */
    cl_route_block *blocks;
    int32_t n_blocks;
} cl_routes;

/* NULL: no memory. 1 <= n_used <= n_experts. */
cl_routes *cl_routes_create(int32_t n_experts, int32_t n_used, int32_t max_rows);
void cl_routes_free(cl_routes **routes);

/* Order the parts of n_rows rows, whose experts are set. Allocates nothing. */
void cl_routes_sort(cl_routes *routes, int32_t n_rows);

/*
 * Make the parts' rows the input: x [n_rows][n_in] f32, row_stride floats apart, borrowed for the call. `in` was created for
 * max_rows * n_used rows. gathered: room [max_rows * n_used][n_in] f32, borrowed until the next call, in which the parts' rows
 * are copied; NULL if no matrix reads f32 activations. Allocates nothing, as the next two.
 */
void cl_linear_gather(cl_linear_input *in, cl_routes *routes, const float *x, size_t row_stride, int32_t n_in, float *gathered,
                      ca_pool *pool);

/*
 * As cl_linear_apply_gated, for parts: gate, up and next are arrays of n_experts matrices of one shape and type, biases are
 * [n_experts][n_out].
 */
void cl_linear_apply_gated_experts(const cl_linear_input *in, const cl_routes *routes, const cl_linear_pair *pair, float *h,
                                   const cl_linear *next, cl_linear_input *out, ca_pool *pool);

/* y [parts][n_out] = W x of each part; w: [n_experts]. */
void cl_linear_apply_experts(const cl_linear_input *in, const cl_routes *routes, const cl_linear *w, float *y, ca_pool *pool);

#endif
