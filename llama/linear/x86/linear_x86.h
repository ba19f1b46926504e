/* What the x86 levels share whatever the width of their vectors. */
#ifndef LLAMA_LINEAR_X86_LINEAR_X86_H
#define LLAMA_LINEAR_X86_LINEAR_X86_H

#include "llama/linear/linear_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

INLINE int32_t load_i32(const uint8_t *p) {
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

INLINE float load_f32(const uint8_t *p) {
    float v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

/* A line of a panel: the weights of one input, or of two with BF16. */
INLINE int line_inputs(const cl_linear_layout layout) { return layout == CL_LINEAR_BF16 ? 2 : 1; }
INLINE size_t line_bytes(const cl_linear_layout layout) { return layout == CL_LINEAR_F16 ? 32 : 64; }

/*
 * vpmaddubsw saturates its sums of two products at 16 bits, so the largest weight (signed ones are multiplied by magnitude,
 * their sign given to the activation) says how many steps may be added up there: 8 * 2 * 15 * 127 = 30480, 4 * 2 * 32 * 127 =
 * 32512, 2 * 128 * 127 = 32512. Then they are added up in 32 bits.
 */
INLINE int steps_in_16_bits(int largest) {
    const int steps = 32767 / (2 * 127 * largest);
    return steps > 1 ? steps : 1;
}

#endif
