/* A CUDA device: the first one. */
#include "tests/chunkattn/cuda/kernels/machine.h"

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>

#include "run_kernels.cuh"

/* The library's own kernels, from libchunkattn_cuda.a. */
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    extern "C" __global__ void ca_cuda_##name(const args a);
#include "chunkattn/cuda/kernels.def"
#undef CA_CUDA_KERNEL

namespace machine {

std::string context;

static void check(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n%s\n", what, cudaGetErrorString(e), context.c_str());
    exit(1);
}

static cudaStream_t own_stream;
static info about;
static bool is_open;

const info &open() {
    if (is_open) return about;
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        printf("skipped: no device\n");
        exit(77);
    }
    cudaDeviceProp p;
    check(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
    check(cudaStreamCreateWithFlags(&own_stream, cudaStreamNonBlocking), "cudaStreamCreate");
    about = {p.name, p.major * 10 + p.minor, p.multiProcessorCount, (int64_t)p.l2CacheSize, (int64_t)p.totalGlobalMem, false};
    is_open = true;
    return about;
}

void *alloc(size_t bytes) {
    open();
    void *p;
    check(cudaMalloc(&p, bytes), "cudaMalloc");
    check(cudaMemsetAsync(p, 0xff, bytes, own_stream), "cudaMemset");
    return p;
}
void release(void *p) {
    wait();
    check(cudaFree(p), "cudaFree");
}
void to_device(void *to, const void *from, size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, own_stream), "copy to the device");
    wait();
}
void from_device(void *to, const void *from, size_t bytes) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, own_stream), "copy from the device");
    wait();
}

static const kernel all[] = {
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    {#name, threads, blocks, shared, sm, (const void *)ca_cuda_##name},
#include "chunkattn/cuda/kernels.def"
#undef CA_CUDA_KERNEL
#define RUN_KERNEL(name, threads, blocks, shared, sm, args) {#name, threads, blocks, shared, sm, (const void *)name},
#include "run_kernels.def"
#undef RUN_KERNEL
};

const kernel *find(const std::string &name) {
    for (const kernel &k : all)
        if (name == k.name && open().sm >= k.sm) {
            check(cudaFuncSetAttribute(k.function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)k.shared), k.name);
            return &k;
        }
    return nullptr;
}

int resident_blocks(const kernel &k) {
    int n = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, k.function, k.threads, k.shared), k.name);
    return n;
}

void launch(const kernel &k, int blocks, const void *args) {
    void *arguments[] = {const_cast<void *>(args)};
    check(cudaLaunchKernel(k.function, dim3((unsigned)blocks), dim3((unsigned)k.threads), arguments, k.shared, own_stream),
          k.name);
}
void order_threads(uint64_t, int) {}
CUstream_st *stream() {
    open();
    return own_stream;
}
void wait() { check(cudaStreamSynchronize(own_stream), "what was launched"); }

struct graph {
    cudaGraph_t source;
    cudaGraphExec_t ready;
};

graph *record(const std::function<void()> &launches) {
    graph *g = new graph;
    check(cudaStreamBeginCapture(own_stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    launches();
    check(cudaStreamEndCapture(own_stream, &g->source), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&g->ready, g->source, 0), "cudaGraphInstantiate");
    return g;
}

std::vector<double> replay(graph *g, int n) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<double> us;
    for (int i = 0; i <= n; i++) {
        check(cudaEventRecord(begin, own_stream), "cudaEventRecord");
        check(cudaGraphLaunch(g->ready, own_stream), "cudaGraphLaunch");
        check(cudaEventRecord(end, own_stream), "cudaEventRecord");
        check(cudaEventSynchronize(end), "the graph");
        float ms;
        check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        if (i > 0) us.push_back(ms * 1e3);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return us;
}

void drop(graph *g) {
    cudaGraphExecDestroy(g->ready);
    cudaGraphDestroy(g->source);
    delete g;
}

} // namespace machine
