/* A tensor of a model file, whatever the file's format: name, type, shape and where its data lie. */
#ifndef LLAMA_TENSOR_H
#define LLAMA_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "str.h"

/* Types by their number in GGUF; only those that can be read. */
typedef enum tensor_type {
    TENSOR_F32 = 0,
    TENSOR_F16 = 1,
    TENSOR_Q4_0 = 2,
    TENSOR_Q4_1 = 3,
    TENSOR_Q8_0 = 8,
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

#endif
