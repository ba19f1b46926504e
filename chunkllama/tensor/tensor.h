/* A tensor of a model file of any format: name, type, shape and data. Its rows can be read as f32. */
#ifndef CHUNKLLAMA_TENSOR_TENSOR_H
#define CHUNKLLAMA_TENSOR_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/error.h"
#include "chunkllama/common/str.h"

/* The types that can be read, by their numbers in GGUF. */
typedef enum cl_tensor_type {
    CL_TENSOR_F32 = 0,
    CL_TENSOR_F16 = 1,
    CL_TENSOR_Q4_0 = 2,
    CL_TENSOR_Q4_1 = 3,
    CL_TENSOR_Q5_0 = 6,
    CL_TENSOR_Q5_1 = 7,
    CL_TENSOR_Q8_0 = 8,
    CL_TENSOR_Q2_K = 10,
    CL_TENSOR_Q3_K = 11,
    CL_TENSOR_Q4_K = 12,
    CL_TENSOR_Q5_K = 13,
    CL_TENSOR_Q6_K = 14,
    CL_TENSOR_IQ2_XXS = 16,
    CL_TENSOR_IQ2_XS = 17,
    CL_TENSOR_IQ3_XXS = 18,
    CL_TENSOR_IQ1_S = 19,
    CL_TENSOR_IQ4_NL = 20,
    CL_TENSOR_IQ3_S = 21,
    CL_TENSOR_IQ2_S = 22,
    CL_TENSOR_IQ4_XS = 23,
    CL_TENSOR_IQ1_M = 29,
    CL_TENSOR_BF16 = 30,
    CL_TENSOR_TQ1_0 = 34,
    CL_TENSOR_TQ2_0 = 35,
    CL_TENSOR_MXFP4 = 39,
} cl_tensor_type;

/* Types, of which GGUF has the first alone, in which safetensors hold quantised weights; they are read as parts of other
 * tensors. */
enum { CL_TENSOR_I32 = 26, CL_TENSOR_F8_E4M3 = 1000, CL_TENSOR_U8 = 1001 };

typedef struct cl_tensor {
    cl_str name;
    uint32_t type;    /* a cl_tensor_type, or the number of a type that cannot be read */
    int32_t n_dims;   /* 1..4 */
    int64_t ne[4];    /* elements, fastest dimension first; 1 where unused */
    const void *data; /* [bytes] unaligned, borrowed; to be read by cl_tensor_bytes. NULL if the type cannot be read */
    size_t bytes;
    const struct cl_file_bytes *file; /* the file that has the data, borrowed; NULL: they are in memory */

    /* How rows in the form of the type are made, if the file has another form; `data` and `file` are NULL then. Borrowed. */
    const struct cl_tensor_recipe *recipe;
    int64_t recipe_row; /* the recipe's number of the tensor's first row */
} cl_tensor;

/* Makes rows of a tensor from others. */
typedef struct cl_tensor_recipe {
    /* Make n_rows rows from `row` on. out: their bytes. False: a file cannot be read, or memory is lacking. Thread-safe. */
    bool (*make)(const struct cl_tensor_recipe *recipe, int64_t row, int64_t n_rows, uint8_t *out);
} cl_tensor_recipe;

/* Whether a tensor's rows can be read: those of a type that cannot be have neither data nor recipe. */
static inline bool cl_tensor_is_readable(const cl_tensor *tensor) { return tensor->data || tensor->recipe; }

/* The elements and bytes of a block of a type; false if the type cannot be read. */
bool cl_tensor_block(uint32_t type, uint32_t *elements, uint32_t *bytes);

/*
 * The name of a type, such as "Q4_1", also of types that cannot be read; static. "type 99" for unknown ones, valid until the
 * thread's next call.
 */
const char *cl_tensor_type_name(uint32_t type);

/* The i-th type that can be read, in ascending order of their numbers; false past the last. */
bool cl_tensor_readable_type(size_t i, cl_tensor_type *type);

/* Report that the type of a tensor cannot be read: CL_ERR_UNSUPPORTED, with the types that can. */
void cl_tensor_type_error(const cl_tensor *tensor, cl_error *error);
static inline cl_status cl_tensor_fail_type(const cl_tensor *tensor, cl_error *error) {
    cl_tensor_type_error(tensor, error);
    return cl_failed(CL_ERR_UNSUPPORTED);
}

/* The bytes of a row of n values; n is a multiple of the type's block. */
size_t cl_tensor_row_bytes(uint32_t type, int64_t n);

/* Matrix i of a tensor of ne[2] matrices, as a tensor of its own, which borrows what `tensor` borrows. i < ne[2]; ne[3] is 1.
 */
cl_tensor cl_tensor_matrix(const cl_tensor *tensor, int64_t i);

/* Whether cl_tensor_bytes needs buf. */
static inline bool cl_tensor_needs_buffer(const cl_tensor *tensor) { return tensor->file || tensor->recipe; }

/*
 * The n data bytes from `at` on: in memory, or read from the file into buf [n]; with a recipe they are whole rows. NULL: the
 * file is shorter by now, or cannot be read; cl_tensor_fail_read reports that. Thread-safe.
 */
const uint8_t *cl_tensor_bytes(const cl_tensor *tensor, size_t at, size_t n, void *buf);
cl_status cl_tensor_fail_read(const cl_tensor *tensor, cl_error *error);

/* Convert row `row` to f32, as its format defines it. out: [ne[0]]. CL_ERR_FILE as cl_tensor_bytes; CL_ERR_NOMEM. */
cl_status cl_tensor_row_f32(const cl_tensor *tensor, int64_t row, float *out, cl_error *error);

#endif
