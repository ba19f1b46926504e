/* A model's weights: matrices in kernel layouts, vectors in f32. */
#ifndef LLAMA_WEIGHTS_H
#define LLAMA_WEIGHTS_H

#include "base/threads.h"
#include "llama/file/model_file.h"
#include "llama/linear/linear.h"
#include "params.h"

/* Vectors that an architecture does not have are NULL. */
typedef struct cl_layer_weights {
    float *attn_norm, *ffn_norm;           /* [n_embd] */
    float *post_attn_norm, *post_ffn_norm; /* [n_embd] */
    float *q_norm, *k_norm;                /* [head_dim] */
    float *q_bias, *k_bias, *v_bias;       /* [n_heads * head_dim], [n_kv_heads * head_dim] */
    cl_linear q, k, v, o, gate, up, down;
} cl_layer_weights;

typedef struct cl_model_weights {
    const cl_tensor *embedding; /* in the file: rows are dequantised when looked up */
    float *output_norm;
    float *rope_factors; /* [n_rot / 2] or NULL */
    cl_linear output;
    cl_layer_weights *layers; /* [n_layers] */
    int32_t n_layers;
    size_t bytes;   /* of repacked matrices */
    unsigned forms; /* cl_linear_forms of all of them */
} cl_model_weights;

/*
 * Check each tensor's shape against the parameters and repack it. Sets p->rope's factors, which live as long as the weights.
 * On failure, and after use, cl_weights_free.
 */
cl_status cl_weights_load(const cl_model_file *file, cl_model_params *p, ca_pool *pool, cl_model_weights *w, cl_error *error);
void cl_weights_free(cl_model_weights *w);

#endif
