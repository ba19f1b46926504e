/* The library's kernels in the emulation, which kernels.cpp compiles once for all programs that launch them. */
#ifndef CHUNKATTN_CUDA_EMU_EMU_KERNELS_H
#define CHUNKATTN_CUDA_EMU_EMU_KERNELS_H

#include "emu.h"

namespace emu {

struct kernel {
    const char *name;
    int threads, blocks;   /* of a block; of a multiprocessor, as in kernels.def */
    size_t shared;         /* bytes of dynamic shared memory of a block */
    int sm;                /* the least compute capability */
    bool attends, flushes; /* denormals are zeros in it */
    size_t args_bytes;
    void (*run)(const void *args); /* as one thread */

    /* The number of blocks of a launch. Registers and shared memory limit how many of them run on a multiprocessor at once. */
    config launch_of(int n_blocks, uint64_t seed, int resident) const;
};

extern const std::vector<kernel> kernels; /* in the order of kernels.def */
const kernel &find_kernel(const std::string &name);

} // namespace emu
#endif
