/*
 * What the tests of kernels and the programs of a device run need of a machine: memory, the kernels by name, launches and their
 * times. machine_emu.cpp is the emulation, tests/chunkattn/cuda/device_run/machine.cu a CUDA device.
 *
 * A failed call, or an error in a kernel, ends the program with status 1, after a message on stderr, which ends with `context`;
 * without a device it ends with 77.
 */
#ifndef TESTS_CHUNKATTN_CUDA_KERNELS_MACHINE_H
#define TESTS_CHUNKATTN_CUDA_KERNELS_MACHINE_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "chunkattn/cuda/emu/emu.h"

struct CUstream_st;

namespace machine {

extern std::string context; /* what the program is about to run */

struct info {
    std::string name;
    int sm, n_processors; /* compute capability, e.g. 90; multiprocessors */
    int64_t l2_bytes, memory_bytes;
    bool emulated; /* the programs run tiny shapes, and their times mean nothing */
};
const info &open();

void *alloc(size_t bytes); /* all bits are one, so floats are NaN */
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
/* A row of kernels.def or of run_kernels.def; NULL if none is linked, or the device is too old for it. */
const kernel *find(const std::string &name);
/* Blocks that a multiprocessor holds at a time. */
int resident_blocks(const kernel &k);

/* Launch asynchronously, in the order of the calls. Within `record` the launch becomes a part of the graph and does not run.
 * args: the kernel's argument struct, borrowed for the call. */
void launch(const kernel &k, int blocks, const void *args);
void wait();

/* The order of threads in launches from now on, and how many blocks run at a time, as in emu::config. No effect on a device. */
void order_threads(uint64_t seed, int resident);

/* On a device only: the stream of all launches. */
CUstream_st *stream();

/* In the emulation only: the counts of the last launch, and kernels besides those of kernels.def. */
const emu::counts &last_counts();
std::vector<kernel> &more_kernels();

struct graph;
graph *record(const std::function<void()> &launches);
std::vector<double> replay(graph *g, int n); /* once to warm up, then n times, whose microseconds it returns */
void drop(graph *g);

inline double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

/* A vector in device memory, to be released by the caller. */
template <class T> T *array(const std::vector<T> &v) {
    T *to = static_cast<T *>(alloc(std::max<size_t>(v.size(), 1) * sizeof(T)));
    if (!v.empty()) to_device(to, v.data(), v.size() * sizeof(T));
    return to;
}

/* Device memory that is released with this. */
class owner {
    std::vector<void *> owned;

  public:
    template <class T> T *own(T *p) {
        owned.push_back(p);
        return p;
    }
    template <class T> T *array(const std::vector<T> &v) { return own(machine::array(v)); }
    template <class T> T *unset(size_t n) { return own(static_cast<T *>(alloc(std::max<size_t>(n, 1) * sizeof(T)))); }
    owner() = default;
    ~owner() {
        for (void *p : owned) release(p);
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
};

/* Of bytes in device memory. */
inline uint64_t hash(const void *p, size_t bytes) {
    std::vector<unsigned char> all(bytes);
    from_device(all.data(), p, bytes);
    uint64_t h = 14695981039346656037u;
    for (const unsigned char byte : all) h = (h ^ byte) * 1099511628211u;
    return h;
}

} // namespace machine
#endif
