/* A tensor of a model file, whatever the file's format: name, type, shape and where its data lie. */
#ifndef LLAMA_FILE_TENSOR_H
#define LLAMA_FILE_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama/common/error.h"
#include "llama/common/str.h"

/* Types by their number in GGUF; only those that can be read. */
typedef enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q5_0 = 6,
    TENSOR_Q5_1 = 7,
    TENSOR_Q8_0 = 8,
    TENSOR_Q2_K = 10,
    TENSOR_Q3_K = 11,
    TENSOR_Q4_K = 12,
    TENSOR_Q5_K = 13,
    TENSOR_Q6_K = 14,
    TENSOR_IQ4_NL = 20,
    TENSOR_BF16 = 30,
} tensor_type;

typedef struct tensor {
    str name;
    uint32_t type;    /* may be one that is not in tensor_type */
    int32_t n_dims;   /* 1..4 */
    int64_t ne[4];    /* elements, fastest dimension first; 1 where unused */
    const void *data; /* unaligned; NULL when the type is not in tensor_type */
    size_t bytes;
} tensor;

/* Elements and bytes of a block; false where the type's data cannot be read. */
bool tensor_block(uint32_t type, uint32_t *elements, uint32_t *bytes);

/* "Q4_1"; also of types that cannot be read. "type 99" for unknown ones, until the thread's next call. */
const char *tensor_type_name(uint32_t type);

/* The i-th type that can be read, in the order of their numbers; false past the last. */
bool tensor_readable_type(size_t i, tensor_type *type);

/* Refuse a tensor whose type cannot be read: its name, its type, those that can. */
void tensor_type_error(const tensor *tensor, cl_error *error);
static inline cl_status tensor_fail_type(const tensor *tensor, cl_error *error) {
    tensor_type_error(tensor, error);
    return cl_failed(CL_ERR_UNSUPPORTED);
}

#endif
