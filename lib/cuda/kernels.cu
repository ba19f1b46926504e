/* All kernels of kernels.def in one translation unit. */
#include "decode.cuh"
#include "prefill.cuh"
#include "write.cuh"

#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    KERNEL(threads, blocks, ca_cuda_##name, const args a) { (function)(a); }
#include "kernels.def"
#undef CA_CUDA_KERNEL
