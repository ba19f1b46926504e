/*
 * What a program links to run ChunkLlama on a CUDA device: the runtime, and the kernels of kernels.def by their numbers. It is
 * kernels.cu, compiled by nvcc, or emu/kernels.cpp, which runs them in the emulation, or neither.
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

typedef struct cl_cuda_link {
    const ca_cuda_runtime *runtime;
    const ca_cuda_kernel *kernels; /* [CL_CUDA_N_KERNELS] */
} cl_cuda_link;

/* Static; NULL if the program links none. */
const cl_cuda_link *cl_cuda_get(void);

/*
 * The number of the kernel that multiplies a layout's weights for one row group in a warp; those for 2, 4 and 8 follow, but for
 * F32 and F16.
 */
int cl_cuda_first_product(cl_linear_layout layout);

/* For kernel_table.c only. */
const cl_cuda_link *cl_cuda_linked(void);

#ifdef __cplusplus
}
#endif

#endif
