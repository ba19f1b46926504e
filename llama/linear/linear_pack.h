/* Which kernel layout a tensor type is packed in, and what its codes mean. */
#ifndef LLAMA_LINEAR_LINEAR_PACK_H
#define LLAMA_LINEAR_LINEAR_PACK_H

#include "llama/file/tensor.h"
#include "quant_block.h"

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
