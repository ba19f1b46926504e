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

/*
 * The same products by every instruction that could compute them: X Y^T of a tile, X [64 rows][64] and Y [256 columns][64] of
 * 16-bit elements, summed over k in four steps of 16.
 */
enum { PRODUCT_ROWS = 64, PRODUCT_COLUMNS = 256, PRODUCT_K = 64, PRODUCT_STEPS = PRODUCT_K / 16 };

/*
 * By mma: rows of X as the rows of A, which gives the sums that all others are compared with; the same in other places of the
 * 16 x 8 that a product has; rows as the columns of B. From WGMMA on by wgmma: Y K-major or MN-major, X in shared memory or in
 * registers, N of 32, 64, 128 and 256, in this order.
 */
enum { ROWS_AS_A, ROWS_AS_A_MOVED, ROWS_AS_B, WGMMA, PRODUCT_WAYS = WGMMA + 2 * 2 * 4 };

struct run_difference {
    int32_t tile, step, row, column;
    float want, got;
};

struct run_products_args {
    const uint16_t *x;     /* [n_tiles][PRODUCT_ROWS][PRODUCT_K] */
    const uint16_t *y;     /* [n_tiles][PRODUCT_COLUMNS][PRODUCT_K] */
    const uint16_t *y_t;   /* [n_tiles][PRODUCT_K][PRODUCT_COLUMNS], the same numbers */
    float *sums;           /* [n_tiles][PRODUCT_STEPS][PRODUCT_ROWS][PRODUCT_COLUMNS]: what ROWS_AS_A gives after each step */
    uint32_t *n_differ;    /* [PRODUCT_WAYS] sums with other bits, to which these are added */
    run_difference *first; /* [PRODUCT_WAYS] one of the differences, if n_differ was 0 before */
    int32_t n_tiles;
    int32_t spoiled; /* the last bit of one sum is inverted in this way, to see that a difference is found; -1: in none */
};

#endif
