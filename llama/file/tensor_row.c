/* Rows of a tensor as they lie in the file. */
#include "tensor_row.h"

#include <assert.h>
#include <string.h>

#include "base/half.h"
#include "llama/linear/quant_block.h"

size_t cl_tensor_row_bytes(uint32_t type, int64_t n) {
    uint32_t elements = 1, bytes = 0;
    const bool readable = cl_tensor_block(type, &elements, &bytes);
    assert(readable);
    (void)readable;
    return (size_t)n / elements * bytes;
}

static uint16_t load_u16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

/* n values of a block. The products are exact in f32, so each value rounds once, where a minimum is added. */
static void block_f32(const cl_quant_type *type, const uint8_t *block, int n, float *out) {
    const cl_linear_format f = cl_linear_formats[type->layout];
    cl_quant_block parts;
    type->decode(block, &parts);
    const float d = ca_f32_from_f16(load_u16(block + type->d_at));
    const float m = f.min ? ca_f32_from_f16(load_u16(block + type->m_at)) : 0;
    for (int k = 0; k < n; k++) {
        const int g = k / f.group, code = type->table ? type->table[parts.codes[k]] : parts.codes[k];
        out[k] = (f.super ? d * (float)parts.d[g] : d) * (float)(code - f.zero);
        if (f.min) out[k] += f.super ? -m * (float)parts.m[g] : m;
    }
}

void cl_tensor_row_f32(const cl_tensor *tensor, int64_t row, float *out) {
    const int64_t n = tensor->ne[0];
    const uint8_t *p = (const uint8_t *)tensor->data + (size_t)row * cl_tensor_row_bytes(tensor->type, n);
    const cl_quant_type *type = cl_quant_type_of(tensor->type);
    if (type) {
        uint32_t elements = 1, bytes = 0;
        cl_tensor_block(tensor->type, &elements, &bytes);
        for (int64_t k = 0; k < n; k += elements, p += bytes) block_f32(type, p, (int)elements, out + k);
        return;
    }
    switch (tensor->type) {
    case CL_TENSOR_F32: memcpy(out, p, (size_t)n * 4); return;
    case CL_TENSOR_F16:
        for (int64_t k = 0; k < n; k++) out[k] = ca_f32_from_f16(load_u16(p + 2 * k));
        return;
    case CL_TENSOR_BF16:
        for (int64_t k = 0; k < n; k++) out[k] = ca_f32_from_bf16(load_u16(p + 2 * k));
        return;
    default: assert(!"a type that cl_model_load lets pass");
    }
}
