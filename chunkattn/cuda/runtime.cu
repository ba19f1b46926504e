/* The table of runtime.h, by CUDA's runtime. */
#include "runtime.h"

#include <cuda_runtime.h>
#include <stdio.h>

#include "products.h"
#include "work_item.h"

static const char *why(cudaError_t e) { return e == cudaSuccess ? NULL : cudaGetErrorString(e); }

/* ---- Devices ---- */

static const char *count_devices(int32_t *n) {
    int found = 0;
    const cudaError_t e = cudaGetDeviceCount(&found);
    *n = e == cudaSuccess ? found : 0;
    if (e == cudaErrorNoDevice) return NULL;
    return why(e);
}

static const char *get_device(int32_t device, ca_cuda_device *info) {
    cudaDeviceProp p;
    const cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess) return why(e);
    snprintf(info->name, sizeof info->name, "%.63s", p.name);
    info->major = p.major;
    info->minor = p.minor;
    info->n_processors = p.multiProcessorCount;
    info->memory_bytes = p.totalGlobalMem;
    info->shared_block = p.sharedMemPerBlockOptin;
    info->shared_processor = p.sharedMemPerMultiprocessor;
    info->wgmma = p.major == 9; /* no other generation has it */
    info->known_sums = false;
    return NULL;
}

/*
 * While any thread captures in CUDA's default mode, another thread that allocates or asks whether an event has passed would end
 * that capture with an error. What this library does then concerns no captured work, so it may.
 */
static const char *enter(int32_t device, ca_cuda_caller *before) {
    int current = 0;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaError_t e = cudaThreadExchangeStreamCaptureMode(&mode);
    before->capture_mode = e == cudaSuccess ? (int32_t)mode : (int32_t)cudaStreamCaptureModeGlobal;
    if (e == cudaSuccess) e = cudaGetDevice(&current);
    before->device = current;
    if (e == cudaSuccess && current != device) e = cudaSetDevice(device);
    return why(e);
}

static void leave(const ca_cuda_caller *before) {
    cudaStreamCaptureMode mode = (cudaStreamCaptureMode)before->capture_mode;
    int current = 0;
    if (cudaGetDevice(&current) == cudaSuccess && current != before->device) cudaSetDevice(before->device);
    cudaThreadExchangeStreamCaptureMode(&mode);
}

/* ---- Memory ---- */

/* Running out of memory is not an error of the launches that follow. */
static const char *allocated(void **p, cudaError_t e) {
    if (e == cudaSuccess) return NULL;
    *p = NULL;
    cudaGetLastError();
    return why(e);
}

static const char *allocate(void **p, size_t bytes) { return allocated(p, cudaMalloc(p, bytes)); }

static const char *free_memory(void *p) { return why(cudaFree(p)); }

static const char *acquire(void **p, size_t bytes, ca_cuda_stream stream) {
    return allocated(p, cudaMallocAsync(p, bytes, stream));
}

static const char *release(void *p, ca_cuda_stream stream) { return p ? why(cudaFreeAsync(p, stream)) : NULL; }

static const char *allocate_host(void **p, size_t bytes) { return allocated(p, cudaMallocHost(p, bytes)); }

static const char *free_host(void *p) { return why(cudaFreeHost(p)); }

static const char *copy(void *to, const void *from, size_t bytes, ca_cuda_stream stream) {
    return why(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
}

static const char *zero(void *p, size_t bytes, ca_cuda_stream stream) { return why(cudaMemsetAsync(p, 0, bytes, stream)); }

static const char *copy_back(void *to, const void *from, size_t bytes, ca_cuda_stream stream) {
    return why(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
}

/* ---- Streams ---- */

/* The default stream would wait for others, and another thread's capture forbids it. */
static const char *create_stream(ca_cuda_stream *stream) {
    return why(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
}

static void destroy_stream(ca_cuda_stream stream) { cudaStreamDestroy(stream); }

static const char *wait(ca_cuda_stream stream) { return why(cudaStreamSynchronize(stream)); }

/* ---- Launches ---- */

#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    extern "C" __global__ void ca_cuda_##name(const args a);
#include "kernels.def"
#undef CA_CUDA_KERNEL

static const ca_cuda_kernel kernels[] = {
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    {#name, (const void *)ca_cuda_##name, threads, shared},
#include "kernels.def"
#undef CA_CUDA_KERNEL
};

/*
 * Asking for its attributes loads a kernel, which would otherwise happen at its first launch. Dynamic shared memory beyond what
 * every device has must be allowed once for each kernel and device.
 */
static const char *prepare(const ca_cuda_kernel *k) {
    cudaFuncAttributes attributes;
    cudaError_t e = cudaFuncGetAttributes(&attributes, k->function);
    if (e == cudaSuccess && k->shared > 0)
        e = cudaFuncSetAttribute(k->function, cudaFuncAttributeMaxDynamicSharedMemorySize, k->shared);
    return why(e);
}

static const char *launch(const ca_cuda_kernel *k, int32_t blocks, const void *args, ca_cuda_stream stream) {
    void *arguments[] = {(void *)args};
    return why(cudaLaunchKernel(k->function, dim3((unsigned)blocks), dim3((unsigned)k->threads), arguments, (size_t)k->shared,
                                stream));
}

/* ---- Graphs ---- */

static const char *begin_graph(ca_cuda_stream stream) {
    return why(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
}

static const char *end_graph(ca_cuda_stream stream, ca_cuda_graph **graph) {
    cudaGraph_t captured = NULL;
    cudaGraphExec_t ready = NULL;
    cudaError_t e = cudaStreamEndCapture(stream, &captured);
    if (e == cudaSuccess) e = cudaGraphInstantiate(&ready, captured, 0);
    if (captured) cudaGraphDestroy(captured);
    *graph = (ca_cuda_graph *)ready;
    return why(e);
}

static const char *run_graph(ca_cuda_graph *graph, ca_cuda_stream stream) {
    return why(cudaGraphLaunch((cudaGraphExec_t)graph, stream));
}

static void destroy_graph(ca_cuda_graph *graph) {
    if (graph) cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

/* ---- Events ---- */

static const char *create_event(ca_cuda_event **event) {
    cudaEvent_t e = NULL;
    const char *failure = why(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    *event = (ca_cuda_event *)e;
    return failure;
}

static void destroy_event(ca_cuda_event *event) { cudaEventDestroy((cudaEvent_t)event); }

static const char *record(ca_cuda_event *event, ca_cuda_stream stream) {
    return why(cudaEventRecord((cudaEvent_t)event, stream));
}

static bool passed(ca_cuda_event *event) { return cudaEventQuery((cudaEvent_t)event) == cudaSuccess; }

static const ca_cuda_runtime runtime = {
    count_devices, get_device, enter,     leave,         allocate,      free_memory,    acquire, release, allocate_host,
    free_host,     copy,       zero,      copy_back,     create_stream, destroy_stream, wait,    prepare, launch,
    begin_graph,   end_graph,  run_graph, destroy_graph, create_event,  destroy_event,  record,  passed,  kernels,
};

extern "C" const ca_cuda_runtime *ca_cuda_linked(void) { return &runtime; }
