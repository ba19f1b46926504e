/*
 * The table of functions through which the library's C code calls its CUDA code.
 *
 * runtime.cu defines ca_cuda_linked and is in an archive of its own, libchunkattn_cuda.a, so that a program which links only
 * libchunkattn.a needs no CUDA runtime. Only linked.c depends on whether it is there. Tests link a table that runs the kernels
 * in the emulation (tests/chunkattn/cuda/device/).
 *
 * Functions may be called from any thread and do not print. Those that take a stream queue their work there and return without
 * waiting for it. Only `wait` waits, except that CUDA's own functions may where they allocate and free memory. Between enter
 * and leave another thread may capture a graph, in any mode.
 */
#ifndef CHUNKATTN_CUDA_RUNTIME_H
#define CHUNKATTN_CUDA_RUNTIME_H

#include <stdbool.h>
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
    size_t shared_block, shared_processor; /* the most bytes of shared memory of a block, and of a multiprocessor's blocks */
    bool wgmma;      /* it has wgmma; ca_device_check_sums clears it where its sums have other bits than those of mma */
    bool known_sums; /* its sums need no check */
} ca_cuda_device;

/* The kernels of kernels.def, in its order. */
typedef enum ca_cuda_kernel_id {
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function) CA_CUDA_##name,
#include "kernels.def"
#undef CA_CUDA_KERNEL
    CA_CUDA_N_KERNELS
} ca_cuda_kernel_id;

/* A kernel, in static storage. ChunkLlama has kernels of its own (chunkllama/cuda/). */
typedef struct ca_cuda_kernel {
    const char *name;
    const void *function;    /* CUDA's, or an emu::kernel */
    int32_t threads, shared; /* of a block; bytes of dynamic shared memory */
} ca_cuda_kernel;

typedef struct CUstream_st *ca_cuda_stream; /* NULL: the default stream */
typedef struct ca_cuda_event ca_cuda_event;
typedef struct ca_cuda_graph ca_cuda_graph;

/* What a thread's own device is, and which calls it may make while another one captures a graph. */
typedef struct ca_cuda_caller {
    int32_t device, capture_mode;
} ca_cuda_caller;

/* Functions return NULL, or the CUDA runtime's description of the error, in static storage. */
typedef struct ca_cuda_runtime {
    /* *n gets the number of devices, 0 on an error. */
    const char *(*count_devices)(int32_t *n);

    /* 0 <= device < the number of devices. On an error *info is undefined. */
    const char *(*get_device)(int32_t device, ca_cuda_device *info);

    /* Make a device the calling thread's current one, to which all functions below refer, and allow the thread to make any of
     * their calls. *before gets what held for it, even on an error, and leave restores that. */
    const char *(*enter)(int32_t device, ca_cuda_caller *before);
    void (*leave)(const ca_cuda_caller *before);

    /* Device memory, aligned to 256 bytes and not cleared. *p is NULL on an error. No queued work may use what is freed; NULL
     * is ignored. */
    const char *(*allocate)(void **p, size_t bytes);
    const char *(*free_memory)(void *p);

    /* The same in a stream's order: work that is queued there after `acquire` and before `release` may use the memory.
     * free_memory may free it, too. release ignores NULL. */
    const char *(*acquire)(void **p, size_t bytes, ca_cuda_stream stream);
    const char *(*release)(void *p, ca_cuda_stream stream);

    /* Pinned memory of the host, from which `copy` returns without waiting. *p is NULL on an error. free_host ignores NULL. */
    const char *(*allocate_host)(void **p, size_t bytes);
    const char *(*free_host)(void *p);

    /* Copy from the host, or clear. `from` must stay unchanged until the copy has run. */
    const char *(*copy)(void *to, const void *from, size_t bytes, ca_cuda_stream stream);
    const char *(*zero)(void *p, size_t bytes, ca_cuda_stream stream);

    /* Copy to the host. *to is undefined until the copy has run. */
    const char *(*copy_back)(void *to, const void *from, size_t bytes, ca_cuda_stream stream);

    /* A stream that waits for no other, nor another for it. It must have no work when it is destroyed. */
    const char *(*create_stream)(ca_cuda_stream *stream);
    void (*destroy_stream)(ca_cuda_stream stream);
    /* Wait until a stream's work has run. */
    const char *(*wait)(ca_cuda_stream stream);

    /* Load a kernel on the current device, to be called before it is launched there: a launch that is captured must not load.
     */
    const char *(*prepare)(const ca_cuda_kernel *kernel);

    /* Run a kernel. *args is its argument struct, borrowed for the call. */
    const char *(*launch)(const ca_cuda_kernel *kernel, int32_t blocks, const void *args, ca_cuda_stream stream);

    /* Launches on a stream between the two run not now, but each time the graph is run. Nothing else may be queued there
     * meanwhile. *graph is NULL on an error, which may be that of a launch. destroy_graph: the graph is not running; NULL is
     * ignored. */
    const char *(*begin_graph)(ca_cuda_stream stream);
    const char *(*end_graph)(ca_cuda_stream stream, ca_cuda_graph **graph);
    const char *(*run_graph)(ca_cuda_graph *graph, ca_cuda_stream stream);
    void (*destroy_graph)(ca_cuda_graph *graph);

    /* An event has passed when all work that was queued before its last `record` has run, or if it was never recorded. */
    const char *(*create_event)(ca_cuda_event **event);
    void (*destroy_event)(ca_cuda_event *event);
    const char *(*record)(ca_cuda_event *event, ca_cuda_stream stream);
    bool (*passed)(ca_cuda_event *event);

    const ca_cuda_kernel *kernels; /* [CA_CUDA_N_KERNELS] those of kernels.def, by their ids */
} ca_cuda_runtime;

/* The table; NULL if none is linked. */
const ca_cuda_runtime *ca_cuda_get(void);

/* For linked.c only. */
const ca_cuda_runtime *ca_cuda_linked(void);

#ifdef __cplusplus
}
#endif

#endif
