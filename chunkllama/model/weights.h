/* A model's weights: matrices in kernel layouts, vectors in f32. */
#ifndef CHUNKLLAMA_MODEL_WEIGHTS_H
#define CHUNKLLAMA_MODEL_WEIGHTS_H

#include "chunkattn/base/threads.h"
#include "chunkllama/file/model_file.h"
#include "chunkllama/linear/linear.h"
#include "params.h"

/* The vectors of a norm; scale NULL: there is no such norm, bias NULL: it has none. */
typedef struct cl_norm {
    float *scale, *bias;
} cl_norm;

/* The mixture of experts of one layer, as cl_layer_weights. A shared expert is the layer's feed-forward block. */
typedef struct cl_expert_weights {
    cl_linear router;                 /* (n_embd, n_experts) F32 */
    cl_linear shared_router;          /* (n_embd, 1) F32 */
    float *router_bias, *choice_bias; /* [n_experts] */
    cl_linear *gate, *up;             /* [n_experts] (n_embd, expert_n_ff) */
    cl_linear *down;                  /* [n_experts] (expert_n_ff, n_embd) */
    cl_linear_room gate_room, up_room, down_room;
    float *gate_bias, *up_bias, *down_bias; /* [n_experts][n_out] */
    float *scale;                           /* [n_experts] multiplies the weights of those that are chosen */
    cl_norm router_norm, norm, post_norm;   /* [n_embd] before the router, before the experts and behind them, if they are
                                               beside a dense block, */
    cl_norm post_dense_norm;                /* and behind that block */
    int32_t n;                              /* n_experts; 0: the layer has none */
} cl_expert_weights;

/* What AltUp does before and behind a layer (altup.h). */
typedef struct cl_altup_weights {
    cl_norm router_norm; /* [n_embd] */
    float *router;       /* [n_states][n_embd] */
    float *predict;      /* [n_states to][n_states from][n_states] */
    float *correct;      /* [n_states][n_states] */
    float *scale;        /* [n_embd] multiplies the corrected x on its way to the layer's own embedding */
} cl_altup_weights;

/*
 * The weights of one layer. A matrix is written (n_in, n_out): it multiplies rows of n_in values and yields rows of n_out. All
 * pointers are owned by the cl_model_weights they are part of. A vector or matrix that the model does not have is NULL or
 * empty.
 */
typedef struct cl_layer_weights {
    cl_norm attn_norm, ffn_norm;            /* [n_embd] before attention and feed-forward block */
    cl_norm post_attn_norm, post_ffn_norm;  /* [n_embd] behind them */
    cl_norm post_layer_embd_norm;           /* [n_embd] behind layer_embd_up */
    float *scale;                           /* [1] multiplies x at the end of the layer */
    float *q_norm, *k_norm;                 /* [head_dim], or the length of q_bias and k_bias (cl_qk_norm) */
    float *q_bias, *o_bias;                 /* [n_heads * head_dim], [n_embd] */
    float *k_bias, *v_bias;                 /* [n_kv_heads * head_dim] */
    float *sinks;                           /* [n_heads] */
    float *gate_bias, *up_bias, *down_bias; /* [n_ff], [n_ff], [n_embd] */
    cl_linear q;                            /* (n_embd, n_heads * head_dim) */
    cl_linear k, v;                         /* (n_embd, n_kv_heads * head_dim); v is empty if V is k x, both if !cl_has_kv */
    cl_linear o;                            /* (n_heads * head_dim, n_embd) */
    cl_linear gate, up;                     /* (n_embd, n_ff); gate is empty if the block has none */
    cl_linear down;                         /* (n_ff, n_embd) */
    cl_expert_weights experts;
    cl_linear layer_embd_gate;           /* (n_embd, n_layer_embd) of the layer's own embedding */
    cl_linear layer_embd_up;             /* (n_layer_embd, n_embd) */
    cl_linear laurel_left, laurel_right; /* (n_embd, laurel_rank), (laurel_rank, n_embd) beside attention */
    cl_norm laurel_norm;                 /* [n_embd] behind laurel_right */
    cl_altup_weights altup;
} cl_layer_weights;

/* All weights of a model. Immutable after loading; safe from any number of threads. */
typedef struct cl_model_weights {
    const cl_linear *embedding; /* (n_embd, n_vocab) `output` or own_embedding; rows are dequantised when they are looked up */
    cl_linear own_embedding;    /* empty if the embedding is `output` */
    /*
     * The layers' own embeddings of a token are [n_layers * n_layer_embd] together. They are empty if n_layer_embd is 0, as are
     * the two below: they are added to a product of the embedding, of which each layer's part is normed.
     */
    cl_linear layer_embeddings; /* (n_layers * n_layer_embd, n_vocab) rows are dequantised when they are looked up */
    cl_linear layer_embd_proj;  /* (n_embd, n_layers * n_layer_embd) */
    cl_norm layer_embd_norm;    /* [n_layer_embd] */
    cl_linear states_in[CL_MAX_STATES - 1];  /* (n_embd, n_embd) from embeddings to further states */
    cl_linear states_out[CL_MAX_STATES - 1]; /* (n_embd, n_embd) from these to what is added to the first at the end */
    cl_norm output_norm;                     /* [n_embd] */
    float *divisors, *short_divisors;        /* [n_rot / 2] as in cl_rope_params, or NULL */
    float *sink_logits;                      /* [n_layers][n_heads] those of all layers, or NULL */
    cl_linear output;                        /* (n_embd, n_vocab) */
    cl_layer_weights *layers;                /* [n_layers] */
    int32_t n_layers;
    size_t bytes;   /* of all matrices that are multiplied */
    unsigned forms; /* cl_linear_forms of all matrices, or-ed: the forms of activations that they need */
} cl_model_weights;

/* Is called on the loading thread after each layer. */
typedef struct cl_load_watcher {
    void (*on_layer)(void *ctx, int32_t n_done, int32_t n_layers);
    void *ctx;
} cl_load_watcher;

/*
 * Check each tensor's shape against the parameters and repack it, in parallel on the pool. Sets the divisors of p->rope and
 * p->sink_logits, which live as long as the weights. The file and the watcher (NULL: none) are needed for the call only. *w
 * must not move. On failure, and after use, call cl_weights_free.
 *
 * CL_ERR_FORMAT: a tensor is missing or has another shape; CL_ERR_UNSUPPORTED: its type cannot be read, or the architecture
 * has no such tensor, nor lists it as left out; CL_ERR_FILE: the file was truncated meanwhile; CL_ERR_NOMEM. Messages name the
 * tensor as the file does.
 */
cl_status cl_weights_load(const cl_model_file *file, cl_model_params *p, ca_pool *pool, const cl_load_watcher *watcher,
                          cl_model_weights *w, cl_error *error);
void cl_weights_free(cl_model_weights *w);

/* Whether cl_weights_load finds each tensor that it needs, in a form that it reads, and no other; its errors, but for reading.
 */
cl_status cl_weights_check(const cl_model_file *file, const cl_model_params *p, cl_error *error);

/*
 * Whether processes that are forked from now on have the matrices in their memory, which they do by default. They share them,
 * but a fork takes longer with them, about 30 ms for each 4 GiB.
 */
void cl_weights_fork(const cl_model_weights *w, bool inherited);

#endif
