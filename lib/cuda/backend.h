/*
 * The seam between the library's C and its CUDA: one table of functions, which a build has or has not.
 *
 * absent.c and backend.cu define the same function; the build takes one of them. Nothing else asks whether CUDA is compiled in.
 */
#ifndef LIB_CUDA_BACKEND_H
#define LIB_CUDA_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ca_cuda_device {
    char name[64];
    int32_t major, minor; /* compute capability */
    int32_t n_processors; /* streaming multiprocessors */
    uint64_t memory_bytes;
} ca_cuda_device;

/* Functions return NULL, or in static storage what the CUDA runtime says is wrong. They neither print nor synchronise. */
typedef struct ca_cuda_backend {
    /* *n is 0 where this fails. */
    const char *(*count_devices)(int32_t *n);

    /* 0 <= device < the count. */
    const char *(*get_device)(int32_t device, ca_cuda_device *info);
} ca_cuda_backend;

/* NULL: this build has none. */
const ca_cuda_backend *ca_cuda_get(void);

#ifdef __cplusplus
}
#endif

#endif
