/* The types of tensors whose weights can be multiplied: the layout each is packed in, and how its blocks are decoded. */
#ifndef LLAMA_LINEAR_QUANT_BLOCK_H
#define LLAMA_LINEAR_QUANT_BLOCK_H

#include <stdint.h>

#include "linear_format.h"
#include "llama/file/tensor.h"

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

/* CL_LINEAR_N_LAYOUTS: none. */
static inline cl_linear_layout cl_linear_layout_of(uint32_t type) {
    if (type == CL_TENSOR_F32) return CL_LINEAR_F32;
    if (type == CL_TENSOR_F16) return CL_LINEAR_F16;
    if (type == CL_TENSOR_BF16) return CL_LINEAR_BF16;
    const cl_quant_type *t = cl_quant_type_of(type);
    return t ? t->layout : CL_LINEAR_N_LAYOUTS;
}

/* Of cl_linear_task; NULL: the layout has none. */
static inline const uint8_t *cl_linear_table_of(uint32_t type) {
    const cl_quant_type *t = cl_quant_type_of(type);
    return t ? t->table : NULL;
}

#endif
