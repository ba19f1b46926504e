/* The kernels of run_kernels.cuh in the emulation, added to those of the library. */
#include "run_kernels.cuh"
#include "tests/chunkattn/cuda/kernels/machine.h"

namespace {

#define RUN_KERNEL(name, threads, blocks, shared, sm, args)                                                                    \
    void start_##name(const void *a) { name(*static_cast<const args *>(a)); }
#include "run_kernels.def"
#undef RUN_KERNEL

[[maybe_unused]] const bool added = [] {
#define RUN_KERNEL(name, threads, blocks, shared, sm, args)                                                                    \
    machine::more_kernels().push_back({#name, threads, blocks, shared, sm, reinterpret_cast<const void *>(start_##name)});
#include "run_kernels.def"
#undef RUN_KERNEL
    return true;
}();

} // namespace
