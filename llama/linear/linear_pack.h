/* Which kernel layout a tensor type is packed in, and what its codes mean. */
#ifndef LLAMA_LINEAR_LINEAR_PACK_H
#define LLAMA_LINEAR_LINEAR_PACK_H

#include "llama/file/tensor.h"
#include "quant_block.h"

/* LINEAR_N_LAYOUTS: none. */
static inline linear_layout linear_layout_of(uint32_t type) {
    if (type == TENSOR_F32) return LINEAR_F32;
    if (type == TENSOR_F16) return LINEAR_F16;
    if (type == TENSOR_BF16) return LINEAR_BF16;
    const quant_type *t = quant_type_of(type);
    return t ? t->layout : LINEAR_N_LAYOUTS;
}

/* Of linear_task; NULL: the layout has none. */
static inline const uint8_t *linear_table_of(uint32_t type) {
    const quant_type *t = quant_type_of(type);
    return t ? t->table : NULL;
}

#endif
