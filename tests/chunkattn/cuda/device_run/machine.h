/*
 * What the programs of a device run need of a machine: memory, the kernels by name, launches and their times. machine.cu is a
 * CUDA device, machine_emu.cpp the emulation, in which the same programs are rehearsed.
 *
 * A failed call ends the program with status 1, after a message on stderr; without a device it ends with 77.
 */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_RUN_MACHINE_H
#define TESTS_CHUNKATTN_CUDA_DEVICE_RUN_MACHINE_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace machine {

struct info {
    std::string name;
    int sm, n_processors; /* compute capability, e.g. 90; multiprocessors */
    int64_t l2_bytes, memory_bytes;
    bool emulated; /* the programs run tiny shapes, and their times mean nothing */
};
const info &open();

void *alloc(size_t bytes); /* zeroed */
void release(void *p);
void to_device(void *to, const void *from, size_t bytes);
void from_device(void *to, const void *from, size_t bytes);

struct kernel {
    const char *name;
    int threads;   /* of a block */
    int blocks;    /* of a multiprocessor, for which it was compiled */
    size_t shared; /* bytes a block */
    int sm;        /* the least compute capability */
    const void *function;
};
/* A row of kernels.def or of run_kernels.def; NULL if there is none, or the device is too old for it. */
const kernel *find(const std::string &name);
/* Blocks that a multiprocessor holds at a time. */
int resident_blocks(const kernel &k);

/* Launch asynchronously, in the order of the calls. Within `record` the launch becomes a part of the graph and does not run.
 * args: the kernel's argument struct, borrowed for the call. */
void launch(const kernel &k, int blocks, const void *args);
void wait();

struct graph;
graph *record(const std::function<void()> &launches);
std::vector<double> replay(graph *g, int n); /* once to warm up, then n times, whose microseconds it returns */
void drop(graph *g);

inline double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* A vector in device memory, to be released by the caller; at least one element. */
template <class T> T *array(const std::vector<T> &v) {
    T *to = static_cast<T *>(alloc((v.size() + 1) * sizeof(T)));
    if (!v.empty()) to_device(to, v.data(), v.size() * sizeof(T));
    return to;
}

} // namespace machine
#endif
