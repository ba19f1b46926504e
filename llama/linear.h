/*
 * Linear layers y = W x on quantised weights, repacked at load into few kernel layouts.
 *
 * Exact: an output is the same function of its row and the weights, bit for bit, for any number of rows and threads: outputs
 * run across vector lanes, the inner dimension in one fixed order of blocks of 32, and threads split outputs or rows only.
 *
 * Quantised types multiply activations quantised within a row, int8 per block of 32 inputs, in integers; F32, F16 and BF16
 * weights multiply f32 activations. "ref" is the specification of the same arithmetic in scalar C.
 */
#ifndef LLAMA_LINEAR_H
#define LLAMA_LINEAR_H

#include <stddef.h>
#include <stdint.h>

#include "base/threads.h"
#include "error.h"
#include "gguf.h"

typedef struct linear_kernel linear_kernel; /* one level; linear_kernels.h */

/* One weight matrix [n_out][n_in] in a kernel layout. */
typedef struct linear {
    int32_t n_out, n_in;
    uint32_t type; /* gguf_tensor_type it came from */
    void *data;    /* packed; owned */
    size_t bytes;
} linear;

/* The level's kernels; NULL name: the best this CPU has, lowered by CATTN_LEVEL. NULL if the name is unknown or not supported.
 */
const linear_kernel *linear_kernel_find(const char *level);
const char *linear_kernel_level(const linear_kernel *kernel);
/* Level names of this CPU, lowest first; NULL past the last. */
const char *linear_level_name(int i);

/* Repack a 2-D tensor. CL_ERR_UNSUPPORTED names tensor and type; CL_ERR_FORMAT where n_in is no multiple of the type's block.
 */
cl_status linear_pack(const linear_kernel *kernel, const gguf_tensor *tensor, ca_pool *pool, linear *out, cl_error *error);
void linear_free(linear *w);

/*
 * Activations of up to max_rows rows of n_in inputs, as a kernel wants them. One preparation serves several matrices (Q, K and
 * V; gate and up).
 */
typedef struct linear_input linear_input;
linear_input *linear_input_create(const linear_kernel *kernel, int32_t max_rows, int32_t max_in); /* NULL without memory */
void linear_input_free(linear_input **in);

/* Quantise and tile x [n_rows][n_in] f32, row_stride elements apart. */
void linear_prepare(linear_input *in, const float *x, size_t row_stride, int32_t n_rows, int32_t n_in, ca_pool *pool);

/* y [n_rows][n_out] f32, row_stride elements apart. Allocates nothing. */
void linear_apply(const linear_kernel *kernel, const linear *w, const linear_input *in, float *y, size_t row_stride,
                  ca_pool *pool);

#endif
