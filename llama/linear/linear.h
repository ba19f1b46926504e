/*
 * Linear layers y = W x on quantised weights, repacked at load into few kernels layouts.
 *
 * Exact: an output is the same function of its row and the weights, bit for bit, for any number of rows and threads: outputs
 * run across vector lanes, the inner dimension in one fixed order, and threads split outputs or rows only. It is the same
 * function at any kernels level, but for BF16 weights, with which the levels "avx512_bf16" and "amx" have others than those
 * below them. Which level is taken depends on the CPU, so the same machine, build and level give the same bits.
 *
 * Quantised types multiply activations quantised within a row, int8 per block of 32 inputs, in integers; F32 and F16 weights
 * multiply f32 activations, and so do BF16 weights, but from the level "avx512_bf16" on activations rounded to bf16. Rounded to
 * bf16, F16 weights would lose 3 of their bits, and stay with f32. "ref" is the specification in scalar C; linear_kernels.h has
 * what those levels do otherwise.
 */
#ifndef LLAMA_LINEAR_LINEAR_H
#define LLAMA_LINEAR_LINEAR_H

#include <stddef.h>
#include <stdint.h>

#include "base/threads.h"
#include "llama/common/error.h"
#include "llama/file/tensor.h"

typedef struct cl_kernels cl_kernels; /* one level; linear_kernels.h */

/* One weight matrix [n_out][n_in] in a kernels layout, the same for all levels. */
typedef struct cl_linear {
    int32_t n_out, n_in;
    uint32_t type; /* cl_tensor_type of the tensor it was packed from */
    void *data;    /* packed; owned */
    size_t bytes;
} cl_linear;

/*
 * The kernels, static, of `level` (NULL: the highest level of this CPU), or of CATTN_LEVEL if that is lower. Returns NULL if a
 * name is unknown or the CPU lacks `level`.
 */
const cl_kernels *cl_kernels_find(const char *level);
const char *cl_kernels_level(const cl_kernels *kernels);
/* The name of the i-th level of this CPU, lowest first; NULL past the last. */
const char *cl_kernels_level_name(int i);

/*
 * Repack a 2-D tensor. CL_ERR_UNSUPPORTED names tensor and type; CL_ERR_FORMAT where n_in is no multiple of the type's block.
 */
cl_status cl_linear_pack(const cl_tensor *tensor, ca_pool *pool, cl_linear *out, cl_error *error);
void cl_linear_free(cl_linear *w);

/* The forms besides f32 in which a matrix reads its activations: bits of a mask. */
enum { CL_LINEAR_IN_INT8 = 1, CL_LINEAR_IN_BF16 = 2 };
unsigned cl_linear_forms(const cl_linear *w);

/*
 * Activations of up to max_rows rows of max_in inputs, as a kernels wants them, and scratch for n_workers threads. One
 * preparation serves several matrices (Q, K and V; gate and up). forms: cl_linear_forms of all matrices to come, or-ed.
 */
typedef struct cl_linear_input cl_linear_input;
cl_linear_input *cl_linear_input_create(const cl_kernels *kernels, unsigned forms, int32_t max_rows, int32_t max_in,
                                        int n_workers); /* NULL without memory */
void cl_linear_input_free(cl_linear_input **in);

/* Set the rows: x [n_rows][n_in] f32, row_stride floats apart, borrowed until the next cl_linear_set. */
void cl_linear_set(cl_linear_input *in, const float *x, size_t row_stride, int32_t n_rows, int32_t n_in);

/*
 * Convert the rows of row group i of x, [8 i, 8 i + 8) or as many as there are, to the forms. To be called by the thread that
 * has just written them. cl_linear_prepare converts all rows.
 */
void cl_linear_prepare_row_group(cl_linear_input *in, int32_t row_group);
void cl_linear_prepare(cl_linear_input *in, ca_pool *pool);

/* One product of several over the same input. */
typedef struct cl_linear_product {
    const cl_linear *w;
    float *y; /* [n_rows][n_out] f32 */
    size_t y_stride;
} cl_linear_product;

/*
 * Work on outputs while they are in the cache. The thread that has just computed columns [begin, end) of rows
 * [row, row + n_rows) of product i calls fn(arg, i, row, n_rows, begin, end), in the kernels' floating-point mode; each output
 * is covered once. Columns are split at multiples of `unit`, which is a multiple of 16 and divides each product's n_out; 0: at
 * multiples of 16.
 */
typedef struct cl_linear_finish {
    void (*fn)(void *arg, int i, int32_t row, int32_t n_rows, int32_t begin, int32_t end);
    void *arg;
    int32_t unit;
} cl_linear_finish;

/* y = W x for n products (1..4) over all rows of a prepared input; finish may be NULL. Allocates nothing. */
void cl_linear_apply(const cl_linear_input *in, const cl_linear_product *products, int n, const cl_linear_finish *finish,
                     ca_pool *pool);

/* out [n] from gate and up [n], value by value; out may be gate. */
typedef void cl_linear_activate(const float *gate, const float *up, int32_t n, float *out);

/*
 * h = activate(gate x, up x), prepared in `out` as the input of next, a third matrix; gate and up have one shape. Bits are
 * those of cl_linear_apply, activate, cl_linear_set and cl_linear_prepare, but the values go from one product to the other a
 * few outputs at a time, in a thread's own cache. h [n_rows][n_out] f32 is written only where next multiplies f32 values, and
 * then borrowed until out's next cl_linear_set. Allocates nothing.
 */
void cl_linear_apply_gated(const cl_linear_input *in, const cl_linear *gate, const cl_linear *up, cl_linear_activate *activate,
                           float *h, const cl_linear *next, cl_linear_input *out, ca_pool *pool);

#endif
