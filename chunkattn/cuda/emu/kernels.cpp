/* The library's kernels, compiled for the emulation: by far the file that takes longest to compile. */
#include "chunkattn/cuda/kernels.cu"
#include "emu_kernels.h"

#include <cstdio>
#include <cstdlib>

namespace emu {

const std::vector<kernel> kernels = {
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    {#name,  threads,      blocks,                                                                                             \
     shared, sm,           !strcmp(#family, "attend"),                                                                         \
     false,  sizeof(args), [](const void *a) { ca_cuda_##name(*static_cast<const args *>(a)); }},
#include "chunkattn/cuda/kernels.def"
#undef CA_CUDA_KERNEL
};

const kernel &find_kernel(const std::string &name) {
    for (const kernel &k : kernels)
        if (name == k.name) return k;
    fprintf(stderr, "no kernel %s\n", name.c_str());
    abort();
}

config kernel::launch_of(int n_blocks, uint64_t seed, int resident) const {
    config c;
    c.blocks = n_blocks;
    c.threads = threads;
    c.shared_bytes = shared;
    c.seed = seed;
    c.resident = resident;
    c.sm = sm;
    c.blocks_per_sm = blocks;
    while (c.blocks_per_sm > 1 && shared * (size_t)c.blocks_per_sm > shared_bytes_of(sm)) c.blocks_per_sm--;
    return c;
}

} // namespace emu
