/* Which kernel layout a tensor type is packed in, and how large a panel of it is. */
#ifndef LLAMA_LINEAR_PACK_H
#define LLAMA_LINEAR_PACK_H

#include "linear_kernels.h"
#include "tensor.h"

/* LINEAR_N_LAYOUTS: none. */
static inline linear_layout linear_layout_of(uint32_t type) {
    switch (type) {
    case TENSOR_F32: return LINEAR_F32;
    case TENSOR_F16: return LINEAR_F16;
    case TENSOR_BF16: return LINEAR_BF16;
    case TENSOR_Q4_0:
    case TENSOR_Q4_1: return LINEAR_Q4;
    case TENSOR_Q8_0: return LINEAR_Q8;
    default: return LINEAR_N_LAYOUTS;
    }
}

static inline size_t linear_panel_bytes(linear_layout layout, int32_t n_in) {
    const size_t n = (size_t)n_in;
    if (layout == LINEAR_Q4) return n / LINEAR_BLOCK * LINEAR_Q4_BYTES;
    if (layout == LINEAR_Q8) return n / LINEAR_BLOCK * LINEAR_Q8_BYTES;
    return n * LINEAR_LANES * (layout == LINEAR_F32 ? 4 : 2);
}

#endif
