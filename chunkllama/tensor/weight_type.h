/* The tensor types whose weights can be multiplied: the layout that each is packed in, and how its blocks are decoded. */
#ifndef CHUNKLLAMA_TENSOR_WEIGHT_TYPE_H
#define CHUNKLLAMA_TENSOR_WEIGHT_TYPE_H

#include "linear_format.h"
#include "tensor.h"

enum { CL_QUANT_MAX_INPUTS = 256, CL_QUANT_MAX_SCALE_GROUPS = 16 };

/* A decoded block of a quantised type: codes and scales in the order of its inputs, with the numbers of its layout. */
typedef struct cl_quant_block {
    uint8_t codes[CL_QUANT_MAX_INPUTS];

    /* Factors of a super-block's f16 scale and minimum, one per scale group; unused by types without super-blocks. */
    int8_t d[CL_QUANT_MAX_SCALE_GROUPS], m[CL_QUANT_MAX_SCALE_GROUPS];

    uint16_t scale; /* the f16 scale of a type whose blocks have it in pieces (cl_quant_type.d_at < 0); unused by others */
} cl_quant_block;

/* A quantised type as it is stored in a file. */
typedef struct cl_quant_type {
    uint32_t type; /* cl_tensor_type */
    cl_linear_layout layout;
    int32_t d_at, m_at;   /* byte offsets in a block of its scale and its f16 minimum; super-blocks subtract their minimum */
    const uint8_t *table; /* [16] weight plus 128 of each code, for layouts with a table; else NULL */
    void (*decode)(const uint8_t *block, cl_quant_block *out);
} cl_quant_type;

/* Where the scale of a block is that `decode` has just decoded to `parts`. */
static inline const uint8_t *cl_quant_scale(const cl_quant_type *type, const uint8_t *block, const cl_quant_block *parts) {
    return type->d_at < 0 ? (const uint8_t *)&parts->scale : block + type->d_at;
}

/* The quantised type with this number (cl_tensor_type), static; NULL: it is not quantised, or cannot be read. */
const cl_quant_type *cl_quant_type_of(uint32_t type);

/* The layout in which a tensor type is packed; CL_LINEAR_N_LAYOUTS: it cannot be multiplied. */
cl_linear_layout cl_linear_layout_of(uint32_t type);

/* cl_linear_task.table of a tensor type, static; NULL: its layout has none. */
const uint8_t *cl_linear_table_of(uint32_t type);

#endif
