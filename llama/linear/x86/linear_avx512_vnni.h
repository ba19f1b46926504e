/* Quantised weights with AVX-512-VNNI, shared by the levels above it: cl_linear_Q4_K_avx512_vnni and so on. */
#ifndef LLAMA_LINEAR_X86_LINEAR_AVX512_VNNI_H
#define LLAMA_LINEAR_X86_LINEAR_AVX512_VNNI_H

#include "llama/linear/linear_kernels.h"

#define LINEAR_DECLARE(name, ...) void cl_linear_##name##_avx512_vnni(const cl_linear_task *t);
LINEAR_QUANT_LAYOUTS(LINEAR_DECLARE)
#undef LINEAR_DECLARE

#endif
