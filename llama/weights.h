/* A model's weights: matrices in kernel layouts, vectors in f32. */
#ifndef LLAMA_WEIGHTS_H
#define LLAMA_WEIGHTS_H

#include "base/threads.h"
#include "llama/file/model_file.h"
#include "llama/linear/linear.h"
#include "params.h"

/* Vectors that an architecture does not have are NULL. */
typedef struct layer_weights {
    float *attn_norm, *ffn_norm;           /* [n_embd] */
    float *post_attn_norm, *post_ffn_norm; /* [n_embd] */
    float *q_norm, *k_norm;                /* [head_dim] */
    float *q_bias, *k_bias, *v_bias;       /* [n_heads * head_dim], [n_kv_heads * head_dim] */
    linear q, k, v, o, gate, up, down;
} layer_weights;

typedef struct model_weights {
    const tensor *embedding; /* in the file: rows are dequantised when looked up */
    float *output_norm;
    float *rope_factors; /* [n_rot / 2] or NULL */
    linear output;
    layer_weights *layers; /* [n_layers] */
    int32_t n_layers;
    size_t bytes;   /* of repacked matrices */
    unsigned forms; /* linear_forms of all of them */
} model_weights;

/*
 * Check each tensor's shape against the parameters and repack it. Sets p->rope's factors, which live as long as the weights.
 * On failure, and after use, weights_free.
 */
cl_status weights_load(const model_file *file, model_params *p, ca_pool *pool, model_weights *w, cl_error *error);
void weights_free(model_weights *w);

#endif
