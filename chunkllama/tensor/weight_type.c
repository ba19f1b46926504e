/* Decodes the blocks of the quantised tensor types into codes and scales. */
#include "weight_type.h"

#include <string.h>

#include "tensor.h"

/* ---- Blocks of 32 inputs ---- */

/* Read 4-bit codes: input k is in the low half of byte k, input k + 16 in its high half. */
static void nibbles(const uint8_t *in, uint8_t *codes) {
    for (int k = 0; k < 16; k++) {
        codes[k] = in[k] & 15;
        codes[k + 16] = in[k] >> 4;
    }
}

/* Add the fifth bits of codes: that of input k is bit k of a little-endian word. */
static void fifth_bits(const uint8_t *in, uint8_t *codes) {
    for (int k = 0; k < 32; k++) codes[k] |= (uint8_t)((in[k / 8] >> k % 8 & 1) << 4);
}

/* A block is: d, codes. */
static void decode_q4_0(const uint8_t *block, cl_quant_block *out) { nibbles(block + 2, out->codes); }

/* A block is: d, m, codes. */
static void decode_q4_1(const uint8_t *block, cl_quant_block *out) { nibbles(block + 4, out->codes); }

/* A block is: d, fifth bits, codes. */
static void decode_q5_0(const uint8_t *block, cl_quant_block *out) {
    nibbles(block + 6, out->codes);
    fifth_bits(block + 2, out->codes);
}

/* A block is: d, m, fifth bits, codes. */
static void decode_q5_1(const uint8_t *block, cl_quant_block *out) {
    nibbles(block + 8, out->codes);
    fifth_bits(block + 4, out->codes);
}

/* A block is: d, int8 weights. */
static void decode_q8_0(const uint8_t *block, cl_quant_block *out) {
    for (int k = 0; k < 32; k++) out->codes[k] = block[2 + k] ^ 0x80;
}

/* ---- Super-blocks of 256 inputs ---- */

/* Read 2 bits of each code into its bits from `shift` on: 32 bytes hold 128 inputs, input 32 i + k at bit 2 i of byte k. */
static void pairs_of_bits(const uint8_t *in, int shift, uint8_t *codes) {
    for (int half = 0; half < 2; half++, in += 32, codes += 128)
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 32; k++) codes[32 * i + k] |= (uint8_t)((in[k] >> 2 * i & 3) << shift);
}

/* Read single bits of codes: that of input 32 i + k is bit i of byte k. */
static void single_bits(const uint8_t *in, int shift, uint8_t *codes) {
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 32; k++) codes[32 * i + k] |= (uint8_t)((in[k] >> i & 1) << shift);
}

/* Read 4-bit codes: `run` bytes hold `run` inputs in their low halves and the next `run` inputs in their high halves. */
static void runs_of_nibbles(const uint8_t *in, int run, uint8_t *codes) {
    for (int at = 0; at < 256; at += 2 * run, in += run) {
        for (int k = 0; k < run; k++) {
            codes[at + k] = in[k] & 15;
            codes[at + run + k] = in[k] >> 4;
        }
    }
}

/*
 * Read 8 factors and 8 minima of 6 bits from 12 bytes: the first 4 of each are in the low bits of 8 bytes; the last 4 of each
 * have their low halves in the other 4 bytes, and their high bits above the first ones.
 */
static void six_bit_scales(const uint8_t *in, cl_quant_block *out) {
    for (int g = 0; g < 4; g++) {
        out->d[g] = (int8_t)(in[g] & 63);
        out->m[g] = (int8_t)(in[4 + g] & 63);
        out->d[4 + g] = (int8_t)((in[8 + g] & 15) | (in[g] >> 6 << 4));
        out->m[4 + g] = (int8_t)(in[8 + g] >> 4 | (in[4 + g] >> 6 << 4));
    }
}

/* A block is: factors and minima of 4 bits [16], codes [64], d, m. */
static void decode_q2_k(const uint8_t *block, cl_quant_block *out) {
    for (int g = 0; g < 16; g++) {
        out->d[g] = (int8_t)(block[g] & 15);
        out->m[g] = (int8_t)(block[g] >> 4);
    }
    memset(out->codes, 0, sizeof out->codes);
    pairs_of_bits(block + 16, 0, out->codes);
}

/* A block is: third bits [32], codes [64], factors of 6 bits plus 32 [12] (low halves of 16, then high bit pairs of 16), d. */
static void decode_q3_k(const uint8_t *block, cl_quant_block *out) {
    const uint8_t *scales = block + 96;
    for (int g = 0; g < 16; g++) {
        const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4, high = scales[8 + g % 4] >> 2 * (g / 4) & 3;
        out->d[g] = (int8_t)((low | high << 4) - 32);
    }
    memset(out->codes, 0, sizeof out->codes);
    pairs_of_bits(block + 32, 0, out->codes);
    single_bits(block, 2, out->codes);
}

/* A block is: d, m, scales [12], codes [128]. */
static void decode_q4_k(const uint8_t *block, cl_quant_block *out) {
    six_bit_scales(block + 4, out);
    runs_of_nibbles(block + 16, 32, out->codes);
}

/* A block is: d, m, scales [12], fifth bits [32], codes [128]. */
static void decode_q5_k(const uint8_t *block, cl_quant_block *out) {
    six_bit_scales(block + 4, out);
    runs_of_nibbles(block + 48, 32, out->codes);
    single_bits(block + 16, 4, out->codes);
}

/* A block is: low bits of codes [128], high bits [64], int8 factors [16], d. */
static void decode_q6_k(const uint8_t *block, cl_quant_block *out) {
    memcpy(out->d, block + 192, 16);
    runs_of_nibbles(block, 64, out->codes);
    pairs_of_bits(block + 128, 4, out->codes);
}

/* ---- The types ---- */

/* The weights of the codes, plus 128. */
static const uint8_t q4_0_table[16] = {120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135};
static const uint8_t iq4_nl_table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

static const cl_quant_type types[] = {
    {CL_TENSOR_Q4_0, CL_LINEAR_Q4_TABLE, 0, 0, q4_0_table, decode_q4_0},
    {CL_TENSOR_Q4_1, CL_LINEAR_Q4_MIN, 0, 2, NULL, decode_q4_1},
    {CL_TENSOR_Q5_0, CL_LINEAR_Q5, 0, 0, NULL, decode_q5_0},
    {CL_TENSOR_Q5_1, CL_LINEAR_Q5_MIN, 0, 2, NULL, decode_q5_1},
    {CL_TENSOR_Q8_0, CL_LINEAR_Q8, 0, 0, NULL, decode_q8_0},
    {CL_TENSOR_Q2_K, CL_LINEAR_Q2_K, 80, 82, NULL, decode_q2_k},
    {CL_TENSOR_Q3_K, CL_LINEAR_Q3_K, 108, 0, NULL, decode_q3_k},
    {CL_TENSOR_Q4_K, CL_LINEAR_Q4_K, 0, 2, NULL, decode_q4_k},
    {CL_TENSOR_Q5_K, CL_LINEAR_Q5_K, 0, 2, NULL, decode_q5_k},
    {CL_TENSOR_Q6_K, CL_LINEAR_Q6_K, 208, 0, NULL, decode_q6_k},
    {CL_TENSOR_IQ4_NL, CL_LINEAR_Q4_TABLE, 0, 0, iq4_nl_table, decode_q4_0},
};

const cl_quant_type *cl_quant_type_of(uint32_t type) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) return &types[i];
    return NULL;
}

cl_linear_layout cl_linear_layout_of(uint32_t type) {
    if (type == CL_TENSOR_F32) return CL_LINEAR_F32;
    if (type == CL_TENSOR_F16) return CL_LINEAR_F16;
    if (type == CL_TENSOR_BF16) return CL_LINEAR_BF16;
    const cl_quant_type *t = cl_quant_type_of(type);
    return t ? t->layout : CL_LINEAR_N_LAYOUTS;
}

const uint8_t *cl_linear_table_of(uint32_t type) {
    const cl_quant_type *t = cl_quant_type_of(type);
    return t ? t->table : NULL;
}
