/* ChunkLlama's kernels, compiled for the emulation. */
#include "chunkllama/cuda/kernels.cu"

#include "chunkattn/cuda/emu/emu_kernels.h"
#include "chunkllama/cuda/kernel_table.h"

static const emu::kernel emulated[] = {
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    {#name,  threads,      blocks,                                                                                             \
     shared, sm,           false,                                                                                              \
     true,   sizeof(args), [](const void *a) { cl_cuda_##name(*static_cast<const args *>(a)); }},
#include "chunkllama/cuda/kernels.def"
#undef CA_CUDA_KERNEL
};

extern "C" const cl_cuda_link *cl_cuda_linked(void) {
    static ca_cuda_kernel all[CL_CUDA_N_KERNELS];
    static cl_cuda_link link;
    for (int i = 0; i < CL_CUDA_N_KERNELS; i++)
        all[i] = {emulated[i].name, &emulated[i], emulated[i].threads, (int32_t)emulated[i].shared};
    link = {ca_cuda_get(), all};
    return &link;
}
