/* The arguments of run_kernels.cuh's kernels, for host and device. */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_RUN_RUN_KERNELS_H
#define TESTS_CHUNKATTN_CUDA_DEVICE_RUN_RUN_KERNELS_H

#include <cstdint>

#include "chunkattn/cuda/work_item.h"

/* Chunk c of n_chunks is filled with numbers that depend only on content[c] and the place within the chunk. */
struct run_fill_args {
    void *kv;
    int64_t chunk_bytes;
    const int32_t *content; /* [n_chunks] */
    int32_t n_chunks;
};

struct run_span_args {
    const void *from;
    void *to;        /* of run_copy only */
    int64_t n_units; /* of 16 bytes */
};

struct run_chase_args {
    const uint32_t *next; /* the index of the next word, for each word of the chain */
    uint32_t *end;        /* the last index is stored here */
    int32_t n_hops;
};

struct run_mma_args {
    float *out; /* [threads of the grid] */
    int32_t n;  /* rounds, of one product in run_mma_chain and eight in run_mma_peak */
};

/* When a block began and ended, in nanoseconds and in cycles of its multiprocessor. */
struct run_stamp {
    uint64_t begin_ns, end_ns, begin_cycle, end_cycle;
};

struct run_stamped_args {
    ca_cuda_attend_args attend;
    run_stamp *stamps; /* [blocks] */
};

#endif
