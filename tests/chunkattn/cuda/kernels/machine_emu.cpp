/* The emulation as a machine. An error that it reports in a kernel ends the program. */
#include "machine.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "chunkattn/cuda/emu/emu_kernels.h"

namespace machine {

std::string context;

namespace {
const info about = {"emulation", 90, 2, 1 << 20, 1 << 30, true};
emu::device device;
uint64_t next_seed = 1;
int next_resident = 2;
emu::counts last = {};
} // namespace

const info &open() { return about; }

void *alloc(size_t bytes) { return device.alloc(bytes, "array"); }
void release(void *p) { device.free(p); }
void to_device(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
void from_device(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

std::vector<kernel> &more_kernels() {
    static std::vector<kernel> more;
    return more;
}
const kernel *find(const std::string &name) {
    static std::vector<kernel> all;
    if (all.empty()) {
        all = more_kernels();
        for (const emu::kernel &k : emu::kernels)
            all.push_back({k.name, k.threads, k.blocks, k.shared, k.sm, reinterpret_cast<const void *>(k.run)});
    }
    for (const kernel &k : all)
        if (name == k.name) return &k;
    return nullptr;
}
int resident_blocks(const kernel &k) { return k.blocks; }

void order_threads(uint64_t seed, int resident) { next_seed = seed, next_resident = resident; }
const emu::counts &last_counts() { return last; }

void launch(const kernel &k, int blocks, const void *args) {
    const emu::kernel row = {k.name, k.threads, k.blocks, k.shared, k.sm, true, false, 0, nullptr};
    const auto run = reinterpret_cast<void (*)(const void *)>(const_cast<void *>(k.function));
    const emu::report r = device.launch(row.launch_of(blocks, next_seed, next_resident), [&] { run(args); });
    last = r.n;
    if (r.errors.empty()) return;
    fprintf(stderr, "%s: %s%s\n", k.name, r.text().c_str(), context.c_str());
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
