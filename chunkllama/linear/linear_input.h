/* Prepared activations, and the product of a cell: a range of panels times a range of rows. For linear.c and experts.c. */
#ifndef CHUNKLLAMA_LINEAR_LINEAR_INPUT_H
#define CHUNKLLAMA_LINEAR_LINEAR_INPUT_H

#include "chunkattn/base/alloc.h"
#include "linear.h"
#include "linear_kernels.h"

enum {
    CL_LINEAR_ROW_BLOCK = 256,    /* rows of a task at most, so that their row groups stay in the second-level cache */
    CL_LINEAR_TASKS_A_WORKER = 6, /* several, so that other threads take over the tasks of a delayed one */
    CL_LINEAR_AT_ONCE = 2         /* panels that kernels multiply at once */
};

struct cl_linear_input {
    const cl_kernels *kernels;
    unsigned forms;
    int32_t max_rows, max_in, n_workers;
    const float *x;
    size_t x_stride;
    int32_t n_rows, n_in;
    uint8_t *row_groups; /* [max_rows][max_in / 32] records of CL_LINEAR_ROW_BYTES each (linear_kernels.h) */
    uint16_t *bf16;      /* [max_rows], cl_linear_bf16_stride(n_in) elements apart */
    uint8_t *scratch;    /* [n_workers] */
    float *pairs;        /* [n_workers] outputs of gate and up that a thread holds */
    size_t row_groups_bytes, bf16_bytes, scratch_bytes;
    ca_alloc alloc;
};

typedef struct cl_linear_cell {
    int32_t begin, end; /* panels */
    int32_t row, n_rows;
} cl_linear_cell;

/* The stride of bf16 rows, in elements: an odd number of cache lines, so that rows do not fall into one set of the cache. */
static inline size_t cl_linear_bf16_stride(int32_t n_in) { return (((size_t)n_in + 31) / 32 | 1) * 32; }

static inline int32_t cl_linear_panels(const cl_linear *w) { return (w->n_out + CL_LINEAR_LANES - 1) / CL_LINEAR_LANES; }

/* The i-th of n equal ranges of panels begins here; ranges are divided at multiples of `unit`. */
static inline int32_t cl_linear_range_begin(int32_t n_panels, int32_t n, int32_t unit, int32_t i) {
    return i == n ? n_panels : (int32_t)((int64_t)n_panels * i / n) / unit * unit;
}

/*
 * The rows of a row group. A kernel derives the same number from the rows of its task, because rows that are divided among
 * tasks form parts of at least min_group_rows.
 */
int32_t cl_linear_group_rows(const cl_linear_input *in);

/* Rows of a task, so that n_rows rows are divided into equal blocks of whole row groups. */
int32_t cl_linear_row_block(const cl_linear_input *in);

/* The form in which w reads activations; 0: f32. */
unsigned cl_linear_form_of(const cl_linear_input *in, const cl_linear *w);

/* Convert n_rows rows of x, from `row` on, to the forms. They end with a multiple of 8, or are one row, or the last ones. */
void cl_linear_prepare_rows(cl_linear_input *in, const float *x, size_t row_stride, int32_t row, int32_t n_rows);

/* Compute a cell of a product. y: where its first output is written. */
void cl_linear_multiply(const cl_linear_input *in, const cl_linear *w, cl_linear_cell c, float *y, size_t y_stride,
                        int32_t worker);

/* A gated product of a cell (cl_linear_apply_gated). */
typedef struct cl_linear_gated {
    cl_linear_pair pair;
    float *h;      /* [n_rows][n_out] if the next matrix reads f32 */
    unsigned form; /* in which the next matrix reads */
    cl_linear_input *out;
} cl_linear_gated;
void cl_linear_multiply_gated(const cl_linear_input *in, const cl_linear_gated *g, cl_linear_cell c, int32_t worker);

/* Ends a task that multiplies, which began with fp = ca_fp_enter(). */
void cl_linear_leave(const cl_linear_input *in, unsigned fp);

#endif
