/* Blocks of the quantised tensor types as they lie in a file, taken apart into codes and scales. */
#ifndef LLAMA_LINEAR_QUANT_BLOCK_H
#define LLAMA_LINEAR_QUANT_BLOCK_H

#include <stdint.h>

#include "linear_format.h"

enum { CL_QUANT_MAX_INPUTS = 256, CL_QUANT_MAX_GROUPS = 16 };

/* A block's inputs in order, as its type's layout counts them (linear_format.h). */
typedef struct cl_quant_block {
    uint8_t codes[CL_QUANT_MAX_INPUTS];
    int8_t d[CL_QUANT_MAX_GROUPS], m[CL_QUANT_MAX_GROUPS]; /* of super-blocks: factors of the f16 scales, a group each */
} cl_quant_block;

typedef struct cl_quant_type {
    uint32_t type; /* tensor_type */
    cl_linear_layout layout;
    int32_t d_at, m_at;   /* bytes in a block before the f16 scale, and the minimum; super-blocks subtract theirs */
    const uint8_t *table; /* [16] of layouts with a table, else NULL */
    void (*decode)(const uint8_t *block, cl_quant_block *out);
} cl_quant_type;

/* NULL: the type is not a quantised one that can be read. Sizes of blocks: cl_tensor_block. */
const cl_quant_type *cl_quant_type_of(uint32_t type);

#endif
