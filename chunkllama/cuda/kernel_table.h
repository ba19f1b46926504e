/*
 * The kernels of kernels.def, by their numbers. Which they are depends on what a program links: kernels.cu, compiled by nvcc,
 * or emu/kernels.cpp, which runs them in the emulation.
 */
#ifndef CHUNKLLAMA_CUDA_KERNEL_TABLE_H
#define CHUNKLLAMA_CUDA_KERNEL_TABLE_H

#include "chunkattn/cuda/runtime.h"
#include "chunkllama/tensor/linear_format.h"
#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cl_cuda_kernel_id {
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function) CL_CUDA_##name,
#include "kernels.def"
#undef CA_CUDA_KERNEL
    CL_CUDA_N_KERNELS
} cl_cuda_kernel_id;

/* [CL_CUDA_N_KERNELS]; NULL if none are linked. */
const ca_cuda_kernel *cl_cuda_kernels(void);

/* For kernel_table.c only. */
const ca_cuda_kernel *cl_cuda_linked_kernels(void);

#ifdef __cplusplus
}
#endif

#endif
