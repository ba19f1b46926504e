/* Sizes and names of tensor types. */
#include <stdio.h>

#include "tensor.h"

static bool block(uint32_t elements, uint32_t bytes, uint32_t *out_elements, uint32_t *out_bytes) {
    *out_elements = elements;
    *out_bytes = bytes;
    return true;
}

bool tensor_block(uint32_t type, uint32_t *elements, uint32_t *bytes) {
    switch (type) {
    case TENSOR_F32: return block(1, 4, elements, bytes);
    case TENSOR_F16:
    case TENSOR_BF16: return block(1, 2, elements, bytes);
    case TENSOR_Q4_0: return block(32, 2 + 16, elements, bytes);     /* f16 scale, nibbles */
    case TENSOR_Q4_1: return block(32, 2 + 2 + 16, elements, bytes); /* f16 scale, f16 minimum, nibbles */
    case TENSOR_Q8_0: return block(32, 2 + 32, elements, bytes);     /* f16 scale, int8 */
    default: return false;
    }
}

/* The format's numbers; also of types that cannot be read, so that messages can name them. */
static const char *const type_names[] = {
    [0] = "F32",      [1] = "F16",     [2] = "Q4_0",     [3] = "Q4_1",   [6] = "Q5_0",    [7] = "Q5_1",   [8] = "Q8_0",
    [9] = "Q8_1",     [10] = "Q2_K",   [11] = "Q3_K",    [12] = "Q4_K",  [13] = "Q5_K",   [14] = "Q6_K",  [15] = "Q8_K",
    [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",
    [23] = "IQ4_XS",  [24] = "I8",     [25] = "I16",     [26] = "I32",   [27] = "I64",    [28] = "F64",   [29] = "IQ1_M",
    [30] = "BF16",    [34] = "TQ1_0",  [35] = "TQ2_0",   [39] = "MXFP4",
};

const char *tensor_type_name(uint32_t type) {
    static _Thread_local char unknown[24];
    if (type < sizeof type_names / sizeof *type_names && type_names[type]) return type_names[type];
    snprintf(unknown, sizeof unknown, "type %u", type);
    return unknown;
}
