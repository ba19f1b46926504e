/* Float weights with AVX-512, shared by the levels above it. */
#ifndef LLAMA_LINEAR_X86_LINEAR_AVX512_FLOAT_H
#define LLAMA_LINEAR_X86_LINEAR_AVX512_FLOAT_H

#include "llama/linear/linear_kernels.h"

void cl_linear_f32_avx512(const cl_linear_task *t);
void cl_linear_f16_avx512(const cl_linear_task *t);
void cl_linear_bf16_avx512(const cl_linear_task *t);

#endif
