/* The first CUDA device: see ../device/test_device.h. Its memory is managed, so that the host may access it. */
#include "tests/chunkattn/cuda/device/test_device.h"

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <map>
#include <vector>

static void check(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

/* Blocks are not given back but used again, by their sizes: a test allocates tensors for each layer of a step. */
static std::map<void *, size_t> sizes;
static std::map<size_t, std::vector<void *>> unused;

void *dev_alloc(size_t bytes, const char *) {
    size_t size = 256;
    while (size < bytes) size *= 2;
    std::vector<void *> &same = unused[size];
    if (same.empty()) {
        void *p;
        check(cudaMallocManaged(&p, size, cudaMemAttachGlobal), "cudaMallocManaged");
        sizes[p] = size;
        return p;
    }
    void *p = same.back();
    same.pop_back();
    return p;
}

void dev_free(void *p) {
    if (p) unused[sizes.at(p)].push_back(p);
}

void *dev_stream(int i) {
    static std::map<int, cudaStream_t> streams;
    cudaStream_t &stream = streams[i];
    if (!stream) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
}

void dev_finish() { check(cudaDeviceSynchronize(), "what was queued"); }
void dev_delay(bool, uint64_t) {}
int dev_errors() { return 0; }

static cudaStream_t captured_stream() { return static_cast<cudaStream_t>(dev_stream(0)); }
static std::map<uint64_t, cudaGraphExec_t> graphs;

void dev_begin_capture() {
    check(cudaStreamBeginCapture(captured_stream(), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
}

int dev_end_capture(uint64_t graph) {
    cudaGraph_t captured;
    size_t n = 0;
    check(cudaStreamEndCapture(captured_stream(), &captured), "cudaStreamEndCapture");
    check(cudaGraphGetNodes(captured, nullptr, &n), "cudaGraphGetNodes");
    check(cudaGraphInstantiateWithFlags(&graphs[graph], captured, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(captured), "cudaGraphDestroy");
    return static_cast<int>(n);
}

bool dev_replay(uint64_t graph) {
    const auto found = graphs.find(graph);
    if (found == graphs.end()) return false;
    check(cudaGraphLaunch(found->second, captured_stream()), "cudaGraphLaunch");
    return true;
}

void dev_drop_graphs() {
    for (const auto &g : graphs) check(cudaGraphExecDestroy(g.second), "cudaGraphExecDestroy");
    graphs.clear();
}
