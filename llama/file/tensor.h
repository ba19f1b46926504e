/* A tensor of a model file, whatever the file's format: name, type, shape and data, and reading its rows as f32. */
#ifndef LLAMA_FILE_TENSOR_H
#define LLAMA_FILE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama/common/error.h"
#include "llama/common/str.h"

/* Types by their number in GGUF; only those that can be read. */
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
    CL_TENSOR_IQ4_NL = 20,
    CL_TENSOR_BF16 = 30,
} cl_tensor_type;

typedef struct cl_tensor {
    cl_str name;
    uint32_t type;    /* may be one that is not in tensor_type */
    int32_t n_dims;   /* 1..4 */
    int64_t ne[4];    /* elements, fastest dimension first; 1 where unused */
    const void *data; /* unaligned; NULL when the type is not in tensor_type */
    size_t bytes;
} cl_tensor;

/* Elements and bytes of a block; false where the type's data cannot be read. */
bool cl_tensor_block(uint32_t type, uint32_t *elements, uint32_t *bytes);

/* "Q4_1"; also of types that cannot be read. "type 99" for unknown ones, until the thread's next call. */
const char *cl_tensor_type_name(uint32_t type);

/* The i-th type that can be read, in the order of their numbers; false past the last. */
bool cl_tensor_readable_type(size_t i, cl_tensor_type *type);

/* Refuse a tensor whose type cannot be read: its name, its type, those that can. */
void cl_tensor_type_error(const cl_tensor *tensor, cl_error *error);
static inline cl_status cl_tensor_fail_type(const cl_tensor *tensor, cl_error *error) {
    cl_tensor_type_error(tensor, error);
    return cl_failed(CL_ERR_UNSUPPORTED);
}

/* Bytes of a row of n values of a tensor_type; n is a multiple of the type's block. */
size_t cl_tensor_row_bytes(uint32_t type, int64_t n);

/* Row `row` (of ne[0] values) in f32, as the format defines it. */
void cl_tensor_row_f32(const cl_tensor *tensor, int64_t row, float *out);

#endif
