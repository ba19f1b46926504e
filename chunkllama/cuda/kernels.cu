/* All kernels of kernels.def in one translation unit, compiled without contraction and with denormals as zeros. */
#include "linear.cuh"
#include "rows.cuh"

static_assert(CL_CUDA_PANELS_A_BLOCK * RING == 65536, "kernels.def: shared of products of quantised weights");

#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    KERNEL(threads, blocks, cl_cuda_##name, const args a) { FROM_SM(sm, (function)(a)); }
#include "kernels.def"
#undef CA_CUDA_KERNEL

#ifdef __CUDACC__
#include "kernel_table.h"

static const ca_cuda_kernel kernels[] = {
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    {#name, (const void *)cl_cuda_##name, threads, shared},
#include "kernels.def"
#undef CA_CUDA_KERNEL
};

extern "C" const cl_cuda_link *cl_cuda_linked(void) {
    static cl_cuda_link link;
    link = {ca_cuda_get(), kernels};
    return &link;
}
#endif
