/* The tensors of a layer: which there are, what files call them, their shapes, and where they are loaded to. */
#ifndef CHUNKLLAMA_MODEL_LAYER_PARTS_H
#define CHUNKLLAMA_MODEL_LAYER_PARTS_H

#include "weights.h"

enum { CL_TENSOR_NAME_SIZE = 80 };

/* A vector or matrix of a layer, which a tensor has alone or with others. */
typedef struct cl_layer_part {
    char tensor[CL_TENSOR_NAME_SIZE]; /* its name, such as "blk.3.attn_q.weight" */
    int64_t n_in, n_out;              /* n_out rows of n_in values, */
    int64_t first, n_all;             /* from `first` on, of the n_all rows of */
    int64_t index, n_matrices;        /* matrix `index` of the tensor's n_matrices */
    bool as_f32;                      /* a matrix is packed as f32, whatever its type is */
    bool unused;                      /* the file may have it, but the model does without it; nothing is loaded */

    bool is_vector;
    float **vector;       /* where a vector is loaded to */
    cl_linear *matrix;    /* and a matrix */
    cl_linear_room *room; /* where the matrix is packed; NULL: in memory of its own */
} cl_layer_part;

/* A function that is called for each part, and ends the list with its error. */
typedef cl_status cl_layer_part_fn(void *ctx, const cl_layer_part *part);

/*
 * Call fn for each part that a layer must have, or that it may have and the file has. to: the weights that parts are loaded to,
 * whose arrays of experts exist; NULL: parts are only looked at. Returns the error of fn.
 */
cl_status cl_layer_parts(const cl_model_file *file, const cl_model_params *p, int32_t layer, cl_layer_weights *to,
                         cl_layer_part_fn *fn, void *ctx);

#endif
