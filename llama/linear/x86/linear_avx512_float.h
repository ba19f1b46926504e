/* Float weights with AVX-512, shared by the levels above it. */
#ifndef LLAMA_LINEAR_X86_LINEAR_AVX512_FLOAT_H
#define LLAMA_LINEAR_X86_LINEAR_AVX512_FLOAT_H

#include "llama/linear/linear_kernels.h"

void linear_f32_avx512(const linear_task *t);
void linear_f16_avx512(const linear_task *t);
void linear_bf16_avx512(const linear_task *t);

#endif
