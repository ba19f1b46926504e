/*
 * The table of functions through which the library's C code calls its CUDA code.
 *
 * backend.cu defines ca_cuda_linked and is in an archive of its own, libchunkattn_cuda.a, so that a program which links only
 * libchunkattn.a needs no CUDA runtime. Only linked.c depends on whether it is there. All functions may be called from any
 * thread; they neither print nor synchronise.
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

/* Functions return NULL, or the CUDA runtime's description of the error, in static storage. */
typedef struct ca_cuda_backend {
    /* *n gets the number of devices, 0 on an error. */
    const char *(*count_devices)(int32_t *n);

    /* 0 <= device < the number of devices. On an error *info is undefined. */
    const char *(*get_device)(int32_t device, ca_cuda_device *info);
} ca_cuda_backend;

/* The backend; NULL if none is linked. */
const ca_cuda_backend *ca_cuda_get(void);

/* For linked.c only. */
const ca_cuda_backend *ca_cuda_linked(void);

#ifdef __cplusplus
}
#endif

#endif
