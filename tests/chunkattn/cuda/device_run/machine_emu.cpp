/* The emulation as a machine. An error that it reports in a kernel ends the program. */
#include "machine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "chunkattn/cuda/emu/emu.h"
#include "chunkattn/cuda/emu/emu_kernels.h"
#include "run_kernels.cuh"

namespace machine {

namespace {
const info about = {"emulation", 90, 2, 1 << 20, 1 << 30, true};
emu::device device;

using starter = void (*)(const void *args);
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    void start_##name(const void *a) { ca_cuda_##name(*static_cast<const args *>(a)); }
#include "chunkattn/cuda/kernels.def"
#undef CA_CUDA_KERNEL
#define RUN_KERNEL(name, threads, blocks, shared, sm, args)                                                                    \
    void start_##name(const void *a) { name(*static_cast<const args *>(a)); }
#include "run_kernels.def"
#undef RUN_KERNEL

const kernel all[] = {
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    {#name, threads, blocks, shared, sm, reinterpret_cast<const void *>(start_##name)},
#include "chunkattn/cuda/kernels.def"
#undef CA_CUDA_KERNEL
#define RUN_KERNEL(name, threads, blocks, shared, sm, args)                                                                    \
    {#name, threads, blocks, shared, sm, reinterpret_cast<const void *>(start_##name)},
#include "run_kernels.def"
#undef RUN_KERNEL
};
} // namespace

const info &open() { return about; }

void *alloc(size_t bytes) { return memset(device.alloc(bytes, "array"), 0, bytes); }
void release(void *p) { device.free(p); }
void to_device(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void from_device(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

const kernel *find(const std::string &name) {
    for (const kernel &k : all)
        if (name == k.name) return &k;
    return nullptr;
}
int resident_blocks(const kernel &k) { return k.blocks; }

void launch(const kernel &k, int blocks, const void *args) {
    emu::config c;
    c.blocks = blocks;
    c.threads = k.threads;
    c.shared_bytes = k.shared;
    c.blocks_per_sm = k.blocks;
    const emu::report r = device.launch(c, [&] { reinterpret_cast<starter>(const_cast<void *>(k.function))(args); });
    if (r.errors.empty()) return;
    fprintf(stderr, "%s: %s", k.name, r.text().c_str());
    exit(1);
}
void wait() {}

/* A graph is replayed by calling once what was recorded. Its time, 1 microsecond, is made up. */
struct graph {
    std::function<void()> launches;
};
graph *record(const std::function<void()> &launches) { return new graph{launches}; }
std::vector<double> replay(graph *g, int) {
    g->launches();
    return {1};
}
void drop(graph *g) { delete g; }

} // namespace machine
