/*
 * A loaded model: parameters, weights in kernel layouts, tokenizer and chat format of one GGUF file of architecture `llama`.
 *
 * Immutable after loading; safe from any number of threads.
 */
#ifndef LLAMA_MODEL_H
#define LLAMA_MODEL_H

#include <stdint.h>

#include "base/threads.h"
#include "chat.h"
#include "error.h"
#include "linear.h"
#include "model_file.h"
#include "tokenizer.h"

typedef struct model_params {
    int32_t n_vocab, n_layers, n_embd, n_ff;
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t n_ctx_train;
    int32_t n_rot; /* leading dimensions of a head that are rotated */
    float rms_eps;
    double rope_base;
    double rope_scale;         /* linear scaling: positions are divided by this; 1: none */
    const float *rope_factors; /* [n_rot/2] frequency divisors (Llama 3), NULL: none; in the file */
} model_params;

typedef struct model_layer {
    const float *attn_norm, *ffn_norm; /* [n_embd] */
    linear q, k, v, o, gate, up, down;
} model_layer;

typedef struct model {
    model_file *file;
    char *path;
    model_params params;
    tokenizer *tok;
    chat_format chat; /* CHAT_NONE: no template; chat_error says why where it is unknown */
    cl_error chat_error;
    const tensor *embedding; /* rows are dequantised when looked up */
    const float *output_norm;
    linear output;
    model_layer *layers;
    const linear_kernel *kernel; /* the level in use */
    size_t weight_bytes;         /* of repacked weights */
} model;

typedef struct model_options {
    const char *level; /* highest kernel level; NULL: the CPU's best. CATTN_LEVEL lowers it */
    ca_pool *pool;     /* repacks in parallel; borrowed for the call */
} model_options;

cl_status model_load(const char *path, const model_options *options, model **m, cl_error *error);
void model_free(model **m);

#endif
