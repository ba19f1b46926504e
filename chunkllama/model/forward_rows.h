/*
 * The operations of the forward pass on rows between two matrix products: embedding, norms, bias, rotation, residual addition.
 * Each function runs one task for each row group (8 rows) and leaves the rows prepared for the next product. Bias, norm and
 * rotation of Q, K and V are applied instead by the thread that has just computed the values.
 */
#ifndef CHUNKLLAMA_MODEL_FORWARD_ROWS_H
#define CHUNKLLAMA_MODEL_FORWARD_ROWS_H

#include "chunkllama/linear/linear_kernels.h"
#include "forward.h"
#include "moe.h"

/* The forward pass on a CPU. */
typedef struct cl_cpu_forward {
    cl_forward base;
    cattn_cache *cache;
    ca_pool *pool;

    float *x;                    /* [max_rows][n_embd] residual stream */
    float *q, *k, *v, *attended; /* [max_rows][cl_n_q or cl_n_kv of the layer] */
    float *query_scale;          /* [max_rows] or NULL: queries are not scaled by their position */
    float *others;               /* [max_rows][n_states - 1][n_embd] further states of a row; NULL: it has none */
    float *predicted;            /* [max_rows][n_embd] what was predicted for x, or NULL */
    float *laurel;               /* [max_rows][n_embd] output of the product beside attention, or NULL */
    float *room;                 /* [workers][n_embd] for AltUp, or NULL */
    float *layer_embd;           /* [max_rows][n_layers][n_layer_embd] the layers' own embeddings; NULL: they have none */
    float *token_embd;           /* [workers][n_layers][n_layer_embd] those of a token alone, or NULL */
    float *ones;                 /* [head_dim] the weights of V's norm; NULL: V is not normed */
    float *cos_sin[CL_N_ROPES];  /* [max_rows][n_rot] cosine and sine of each pair; NULL: no layer uses this RoPE */
    float *branch; /* [microbatch][n_embd] output of the last product, which is added to x; then x after the next norm */
    float *aside;  /* [microbatch][n_embd] the output of attention where the feed-forward block has the same input; or NULL */
    float *gate;   /* [microbatch][n_ff of the widest layer] gates that are cut; NULL: there are none */
    float *beside; /* [microbatch][n_embd] input and output of experts beside a dense block; NULL: there are none */
    float *h;      /* [microbatch][n_ff of the widest layer, n_layer_embd or laurel_rank] activations */
    cl_moe *moe;   /* NULL: no layer has experts */
    double *frequency[CL_N_ROPES]; /* [n_rot / 2] radians per position */
    cl_linear_input *in, *in_h;    /* in_h prepares h, in everything else */

    /* The architecture's choices. */
    void (*rope)(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot);
    void (*norm)(const float *x, const float *weight, int32_t n, float eps, float *out);
    cl_linear_activate *activate; /* of blocks that have a gate */

    int32_t *kept; /* [max_rows] rows of which the last layer is computed to its end */

    /* The open step. */
    const int32_t *tokens;
    const int64_t *positions;
} cl_cpu_forward;

/* Rows [first, first + n) of the step, in a layer. */
typedef struct cl_microbatch {
    cl_cpu_forward *f;
    int32_t first, n;
    int32_t layer;
    int32_t state; /* a further one; set for cl_rows_end_state */
    float *logits; /* [n][n_vocab] f32, borrowed; set for the output layer */
} cl_microbatch;

/* Floats between the further states of two rows. */
static inline int32_t cl_n_others(const cl_cpu_forward *f) {
    return (f->base.m->params.n_states - 1) * f->base.m->params.n_embd;
}

static inline float *cl_row_of(float *rows, int32_t row, int32_t n) { return rows + (size_t)row * (size_t)n; }

/*
 * Write the embeddings of tokens to x, the rotations of positions to cos_sin, and the norm of x to branch; x itself where
 * layers have embeddings of their own.
 */
void cl_rows_embed(cl_microbatch *p);
/*
 * Add branch to x, after a norm of its own if the architecture has one, and write the norm of x to branch. That is the router's
 * if there are experts beside a dense block, whose input is then written to beside.
 */
void cl_rows_add_attention(cl_microbatch *p);
/* Write the norm of x to branch that is the input of a dense block beside experts. */
void cl_rows_norm_dense(cl_microbatch *p);
/* Norm branch and beside, the outputs of a dense block and the experts beside it, and add beside to branch. */
void cl_rows_add_beside(cl_microbatch *p);
/*
 * The same after the feed-forward block, with the norm of the next layer or of the output; without one where the layer's own
 * embedding follows.
 */
void cl_rows_add_ffn(cl_microbatch *p);
/*
 * From the products of the embeddings in layer_embd and others to the layers' own embeddings and the states, and to the norm of
 * x in branch.
 */
void cl_rows_embed_layers(cl_microbatch *p);
/* Write branch plus its product laurel, normed, to laurel. */
void cl_rows_end_laurel(cl_microbatch *p);
/* Cut the gates in `gate`, multiply h by them, activated, and prepare it for `down`. */
void cl_rows_cut(cl_microbatch *p);
/* Scale branch, which is added to x at the end, to the size of x, and write it to a further state. */
void cl_rows_end_state(cl_microbatch *p, int32_t state);
/* The mean of x and the further states, and its norm for the output in branch. */
void cl_rows_merge(cl_microbatch *p);
/* Multiply the layer's own embedding by the activated h, which is the gate, into h, and prepare it for layer_embd_up. */
void cl_rows_gate_layer_embd(cl_microbatch *p);
/*
 * Add branch to x, or to the further states, after its norm, at the end of a layer, and write the norm of the next layer or of
 * the output to branch.
 */
void cl_rows_add_layer_embd(cl_microbatch *p);
/* Scale the microbatch's logits and apply the soft-cap. */
void cl_rows_finish_logits(cl_microbatch *p);
/* Activate the `h` of a feed-forward block without a gate, and prepare it for `down`. */
void cl_rows_activate(cl_microbatch *p);

/*
 * Apply bias, norm and rotation to columns [begin, end) of Q, K or V (`which` 0, 1 or 2); a cl_linear_finish whose arg is the
 * microbatch and whose unit is cl_rows_qkv_unit.
 */
void cl_rows_finish_qkv(void *microbatch, int which, int32_t row, int32_t n_rows, int32_t begin, int32_t end);
int32_t cl_rows_qkv_unit(const cl_microbatch *p);
/* The same for all columns at once, where a norm takes whole rows of Q and K. */
void cl_rows_finish_whole_qkv(cl_microbatch *p);

/* The bias of a product; a cl_linear_finish that adds it has this as its arg. */
typedef struct cl_bias {
    const cl_cpu_forward *f;
    const float *bias;
    float *y;
    int32_t n;
} cl_bias;
void cl_rows_add_bias(void *bias, int which, int32_t row, int32_t n_rows, int32_t begin, int32_t end);

#endif
