/*
 * The arguments and results of products.cuh, which compares the same sums of products by every instruction that could compute
 * them. Plain C, for host and device.
 */
#ifndef CHUNKATTN_CUDA_PRODUCTS_H
#define CHUNKATTN_CUDA_PRODUCTS_H

#include <stdint.h>

/* A tile is X Y^T, X [64 rows][64] and Y [256 columns][64] of 16-bit elements, summed over k in four steps of 16. */
enum {
    CA_PRODUCT_ROWS = 64,
    CA_PRODUCT_COLUMNS = 256,
    CA_PRODUCT_K = 64,
    CA_PRODUCT_STEPS = CA_PRODUCT_K / 16,
    CA_PRODUCT_SUMS = CA_PRODUCT_STEPS * CA_PRODUCT_ROWS * CA_PRODUCT_COLUMNS
};

/*
 * By mma: rows of X as the rows of A, which gives the sums that all others are compared with; the same in other places of the
 * 16 x 8 that a product has; rows as the columns of B. From BY_WGMMA on: Y K-major or MN-major, X in shared memory or in
 * registers, N of 32, 64, 128 and 256, in this order.
 */
enum {
    CA_PRODUCT_ROWS_AS_A,
    CA_PRODUCT_ROWS_MOVED,
    CA_PRODUCT_ROWS_AS_B,
    CA_PRODUCT_BY_WGMMA,
    CA_PRODUCT_WAYS = CA_PRODUCT_BY_WGMMA + 2 * 2 * 4
};

typedef struct ca_cuda_difference {
    int32_t tile, step, row, column;
    float want, got;
} ca_cuda_difference;

/* All zeros before the launch, which adds to it. */
typedef struct ca_cuda_products {
    uint32_t n_differ[CA_PRODUCT_WAYS];        /* sums with other bits */
    ca_cuda_difference first[CA_PRODUCT_WAYS]; /* one of them, where there are any */
} ca_cuda_products;

typedef struct ca_cuda_products_args {
    ca_cuda_products *found;
    float *sums; /* [blocks][CA_PRODUCT_SUMS] scratch */
    int32_t n_tiles;
    int32_t spoiled; /* the last bit of one sum is inverted in this way, to see that a difference is found; -1: in none */
} ca_cuda_products_args;

#endif
