/* The CUDA backend's table. */
#include "backend.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

static const char *why(cudaError_t e) { return e == cudaSuccess ? NULL : cudaGetErrorString(e); }

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
    return NULL;
}

static const ca_cuda_backend backend = {count_devices, get_device};

extern "C" const ca_cuda_backend *ca_cuda_linked(void) { return &backend; }
