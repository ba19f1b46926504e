/*
 * The arguments of the kernels of ChunkLlama's forward pass on a CUDA device (kernels.def). Plain C, for host and device.
 *
 * Rows of activations are f32, and for quantised matrices the records of linear_kernels.h as well, whose row groups all have
 * 8 rows here: those behind the last row are zeros.
 */
#ifndef CHUNKLLAMA_CUDA_KERNELS_H
#define CHUNKLLAMA_CUDA_KERNELS_H

#include <stdint.h>

enum { CL_CUDA_PRODUCTS = 3, CL_CUDA_PANELS_A_BLOCK = 4 };

/* y = W x of a matrix. */
typedef struct cl_cuda_product {
    const uint8_t *panels; /* packed (linear_format.h) */
    float *y;              /* [rows], y_stride floats apart */
    int32_t y_stride, n_out;
} cl_cuda_product;

/*
 * Products of matrices of one layout with the same rows: a block of threads has four panels, which are numbered through all
 * products, and the row groups of one of n_row_blocks blocks of rows.
 */
typedef struct cl_cuda_linear_args {
    const uint8_t *records; /* [row groups][n_blocks] for quantised layouts */
    const float *x;         /* [n_rows][n_in] for others */
    int32_t n_in, n_rows;
    int32_t n_products;
    uint8_t table[16]; /* cl_linear_table_of, or zeros */
    cl_cuda_product of[CL_CUDA_PRODUCTS];
} cl_cuda_linear_args;

/*
 * x = x + residual_scale * norm(delta + delta_bias), times *layer_scale; then out = norm(x), also as records. A vector that is
 * NULL is left out: without delta x stays, without a norm's scale the norm is the identity.
 */
typedef struct cl_cuda_norm_args {
    float *x;                                    /* [n_rows][n] */
    float *delta;                                /* [n_rows][n], overwritten */
    const float *delta_bias, *delta_norm, *norm; /* [n] */
    const float *delta_norm_bias, *norm_bias;    /* [n] */
    const float *layer_scale;                    /* [1] */
    float *out;                                  /* [n_rows][n] */
    uint8_t *records;                            /* [row groups][n / 32]; NULL: none, as where n is no multiple of 32 */
    float residual_scale, eps;
    int32_t n, n_rows, layer_norm;
} cl_cuda_norm_args;

/* Bias, norm, rotation and scale of the heads of one of Q, K and V. */
typedef struct cl_cuda_heads {
    float *rows;          /* [n_rows][n_heads][head_dim] */
    const float *bias;    /* [n_heads][head_dim]; NULL: none */
    const float *norm;    /* [head_dim], or [n_heads][head_dim] if own_norm; NULL: none */
    const float *cos_sin; /* [positions][n_rot]; NULL: not rotated */
    const float *scale;   /* [n_rows]; NULL: none */
    int32_t n_heads;
} cl_cuda_heads;
typedef struct cl_cuda_finish_args {
    cl_cuda_heads of[3];
    const int32_t *positions; /* [n_rows] */
    float eps;
    int32_t n_rows, head_dim, n_rot, halves, own_norm, norm_is_behind, layer_norm;
} cl_cuda_finish_args;

enum { CL_CUDA_SWIGLU, CL_CUDA_SWIGLU_CLAMPED, CL_CUDA_GEGLU, CL_CUDA_GELU };

/* h = activate(gate + gate_bias, up + up_bias), also as records; gate NULL: h = gelu(up + up_bias). h may be gate or up. */
typedef struct cl_cuda_activate_args {
    const float *gate, *up;           /* [n_rows][n] */
    const float *gate_bias, *up_bias; /* [n] */
    float *h;                         /* [n_rows][n] */
    uint8_t *records;                 /* as in cl_cuda_norm_args */
    int32_t n, n_rows, ffn;
} cl_cuda_activate_args;

/* Rows as records alone. */
typedef struct cl_cuda_quantize_args {
    const float *x; /* [n_rows][n] */
    uint8_t *records;
    int32_t n, n_rows;
} cl_cuda_quantize_args;

/* to [i] = from [rows [i]] */
typedef struct cl_cuda_gather_args {
    const float *from; /* [][n] */
    float *to;         /* [n_rows][n], apart from `from` */
    const int32_t *rows;
    int32_t n, n_rows;
} cl_cuda_gather_args;

#endif
