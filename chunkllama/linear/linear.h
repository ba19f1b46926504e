/*
 * Linear layers y = W x, with weights that are repacked at load into a few layouts (linear_format.h).
 *
 * Exact: an output is the same function of its row and the weights, bit for bit, for any number of rows and threads: outputs
 * run across vector lanes, inputs are summed in one fixed order, and threads divide outputs or rows only. It is also the same
 * function at all kernel levels, except for BF16 weights at the levels "avx512_bf16" and "amx". The level depends on the CPU,
 * so bits are reproducible on the same machine with the same build and level.
 *
 * Quantised weights are multiplied in integers with activations that are quantised to int8, in blocks of 32 inputs of a row.
 * F32 and F16 weights are multiplied with f32 activations. BF16 weights are too, but from the level "avx512_bf16" on with
 * activations rounded to bf16. (F16 weights would lose 3 bits if they were rounded to bf16.) The level "ref" is the
 * specification in scalar C; linear_kernels.h describes where other levels differ.
 */
#ifndef CHUNKLLAMA_LINEAR_LINEAR_H
#define CHUNKLLAMA_LINEAR_LINEAR_H

#include <stddef.h>
#include <stdint.h>

#include "chunkattn/base/threads.h"
#include "chunkllama/common/error.h"
#include "chunkllama/tensor/tensor.h"

/* The kernels of one level (linear_kernels.h). */
typedef struct cl_kernels cl_kernels;

/* A weight matrix [n_out][n_in], packed in a layout that is the same for all levels. */
typedef struct cl_linear {
    int32_t n_out, n_in;
    uint32_t type; /* cl_tensor_type of the tensor it was packed from */
    void *data;    /* [bytes] packed; owned, unless it is in a room */
    size_t bytes;
    bool in_room;
} cl_linear;

/* Memory for n matrices of one type and size, one behind the other. Zero-initialise, but for n. */
typedef struct cl_linear_room {
    int32_t n, n_packed;
    uint32_t type; /* of all */
    void *data;    /* [bytes] owned; NULL until the first matrix is packed */
    size_t bytes;
} cl_linear_room;

/*
 * The kernels, static, of `level` (NULL: the highest level of this CPU), or of the environment variable CATTN_LEVEL if that is
 * lower. NULL: a name is unknown, or the CPU lacks `level`.
 */
const cl_kernels *cl_kernels_find(const char *level);
/* The name of their level, static. */
const char *cl_kernels_level(const cl_kernels *kernels);
/* The name of the i-th level of this CPU, lowest first; NULL past the last. */
const char *cl_kernels_level_name(int i);

/*
 * Repack a 2-D tensor (of a 3-D one, a cl_tensor_matrix), in parallel on the pool. Both are borrowed for the call; free *out
 * with cl_linear_free. CL_ERR_UNSUPPORTED names tensor and type; CL_ERR_FORMAT: n_in is not a multiple of the type's block;
 * CL_ERR_FILE: the file was truncated since it was opened; CL_ERR_NOMEM.
 */
cl_status cl_linear_pack(const cl_tensor *tensor, ca_pool *pool, cl_linear *out, cl_error *error);
void cl_linear_free(cl_linear *w);

/*
 * The same into the room's next place; the first matrix allocates it. *out borrows it until cl_linear_room_free.
 * CL_ERR_UNSUPPORTED: the tensor's type is another than the first one's; shapes must be equal. At most room->n times.
 */
cl_status cl_linear_pack_into(const cl_tensor *tensor, ca_pool *pool, cl_linear_room *room, cl_linear *out, cl_error *error);
void cl_linear_room_free(cl_linear_room *room);

/* Convert row `row` to f32; out: [n_in]. The bits are those of cl_tensor_row_f32, because packing loses nothing. */
void cl_linear_row_f32(const cl_linear *w, int32_t row, float *out);

/* Bits of a mask: the forms, besides f32, in which a matrix reads its activations. */
enum { CL_LINEAR_IN_INT8 = 1, CL_LINEAR_IN_BF16 = 2 };
unsigned cl_linear_forms(const cl_linear *w);

/*
 * Activations of at most max_rows rows of max_in inputs, in the forms that kernels read, and scratch for n_workers workers.
 * Rows that are prepared once serve several matrices (Q, K and V; gate and up). forms: cl_linear_forms of all these matrices,
 * or-ed. NULL if memory is lacking.
 */
typedef struct cl_linear_input cl_linear_input;
cl_linear_input *cl_linear_input_create(const cl_kernels *kernels, unsigned forms, int32_t max_rows, int32_t max_in,
                                        int n_workers);
void cl_linear_input_free(cl_linear_input **in);

/* Set the rows: x [n_rows][n_in] f32, row_stride floats apart, borrowed until the next cl_linear_set. */
void cl_linear_set(cl_linear_input *in, const float *x, size_t row_stride, int32_t n_rows, int32_t n_in);

/*
 * Convert the rows [8 i, 8 i + 8) of x, as far as they exist, to the forms; called by the thread that has just written them.
 * cl_linear_prepare converts all rows.
 */
void cl_linear_prepare_row_group(cl_linear_input *in, int32_t row_group);
void cl_linear_prepare(cl_linear_input *in, ca_pool *pool);

/* One of several products with the same input. */
typedef struct cl_linear_product {
    const cl_linear *w;
    float *y; /* [n_rows][n_out] f32 */
    size_t y_stride;
} cl_linear_product;

/*
 * A function that is applied to outputs while they are in the cache. The thread that has just computed columns [begin, end) of
 * rows [row, row + n_rows) of product i calls fn(arg, i, row, n_rows, begin, end), in the kernels' floating-point mode. Each
 * output is covered once. Columns are divided at multiples of `unit`, which is a multiple of 16 that divides each product's
 * n_out; 0: at multiples of 16.
 */
typedef struct cl_linear_finish {
    void (*fn)(void *arg, int i, int32_t row, int32_t n_rows, int32_t begin, int32_t end);
    void *arg;
    int32_t unit;
} cl_linear_finish;

/* y = W x for n products (1..4) over all rows of a prepared input; finish may be NULL. Allocates nothing. */
void cl_linear_apply(const cl_linear_input *in, const cl_linear_product *products, int n, const cl_linear_finish *finish,
                     ca_pool *pool);

/* Compute out [n] from gate [n] and up [n], element by element; out may be gate. */
typedef void cl_linear_activate(const float *gate, const float *up, int32_t n, float *out);

/* The first products of a gated feed-forward block; gate and up have the same shape. */
typedef struct cl_linear_pair {
    const cl_linear *gate, *up;
    const float *gate_bias, *up_bias; /* [n_out] added before the activation; NULL: none */
    cl_linear_activate *activate;
} cl_linear_pair;

/*
 * Compute h = activate(gate x + gate_bias, up x + up_bias) and prepare it in `out` as the input of a third matrix, `next`. The
 * bits are those of cl_linear_apply, the additions, activate, cl_linear_set and cl_linear_prepare, but a few outputs at a time
 * go from one product to the next in a thread's own cache. h [n_rows][n_out] f32 is written only if `next` reads f32
 * activations, and is then borrowed until the next cl_linear_set of `out`. Allocates nothing.
 */
void cl_linear_apply_gated(const cl_linear_input *in, const cl_linear_pair *pair, float *h, const cl_linear *next,
                           cl_linear_input *out, ca_pool *pool);

#endif
