/* Decodes the blocks of the quantised tensor types into codes and scales. */
#include "weight_type.h"

#include <string.h>

#include "codebooks.h"
#include "tensor.h"

static uint16_t load_u16(const uint8_t *in) { return (uint16_t)(in[0] | in[1] << 8); }
static uint32_t load_u32(const uint8_t *in) { return load_u16(in) | (uint32_t)load_u16(in + 2) << 16; }

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

/* A block is: exponent, codes. */
static void decode_mxfp4(const uint8_t *block, cl_quant_block *out) { nibbles(block + 1, out->codes); }

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

/* A block is: d, high bits of factors, low bits of factors [4], codes [128]. Factors count quarters of d. */
static void decode_iq4_xs(const uint8_t *block, cl_quant_block *out) {
    const uint16_t high = load_u16(block + 2);
    for (int g = 0; g < 8; g++)
        out->d[g] = (int8_t)(4 * ((block[4 + g / 2] >> 4 * (g % 2) & 15) + 16 * (high >> 2 * g & 3) - 32));
    runs_of_nibbles(block + 8, 16, out->codes);
}

/* A block is: codes [64], d. */
static void decode_tq2_0(const uint8_t *block, cl_quant_block *out) {
    memset(out->codes, 0, sizeof out->codes);
    memset(out->d, 1, sizeof out->d);
    pairs_of_bits(block, 0, out->codes);
}

/* Read codes of 0 to 2 from `run` bytes, which hold `digits` runs: a byte is a fraction of 256, whose ternary digits are codes.
 */
static void ternary_digits(const uint8_t *in, int run, int digits, uint8_t *codes) {
    for (int k = 0; k < run; k++) {
        uint8_t fraction = in[k];
        for (int i = 0; i < digits; i++) {
            codes[i * run + k] = (uint8_t)(3 * fraction >> 8);
            fraction = (uint8_t)(3 * fraction);
        }
    }
}

/* A block is: codes of 5 runs of 32, of 5 runs of 16, of 4 runs of 4, d. */
static void decode_tq1_0(const uint8_t *block, cl_quant_block *out) {
    memset(out->d, 1, sizeof out->d);
    ternary_digits(block, 32, 5, out->codes);
    ternary_digits(block + 32, 16, 5, out->codes + 160);
    ternary_digits(block + 48, 4, 4, out->codes + 240);
}

/* ---- Super-blocks of 256 inputs with codebooks ---- */

/* The codes are magnitudes from a codebook below, and above these a bit for the sign. */
enum { NEGATIVE_OF_8 = 4, NEGATIVE_OF_4 = 8 };

/* 8 codes: a codebook's row, and a bit for each sign. */
static void eight_codes(uint16_t row, unsigned signs, uint8_t *codes) {
    for (int k = 0; k < 8; k++) codes[k] = (uint8_t)((row >> 2 * k & 3) | (signs >> k & 1) * NEGATIVE_OF_8);
}

/* 4 codes, likewise. */
static void four_codes(uint16_t row, unsigned signs, uint8_t *codes) {
    for (int k = 0; k < 4; k++) codes[k] = (uint8_t)((row >> 3 * k & 7) | (signs >> k & 1) * NEGATIVE_OF_4);
}

/* The signs of 8 inputs from 7 bits: an even number is negative. */
static unsigned even_signs(unsigned bits) { return bits | (unsigned)__builtin_parity(bits) << 7; }

/* Read factors of 4 bits, which count odd numbers. */
static void odd_factors(const uint8_t *in, int n, int times, int8_t *d) {
    for (int g = 0; g < n; g++) d[g] = (int8_t)(times * (2 * (in[g / 2] >> 4 * (g % 2) & 15) + 1));
}

/* A block is: d, for each 32 inputs 4 rows of 8 bits and a word: 4 signs of 7 bits, a factor of 4. */
static void decode_iq2_xxs(const uint8_t *block, cl_quant_block *out) {
    for (int g = 0; g < 8; g++) {
        const uint8_t *rows = block + 2 + 8 * (size_t)g;
        const uint32_t word = load_u32(rows + 4);
        out->d[g] = (int8_t)(2 * (word >> 28) + 1);
        for (int i = 0; i < 4; i++)
            eight_codes(cl_iq2_xxs_codebook[rows[i]], even_signs(word >> 7 * i & 127), out->codes + 32 * g + 8 * i);
    }
}

/* A block is: d, 32 words: row of 9 bits, signs of 7; factors of 4 bits [8]. */
static void decode_iq2_xs(const uint8_t *block, cl_quant_block *out) {
    odd_factors(block + 66, 16, 1, out->d);
    for (int i = 0; i < 32; i++) {
        const uint16_t word = load_u16(block + 2 + 2 * (size_t)i);
        eight_codes(cl_iq2_xs_codebook[word & 511], even_signs(word >> 9), out->codes + 8 * i);
    }
}

/* A block is: d, low bits of rows [32], signs [32], high bits of rows [8], factors of 4 bits [8]. */
static void decode_iq2_s(const uint8_t *block, cl_quant_block *out) {
    odd_factors(block + 74, 16, 1, out->d);
    for (int i = 0; i < 32; i++) {
        const int row = block[2 + i] | (block[66 + i / 4] >> 2 * (i % 4) & 3) << 8;
        eight_codes(cl_iq2_s_codebook[row], block[34 + i], out->codes + 8 * i);
    }
}

/* A block is: d, rows [64], for each 32 inputs a word: 4 times 7 bits for 8 signs, a factor of 4. Factors count quarters. */
static void decode_iq3_xxs(const uint8_t *block, cl_quant_block *out) {
    for (int g = 0; g < 8; g++) {
        const uint8_t *rows = block + 2 + 8 * (size_t)g;
        const uint32_t word = load_u32(block + 66 + 4 * (size_t)g);
        out->d[g] = (int8_t)(2 * (word >> 28) + 1);
        for (int i = 0; i < 8; i++) {
            const unsigned signs = even_signs(word >> 7 * (i / 2) & 127) >> 4 * (i % 2);
            four_codes(cl_iq3_xxs_codebook[rows[i]], signs, out->codes + 32 * g + 4 * i);
        }
    }
}

/* A block is: d, low bits of rows [64], ninth bits of rows [8], signs [32], factors of 4 bits [4], which are multiplied by 4.
 */
static void decode_iq3_s(const uint8_t *block, cl_quant_block *out) {
    odd_factors(block + 106, 8, 4, out->d);
    for (int i = 0; i < 64; i++) {
        const int row = block[2 + i] | (block[66 + i / 8] >> i % 8 & 1) << 8;
        four_codes(cl_iq3_s_codebook[row], block[74 + i / 2] >> 4 * (i % 2), out->codes + 4 * i);
    }
}

/* A block is: d, low bits of rows [32], for each 32 inputs a word: high bits of 4 rows, 3 each, a factor of 3, a sign. */
static void decode_iq1_s(const uint8_t *block, cl_quant_block *out) {
    for (int g = 0; g < 8; g++) {
        const uint16_t word = load_u16(block + 34 + 2 * (size_t)g);
        out->d[g] = (int8_t)(2 * (word >> 12 & 7) + 1);
        for (int i = 4 * g; i < 4 * g + 4; i++)
            eight_codes(cl_iq1_codebook[block[2 + i] | (word >> 3 * (i % 4) & 7) << 8], word >> 15 ? 255 : 0,
                        out->codes + 8 * i);
    }
}

/*
 * A block is: low bits of rows [32], for each row 4 bits: high bits, a sign; 4 words with 4 factors of 3 bits each, and above
 * these a quarter of d.
 */
static void decode_iq1_m(const uint8_t *block, cl_quant_block *out) {
    out->scale = 0;
    for (int i = 0; i < 4; i++) {
        const uint16_t word = load_u16(block + 48 + 2 * (size_t)i);
        out->scale |= (uint16_t)(word >> 12 << 4 * i);
        for (int g = 0; g < 4; g++) out->d[4 * i + g] = (int8_t)(2 * (word >> 3 * g & 7) + 1);
    }
    for (int i = 0; i < 32; i++) {
        const int high = block[32 + i / 2] >> 4 * (i % 2) & 15;
        eight_codes(cl_iq1_codebook[block[i] | (high & 7) << 8], high & 8 ? 255 : 0, out->codes + 8 * i);
    }
}

/* ---- The types ---- */

/* The weights of the codes, plus 128; those of IQ1 types are 8 times the codebook's number plus or minus 1. */
static const uint8_t iq4_nl_table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t iq1_table[16] = {121, 129, 137, 0, 119, 127, 135, 0};
static const uint8_t iq2_table[16] = {136, 153, 171, 0, 120, 103, 85, 0};
static const uint8_t iq3_xxs_table[16] = {132, 140, 148, 156, 164, 172, 180, 190, 124, 116, 108, 100, 92, 84, 76, 66};
static const uint8_t iq3_s_table[16] = {129, 131, 133, 135, 137, 139, 141, 143, 127, 125, 123, 121, 119, 117, 115, 113};
static const uint8_t mxfp4_table[16] = {128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116};

static const cl_quant_type types[] = {
    {CL_TENSOR_Q4_0, CL_LINEAR_Q4, 0, 0, NULL, decode_q4_0},
    {CL_TENSOR_Q4_1, CL_LINEAR_Q4_MIN, 0, 2, NULL, decode_q4_1},
    {CL_TENSOR_Q5_0, CL_LINEAR_Q5, 0, 0, NULL, decode_q5_0},
    {CL_TENSOR_Q5_1, CL_LINEAR_Q5_MIN, 0, 2, NULL, decode_q5_1},
    {CL_TENSOR_Q8_0, CL_LINEAR_Q8, 0, 0, NULL, decode_q8_0},
    {CL_TENSOR_Q2_K, CL_LINEAR_Q2_K, 80, 82, NULL, decode_q2_k},
    {CL_TENSOR_Q3_K, CL_LINEAR_Q3_K, 108, 0, NULL, decode_q3_k},
    {CL_TENSOR_Q4_K, CL_LINEAR_Q4_K, 0, 2, NULL, decode_q4_k},
    {CL_TENSOR_Q5_K, CL_LINEAR_Q5_K, 0, 2, NULL, decode_q5_k},
    {CL_TENSOR_Q6_K, CL_LINEAR_Q6_K, 208, 0, NULL, decode_q6_k},
    {CL_TENSOR_IQ2_XXS, CL_LINEAR_Q3_TABLE_K, 0, 0, iq2_table, decode_iq2_xxs},
    {CL_TENSOR_IQ2_XS, CL_LINEAR_Q3_TABLE_16_K, 0, 0, iq2_table, decode_iq2_xs},
    {CL_TENSOR_IQ3_XXS, CL_LINEAR_Q4_TABLE_K, 0, 0, iq3_xxs_table, decode_iq3_xxs},
    {CL_TENSOR_IQ1_S, CL_LINEAR_Q3_TABLE_K, 0, 0, iq1_table, decode_iq1_s},
    {CL_TENSOR_IQ4_NL, CL_LINEAR_Q4_TABLE, 0, 0, iq4_nl_table, decode_q4_0},
    {CL_TENSOR_IQ3_S, CL_LINEAR_Q4_TABLE_K, 0, 0, iq3_s_table, decode_iq3_s},
    {CL_TENSOR_IQ2_S, CL_LINEAR_Q3_TABLE_16_K, 0, 0, iq2_table, decode_iq2_s},
    {CL_TENSOR_IQ4_XS, CL_LINEAR_Q4_TABLE_K, 0, 0, iq4_nl_table, decode_iq4_xs},
    {CL_TENSOR_IQ1_M, CL_LINEAR_Q3_TABLE_16_K, -1, 0, iq1_table, decode_iq1_m},
    {CL_TENSOR_TQ1_0, CL_LINEAR_TERNARY, 52, 0, NULL, decode_tq1_0},
    {CL_TENSOR_TQ2_0, CL_LINEAR_TERNARY, 64, 0, NULL, decode_tq2_0},
    {CL_TENSOR_MXFP4, CL_LINEAR_Q4_POWERS, 0, 0, mxfp4_table, decode_mxfp4},
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
