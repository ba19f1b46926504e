/* The library's kernels as functions of the emulation, which kernels.cpp compiles once for all programs that launch them. */
#ifndef CHUNKATTN_CUDA_EMU_EMU_KERNELS_H
#define CHUNKATTN_CUDA_EMU_EMU_KERNELS_H

#include "chunkattn/cuda/job.h"

#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function) extern "C" void ca_cuda_##name(const args a);
#include "chunkattn/cuda/kernels.def"
#undef CA_CUDA_KERNEL

#endif
