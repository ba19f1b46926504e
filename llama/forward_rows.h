/*
 * What the forward pass does to rows between two products: look-up, norms, bias, rotation, residual. Each is one task a tile of
 * rows, and leaves the rows ready for the product that follows; or, after Q, K and V, is done to what a thread has just
 * computed.
 */
#ifndef LLAMA_FORWARD_ROWS_H
#define LLAMA_FORWARD_ROWS_H

#include "chunkattn.h"
#include "llama/linear/linear_kernels.h"
#include "model.h"

struct cl_forward {
    const cl_model *m;
    cattn_cache *cache;
    ca_pool *pool;
    int32_t max_rows;
    int32_t n_q, n_kv;             /* width of Q and of the attention's output; of K and V */
    float *x;                      /* [max_rows][n_embd] residual stream */
    float *q, *k, *v, *attended;   /* [max_rows][n_q or n_kv] */
    float *cos_sin[CL_N_ROPES];    /* [max_rows][n_rot]; NULL: no layer has it */
    float *branch;                 /* [piece][n_embd] what the last product adds to x; then, while in the cache, x normed */
    float *h;                      /* [piece][n_ff] of a feed-forward part whose last matrix reads floats */
    double *frequency[CL_N_ROPES]; /* [n_rot / 2] radians a position */
    cl_linear_input *in, *in_h;    /* in_h of h, in of everything else */

    /* The architecture's choices. */
    void (*rope)(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot);
    cl_linear_activate *activate;
    float embedding_scale; /* 1: none */

    /* The open step. */
    const int32_t *tokens;
    const int64_t *positions;
};

/* Rows [first, first + n) of the step, in a layer. */
typedef struct cl_piece {
    struct cl_forward *f;
    int32_t first, n;
    int32_t layer;
    float *logits; /* [n][n_vocab], behind the last layer */
} cl_piece;

static inline float *cl_row_of(float *rows, int32_t row, int32_t n) { return rows + (size_t)row * (size_t)n; }

static inline int cl_rope_of(const cl_model_params *p, int32_t layer) {
    return p->windows && p->windows[layer] ? CL_ROPE_WINDOW : CL_ROPE_FULL;
}

void cl_rows_embed(cl_piece *p);         /* token ids to x, positions to the angles' cosine and sine; x, normed, to branch */
void cl_rows_add_attention(cl_piece *p); /* branch, normed where the architecture says so, joins x; x, normed, to branch */
void cl_rows_add_ffn(cl_piece *p);       /* the same behind the feed-forward part, for the next layer or the output */
void cl_rows_cap_logits(cl_piece *p);

/* Bias, norm and rotation of columns of Q, K or V (0, 1, 2), as linear_finish calls it with a piece and the layer's unit. */
void cl_rows_finish_qkv(void *piece, int which, int32_t row, int32_t n_rows, int32_t begin, int32_t end);
int32_t cl_rows_qkv_unit(const cl_piece *p);

#endif
