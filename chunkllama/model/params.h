/* A model's parameters: the shape of its layers and the constants in them, read from a file's metadata and checked. */
#ifndef CHUNKLLAMA_MODEL_PARAMS_H
#define CHUNKLLAMA_MODEL_PARAMS_H

#include "arch.h"
#include "chunkllama/file/model_file.h"

/* RoPE: pair i of the n_rot / 2 pairs of dimensions rotates by base^(-2i / n_rot) / scale / factors[i] radians per position. */
typedef struct cl_rope_params {
    double base;
    double scale;
    const float *factors; /* [n_rot / 2] borrowed from the weights (Llama 3); NULL: all 1 */
} cl_rope_params;

enum { CL_ROPE_FULL, CL_ROPE_WINDOW, CL_N_ROPES }; /* the RoPE of layers without and with a sliding window */

typedef struct cl_model_params {
    const cl_arch *arch;
    int32_t n_vocab, n_layers, n_embd, n_ff;
    int32_t n_next_layers; /* behind them in the file: they predict further tokens, and are left out */
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t n_ctx_train;
    int32_t n_rot;    /* number of leading dimensions of each head that are rotated; even */
    bool rope_halves; /* as in cl_arch, or the weights of Q and K are not permuted as GGUF's are */
    cl_rope_params rope[CL_N_ROPES];
    int32_t *windows; /* [n_layers] positions that a row sees, 0: all; owned. NULL: no layer has a window */
    float rms_eps;
    float score_scale;    /* multiplies q.k before softmax; 0: 1 / sqrt(head_dim) */
    float score_softcap;  /* 0: none */
    float logit_softcap;  /* 0: none */
    bool for_embeddings;  /* the file says how states are pooled: the model was trained to give embeddings */
    bool pools_mean;      /* as the mean of all; otherwise the last one is the embedding */
    bool embeddings_only; /* the file has no output matrix, so there are no logits */
} cl_model_params;

/*
 * Read all parameters except n_vocab and the factors of rope, which the tokenizer and the weights set. On failure, and after
 * use, call cl_params_free. CL_ERR_FORMAT, CL_ERR_UNSUPPORTED: messages name the key, its value and what is allowed.
 */
cl_status cl_params_read(const cl_model_file *file, cl_model_params *p, cl_error *error);
void cl_params_free(cl_model_params *p);

#endif
