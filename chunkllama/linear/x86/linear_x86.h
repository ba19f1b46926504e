/* Shared by the x86 levels of all vector widths, and the kernels that are in the tables of several levels. */
#ifndef CHUNKLLAMA_LINEAR_X86_LINEAR_X86_H
#define CHUNKLLAMA_LINEAR_X86_LINEAR_X86_H

#include <stddef.h>
#include <stdint.h>

#include "chunkllama/linear/linear_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

/* Keep the order of additions to a vector: gcc 12 would compute all summands of a sum of integers first, and spill them. */
#define KEEP(sum) __asm__("" : "+v"(sum))

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
 * vpmaddubsw saturates its sums of two products at 16 bits. So the largest weight (signed weights are multiplied by magnitude,
 * and their sign goes to the activation) limits how many steps may be summed there: 8 * 2 * 15 * 127 = 30480, 4 * 2 * 32 * 127
 * = 32512, 2 * 128 * 127 = 32512. These sums are then added in 32 bits.
 */
INLINE int steps_in_16_bits(int largest) {
    const int steps = 32767 / (2 * 127 * largest);
    return steps > 1 ? steps : 1;
}

/* ---- Kernels of more than one level ---- */

void cl_linear_quantize_avx2(const float *x, size_t row_stride, int32_t n_rows, int32_t n_blocks, uint8_t *row_group,
                             int32_t group_rows);

void cl_linear_f32_avx2(const cl_linear_task *t);
void cl_linear_f16_avx2(const cl_linear_task *t);
void cl_linear_bf16_avx2(const cl_linear_task *t);

void cl_linear_f32_avx512(const cl_linear_task *t);
void cl_linear_f16_avx512(const cl_linear_task *t);
void cl_linear_bf16_avx512(const cl_linear_task *t);

#define LINEAR_DECLARE(name, ...)                                                                                              \
    void cl_linear_##name##_avx512(const cl_linear_task *t);                                                                   \
    void cl_linear_##name##_avx512_vnni(const cl_linear_task *t);                                                              \
    void cl_linear_##name##_amx(const cl_linear_task *t);
LINEAR_QUANT_LAYOUTS(LINEAR_DECLARE)
#undef LINEAR_DECLARE

/* AMX: the rows of activations that are multiplied with quantised weights at once, and the fewest for which tiles are faster.
 */
enum { CL_AMX_ROWS = 16, CL_AMX_MIN_ROWS = 32 };

void cl_linear_round_avx512_bf16(const float *x, int32_t n_in, uint16_t *out);

#endif
