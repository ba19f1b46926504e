/* Rounding to bf16, shared by the levels that have an instruction for it. */
#ifndef LLAMA_LINEAR_X86_LINEAR_AVX512_BF16_H
#define LLAMA_LINEAR_X86_LINEAR_AVX512_BF16_H

#include <stdint.h>

void cl_linear_round_avx512_bf16(const float *x, int32_t n_in, uint16_t *out);

#endif
