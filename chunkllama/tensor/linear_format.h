/*
 * The layouts of packed weights: one table, from which the enum, the sizes and the kernels of each level are generated.
 *
 * Weights are stored in panels of 16 outputs, so that outputs run across vector lanes; missing outputs of the last panel are
 * zero. Everything is little-endian. A panel of F32 or F16 weights is [n_in][16] elements. A panel of BF16 weights is
 * [n_in / 2][16][2]: pairs of inputs, as vdpbf16ps multiplies them; a missing last input is zero. A panel of quantised weights
 * has a record for each weight block (32 inputs), which consists of codes and scales:
 *
 * - Codes are planes of 4, 2 and 1 bits of each code, as many as add up to `bits`, from the low bits of the codes on. A plane
 *   consists of vectors of [16][4] bytes. Byte i of lane o belongs, in step j (0 to 7), to input 4 j + i of output o:
 *     - 4 bits: step j in vector j mod 4, in the low half of the byte for j < 4, in the high half for the others
 *     - 2 bits: step j in vector j / 4, at bit 2 (j mod 4)
 *     - 1 bit: step j in the only vector, at bit j
 *     - codes of 8 bits, a byte each: step j in vector j
 * - Scales are d[16] of each scale group, then, in layouts with a minimum, m[16] of each scale group. They are f16; or, in
 *   layouts with super-blocks (8 weight blocks that share f16 scales), int8 factors of a part of these scales: the whole, a
 *   quarter or an eighth; or, in layouts with powers, bytes e that stand for 2^(e - 128), or for 0 if e is below 2.
 *
 * The 8 records of a super-block come after its f16 d[16] and, with a minimum, its f16 m[16]. A weight is
 *
 *   (code - zero) d + m      d and m are exact in f32
 *
 * or, with a table of 16 entries (cl_linear_task.table), (table[code] - zero) d.
 */
#ifndef CHUNKLLAMA_TENSOR_LINEAR_FORMAT_H
#define CHUNKLLAMA_TENSOR_LINEAR_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CL_LINEAR_LANES = 16, /* outputs of a panel */
    CL_LINEAR_BLOCK = 32, /* inputs of a weight block, which also share a scale of activations */
    CL_LINEAR_SUPER = 8   /* weight blocks of a super-block */
};

/* Of quantised activations (linear_kernels.h). */
enum {
    CL_LINEAR_ROW_GROUP = 8,     /* rows that are quantised at once */
    CL_LINEAR_ROW_BYTES = 52,    /* bytes of one row in a row group's record: 32 int8 and five scales */
    CL_LINEAR_MAGIC = 0x4B400000 /* the bits of 12582912.0f */
};

/*
 * Name, bits, inputs of a scale group, zero, has a minimum, super-blocks (0: none; n: factors are of an n-th of their scale),
 * has a table, has powers; and the types that it is for. Four lists, so that a level whose kernels take long to compile can
 * have a file for each.
 */
#define LINEAR_LAYOUTS_GROUPS_OF_16(X)                                                                                         \
    X(Q2_K, 2, 16, 0, true, 1, false, false)            /* Q2_K */                                                             \
    X(Q3_K, 3, 16, 4, false, 1, false, false)           /* Q3_K */                                                             \
    X(Q6_K, 6, 16, 32, false, 1, false, false)          /* Q6_K */                                                             \
    X(Q3_TABLE_16_K, 3, 16, 128, false, 8, true, false) /* IQ1_M, IQ2_XS, IQ2_S */
#define LINEAR_LAYOUTS_2_AND_3_BITS(X)                                                                                         \
    X(TERNARY, 2, 32, 1, false, 1, false, false)     /* TQ1_0, TQ2_0 */                                                        \
    X(Q3_TABLE_K, 3, 32, 128, false, 8, true, false) /* IQ1_S, IQ2_XXS */
#define LINEAR_LAYOUTS_4_AND_8_BITS(X)                                                                                         \
    X(Q4_MIN, 4, 32, 0, true, 0, false, false)       /* Q4_1 */                                                                \
    X(Q4, 4, 32, 8, false, 0, false, false)          /* Q4_0 */                                                                \
    X(Q4_TABLE, 4, 32, 128, false, 0, true, false)   /* IQ4_NL */                                                              \
    X(Q4_TABLE_K, 4, 32, 128, false, 4, true, false) /* IQ3_XXS, IQ3_S, IQ4_XS */                                              \
    X(Q4_POWERS, 4, 32, 128, false, 0, true, true)   /* MXFP4 */                                                               \
    X(Q4_K, 4, 32, 0, true, 1, false, false)         /* Q4_K */                                                                \
    X(Q8, 8, 32, 128, false, 0, false, false)        /* Q8_0 */
#define LINEAR_LAYOUTS_5_BITS(X)                                                                                               \
    X(Q5, 5, 32, 16, false, 0, false, false)   /* Q5_0 */                                                                      \
    X(Q5_MIN, 5, 32, 0, true, 0, false, false) /* Q5_1 */                                                                      \
    X(Q5_K, 5, 32, 0, true, 1, false, false)   /* Q5_K */
#define LINEAR_QUANT_LAYOUTS(X)                                                                                                \
    LINEAR_LAYOUTS_GROUPS_OF_16(X)                                                                                             \
    LINEAR_LAYOUTS_2_AND_3_BITS(X) LINEAR_LAYOUTS_4_AND_8_BITS(X) LINEAR_LAYOUTS_5_BITS(X)

#define LINEAR_ENUM(name, ...) CL_LINEAR_##name,
typedef enum cl_linear_layout {
    CL_LINEAR_F32,
    CL_LINEAR_F16,
    CL_LINEAR_BF16,
    LINEAR_QUANT_LAYOUTS(LINEAR_ENUM) CL_LINEAR_N_LAYOUTS,
    CL_LINEAR_FIRST_QUANT = CL_LINEAR_Q2_K
} cl_linear_layout;

/* An entry of a level's table of kernels, such as multiply_Q4_K. */
#define LINEAR_ENTRY(name, ...) [CL_LINEAR_##name] = multiply_##name,

typedef struct cl_linear_format {
    int bits, scale_group, zero;
    bool min;
    int super;
    bool table, powers;
} cl_linear_format;

/* Kernels of a device are C++, where what these functions return is a constant. */
#ifdef __cplusplus
#define LINEAR_SIZE constexpr
#else
#define LINEAR_SIZE static inline
#endif

LINEAR_SIZE size_t cl_linear_code_bytes(cl_linear_format f) { return (size_t)f.bits * CL_LINEAR_LANES * CL_LINEAR_BLOCK / 8; }

/* The byte offsets of d and m of scale group g in a record. */
LINEAR_SIZE size_t cl_linear_scale_bytes(cl_linear_format f) { return CL_LINEAR_LANES * (f.super || f.powers ? 1 : 2); }
LINEAR_SIZE size_t cl_linear_d_at(cl_linear_format f, int g) {
    return cl_linear_code_bytes(f) + (size_t)g * cl_linear_scale_bytes(f);
}
LINEAR_SIZE size_t cl_linear_m_at(cl_linear_format f, int g) { return cl_linear_d_at(f, CL_LINEAR_BLOCK / f.scale_group + g); }

LINEAR_SIZE size_t cl_linear_record_bytes(cl_linear_format f) {
    return cl_linear_d_at(f, CL_LINEAR_BLOCK / f.scale_group * (f.min ? 2 : 1));
}
LINEAR_SIZE size_t cl_linear_super_bytes(cl_linear_format f) { return f.super ? CL_LINEAR_LANES * (f.min ? 4 : 2) : 0; }

#ifndef __cplusplus
#define LINEAR_ROW(name, ...) [CL_LINEAR_##name] = {__VA_ARGS__},
/* Indexed by layout; zeros for floats. `static`, so that the format of a constant layout is a constant. */
static const cl_linear_format cl_linear_formats[CL_LINEAR_N_LAYOUTS] = {LINEAR_QUANT_LAYOUTS(LINEAR_ROW)};

static inline size_t cl_linear_panel_bytes(cl_linear_layout layout, int32_t n_in) {
    const size_t n = (size_t)n_in;
    if (layout == CL_LINEAR_BF16) return (n + 1) / 2 * CL_LINEAR_LANES * 4;
    if (layout < CL_LINEAR_FIRST_QUANT) return n * CL_LINEAR_LANES * (layout == CL_LINEAR_F32 ? 4 : 2);
    const cl_linear_format f = cl_linear_formats[layout];
    return n / CL_LINEAR_BLOCK * cl_linear_record_bytes(f) + n / (CL_LINEAR_BLOCK * CL_LINEAR_SUPER) * cl_linear_super_bytes(f);
}

#endif

#endif
