/* Rows of a tensor as they lie in the file. */
#include "tensor_row.h"

#include <assert.h>
#include <string.h>

#include "base/half.h"

size_t tensor_row_bytes(uint32_t type, int64_t n) {
    const size_t count = (size_t)n;
    switch (type) {
    case TENSOR_F32: return count * 4;
    case TENSOR_Q4_0: return count / TENSOR_BLOCK * TENSOR_Q4_0_BYTES;
    case TENSOR_Q4_1: return count / TENSOR_BLOCK * TENSOR_Q4_1_BYTES;
    case TENSOR_Q8_0: return count / TENSOR_BLOCK * TENSOR_Q8_0_BYTES;
    default: return count * 2;
    }
}

static float load_f16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return ca_f32_from_f16(h);
}

/* A block is its scale d, for Q4_1 a minimum m, then the codes: value k in the low half of byte k, k + 16 in the high half. */
static void block_q4(const uint8_t *block, int has_min, float *out) {
    const float d = load_f16(block), m = has_min ? load_f16(block + 2) : -8 * d;
    const uint8_t *codes = block + (has_min ? 4 : 2);
    for (int k = 0; k < 16; k++) {
        out[k] = d * (float)(codes[k] & 15) + m;
        out[k + 16] = d * (float)(codes[k] >> 4) + m;
    }
}

static void block_q8(const uint8_t *block, float *out) {
    const float d = load_f16(block);
    for (int k = 0; k < TENSOR_BLOCK; k++) out[k] = d * (float)(int8_t)block[2 + k];
}

void tensor_row_f32(const tensor *tensor, int64_t row, float *out) {
    const int64_t n = tensor->ne[0];
    const uint8_t *p = (const uint8_t *)tensor->data + (size_t)row * tensor_row_bytes(tensor->type, n);
    switch (tensor->type) {
    case TENSOR_F32: memcpy(out, p, (size_t)n * 4); return;
    case TENSOR_F16:
        for (int64_t k = 0; k < n; k++) out[k] = load_f16(p + 2 * k);
        return;
    case TENSOR_BF16:
        for (int64_t k = 0; k < n; k++) {
            uint16_t h;
            memcpy(&h, p + 2 * k, sizeof h);
            out[k] = ca_f32_from_bf16(h);
        }
        return;
    case TENSOR_Q4_0:
        for (int64_t k = 0; k < n; k += TENSOR_BLOCK, p += TENSOR_Q4_0_BYTES) block_q4(p, 0, out + k);
        return;
    case TENSOR_Q4_1:
        for (int64_t k = 0; k < n; k += TENSOR_BLOCK, p += TENSOR_Q4_1_BYTES) block_q4(p, 1, out + k);
        return;
    case TENSOR_Q8_0:
        for (int64_t k = 0; k < n; k += TENSOR_BLOCK, p += TENSOR_Q8_0_BYTES) block_q8(p, out + k);
        return;
    default: assert(!"a type that model_load lets pass");
    }
}
