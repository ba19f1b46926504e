/* A model's parameters: the shape of its layers and the constants in them, read from a file's metadata and checked. */
#ifndef CHUNKLLAMA_MODEL_PARAMS_H
#define CHUNKLLAMA_MODEL_PARAMS_H

#include "arch.h"
#include "chunkllama/file/model_file.h"
#include "rope.h"
#include "router.h"

#include <math.h>

/* The RoPE of layers without and with a sliding window, and of layers that are not rotated. */
enum { CL_ROPE_FULL, CL_ROPE_WINDOW, CL_N_ROPES, CL_ROPE_NONE = CL_N_ROPES };

enum { CL_MAX_STATES = 4 };

typedef struct cl_model_params {
    const cl_arch *arch;
    int32_t n_vocab, n_layers, n_embd;
    int32_t n_next_layers; /* behind them in the file: they predict further tokens, and are left out */
    int32_t n_heads;
    int32_t *n_kv_heads, *head_dim; /* [n_layers] owned, as the next two */
    int32_t *n_ff;       /* [n_layers] of the feed-forward block, or of the shared expert; 0: a layer has experts alone */
    int32_t *kv_source;  /* [n_layers] the layer whose K and V a layer attends over: an earlier one, or its own index */
    int32_t n_states;    /* of a row, of which layers compute the first (altup.h); 1: it has no others */
    int32_t laurel_rank; /* of the low-rank product beside attention; 0: layers have none */
    /* [n_layers] what cl_ops_cut takes as deviations for the gates; minus infinity: they are not cut. Owned; NULL: in no layer.
     */
    float *gate_cuts;
    int32_t n_layer_embd; /* values of the embedding of a token that each layer has for itself; 0: layers have none */
    bool values_are_keys, maybe_values_are_keys; /* layers without a window lack the matrix of V; the file shows whether */
    int32_t n_ctx_train;
    cl_router_params router; /* n_experts 0: no layer has experts */
    int32_t n_dense_layers;  /* the first ones, which have no experts */
    int32_t expert_n_ff;     /* of an expert */
    bool rope_halves;        /* as in cl_arch, or the weights of Q and K are not permuted as GGUF's are */
    cl_rope_params rope[CL_N_ROPES];
    int32_t *windows;         /* [n_layers] positions that a row sees, 0: all; owned. NULL: no layer has a window */
    const float *sink_logits; /* [n_layers][n_heads] borrowed from the weights; NULL: heads have none */
    bool *plain;              /* [n_layers] whether a layer is not rotated; owned. NULL: all are rotated */

    /* The query at position p is multiplied by 1 + query_beta log(1 + p / query_period), p / query_period rounded down. */
    double query_beta; /* 0: none */
    int32_t query_period;

    unsigned biases, maybe_biases; /* as in cl_arch; a folder says which there are */
    float norm_eps;
    float score_scale;     /* multiplies q.k before softmax; 0: 1 / sqrt(head_dim of the layer) */
    float score_softcap;   /* 0: none */
    float embedding_scale; /* multiplies embeddings */
    float residual_scale;  /* multiplies the outputs of attention and feed-forward block before they are added to x */
    float logit_scale;     /* multiplies logits, before their cap */
    float logit_softcap;   /* 0: none */
    bool for_embeddings;   /* the file says how states are pooled: the model was trained to give embeddings */
    bool pools_mean;       /* as the mean of all; otherwise the last one is the embedding */
    bool embeddings_only;  /* the file has no output matrix, so there are no logits */
} cl_model_params;

/*
 * Read all parameters except n_vocab and the factors of rope, which the tokenizer and the weights set. On failure, and after
 * use, call cl_params_free. CL_ERR_FORMAT, CL_ERR_UNSUPPORTED: messages name the key, its value and what is allowed.
 */
cl_status cl_params_read(const cl_model_file *file, cl_model_params *p, cl_error *error);
void cl_params_free(cl_model_params *p);

static inline bool cl_has_experts(const cl_model_params *p, int32_t layer) {
    return p->router.n_experts > 0 && layer >= p->n_dense_layers;
}

/* Values of a row of a layer's Q, and of its K and V. */
static inline int32_t cl_n_q(const cl_model_params *p, int32_t layer) { return p->n_heads * p->head_dim[layer]; }
static inline int32_t cl_n_kv(const cl_model_params *p, int32_t layer) { return p->n_kv_heads[layer] * p->head_dim[layer]; }

/* Whether a layer computes K and V. */
static inline bool cl_has_kv(const cl_model_params *p, int32_t layer) { return p->kv_source[layer] == layer; }

/* Whether the gates of a layer's feed-forward block are cut. */
static inline bool cl_is_cut(const cl_model_params *p, int32_t layer) {
    return p->gate_cuts && p->gate_cuts[layer] > -INFINITY;
}

static inline int32_t cl_most(const int32_t *x, int32_t n) {
    int32_t most = x[0];
    for (int32_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/*
 * Bytes of K and V of a token in all layers. number: of a value of K or V; head: of a head of K or V, beside its values.
 */
uint64_t cl_params_kv_bytes(const cl_model_params *p, uint64_t number, uint64_t head);

/* The RoPE of a layer: CL_ROPE_FULL, CL_ROPE_WINDOW or CL_ROPE_NONE. */
static inline int cl_rope_of(const cl_model_params *p, int32_t layer) {
    if (p->plain && p->plain[layer]) return CL_ROPE_NONE;
    return p->windows && p->windows[layer] ? CL_ROPE_WINDOW : CL_ROPE_FULL;
}

#endif
