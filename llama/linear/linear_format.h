/*
 * The layouts of packed weights: one table, from which the enum, the sizes and each level's kernels are made.
 *
 * Weights lie in panels of 16 outputs, so that outputs run across vector lanes; missing outputs of the last panel are zero.
 * Everything is little-endian. A panel of F32 or F16 weights is [n_in][16] elements; one of BF16 weights [n_in / 2][16][2],
 * pairs of inputs as vdpbf16ps takes them, a missing last input being zero. A panel of quantised ones has a record for each
 * block of 32 inputs:
 *
 *   codes    planes of 4, 2 and 1 bits a code, as many of them as add up to `bits`, from the codes' low bits on; each plane is
 *            vectors of [16][4] bytes, where byte i of lane o in "step" j (0..7) belongs to input 4 j + i of output o:
 *              4 bits: step j in vector j mod 4, the low half of the byte for j < 4, the high half behind
 *              2 bits: step j in vector j / 4, at bit 2 (j mod 4)
 *              1 bit:  step j in the one vector, at bit j
 *            8 bits: a byte each, step j in vector j
 *   scales   for each scale group (inputs that share a scale) d[16], then, with a minimum, for each m[16]: f16, or where a
 * super-block of 8 blocks shares f16 scales, int8 factors of those
 *
 * In front of each 8 records of a super-block come its f16 d[16] and, with a minimum, f16 m[16]. A weight is
 *
 *   (code - zero) d + m      d and m f16, or f16 times int8, which is exact in f32
 *
 * or, through a table of 16 (task.table), (table[code] - zero) d. Thus every type is stored in the bytes it has in the file.
 */
#ifndef LLAMA_LINEAR_LINEAR_FORMAT_H
#define LLAMA_LINEAR_LINEAR_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CL_LINEAR_LANES = 16, /* outputs a panel */
    CL_LINEAR_BLOCK = 32, /* inputs that share a scale of activations */
    CL_LINEAR_SUPER = 8   /* blocks of a super-block */
};

/* name, bits, inputs of a scale group, zero, min, super, table; for */
#define LINEAR_QUANT_LAYOUTS(X)                                                                                                \
    X(Q2_K, 2, 16, 0, true, true, false)        /* Q2_K */                                                                     \
    X(Q3_K, 3, 16, 4, false, true, false)       /* Q3_K */                                                                     \
    X(Q4_MIN, 4, 32, 0, true, false, false)     /* Q4_1 */                                                                     \
    X(Q4_TABLE, 4, 32, 128, false, false, true) /* Q4_0, IQ4_NL */                                                             \
    X(Q4_K, 4, 32, 0, true, true, false)        /* Q4_K */                                                                     \
    X(Q5, 5, 32, 16, false, false, false)       /* Q5_0 */                                                                     \
    X(Q5_MIN, 5, 32, 0, true, false, false)     /* Q5_1 */                                                                     \
    X(Q5_K, 5, 32, 0, true, true, false)        /* Q5_K */                                                                     \
    X(Q6_K, 6, 16, 32, false, true, false)      /* Q6_K */                                                                     \
    X(Q8, 8, 32, 128, false, false, false)      /* Q8_0 */

#define LINEAR_ENUM(name, ...) CL_LINEAR_##name,
typedef enum cl_linear_layout {
    CL_LINEAR_F32,
    CL_LINEAR_F16,
    CL_LINEAR_BF16,
    LINEAR_QUANT_LAYOUTS(LINEAR_ENUM) CL_LINEAR_N_LAYOUTS,
    CL_LINEAR_FIRST_QUANT = CL_LINEAR_Q2_K
} cl_linear_layout;

/* A level's table of kernels, behind those for floats: multiply_Q4_K and so on. */
#define LINEAR_ENTRY(name, ...) [CL_LINEAR_##name] = multiply_##name,

typedef struct cl_linear_format {
    int bits, scale_group, zero;
    bool min, super, table;
} cl_linear_format;

#define LINEAR_ROW(name, bits, group, zero, min, super, table) [CL_LINEAR_##name] = {bits, group, zero, min, super, table},
/* By layout; zero for floats. `static`, so that a constant layout makes a constant format. */
static const cl_linear_format cl_linear_formats[CL_LINEAR_N_LAYOUTS] = {LINEAR_QUANT_LAYOUTS(LINEAR_ROW)};

static inline size_t cl_linear_code_bytes(cl_linear_format f) { return (size_t)f.bits * CL_LINEAR_LANES * CL_LINEAR_BLOCK / 8; }

/* Byte offsets in a record of scale group g's d and m. */
static inline size_t cl_linear_scale_bytes(cl_linear_format f) { return CL_LINEAR_LANES * (f.super ? 1 : 2); }
static inline size_t cl_linear_d_at(cl_linear_format f, int g) {
    return cl_linear_code_bytes(f) + (size_t)g * cl_linear_scale_bytes(f);
}
static inline size_t cl_linear_m_at(cl_linear_format f, int g) {
    return cl_linear_d_at(f, CL_LINEAR_BLOCK / f.scale_group + g);
}

static inline size_t cl_linear_record_bytes(cl_linear_format f) {
    return cl_linear_d_at(f, CL_LINEAR_BLOCK / f.scale_group * (f.min ? 2 : 1));
}
static inline size_t cl_linear_super_bytes(cl_linear_format f) { return f.super ? CL_LINEAR_LANES * (f.min ? 4 : 2) : 0; }

static inline size_t cl_linear_panel_bytes(cl_linear_layout layout, int32_t n_in) {
    const size_t n = (size_t)n_in;
    if (layout == CL_LINEAR_BF16) return (n + 1) / 2 * CL_LINEAR_LANES * 4;
    if (layout < CL_LINEAR_FIRST_QUANT) return n * CL_LINEAR_LANES * (layout == CL_LINEAR_F32 ? 4 : 2);
    const cl_linear_format f = cl_linear_formats[layout];
    return n / CL_LINEAR_BLOCK * cl_linear_record_bytes(f) + n / (CL_LINEAR_BLOCK * CL_LINEAR_SUPER) * cl_linear_super_bytes(f);
}

#endif
