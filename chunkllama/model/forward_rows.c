/* The row operations of the forward pass as tasks of the thread pool, one per row group. */
#include "forward_rows.h"

#include <math.h>

#include "chunkattn/base/fp.h"
#include "chunkllama/linear/row_ops.h"
#include "chunkllama/tensor/tensor.h"

static int32_t group_end(const cl_microbatch *p, int32_t row_group) {
    const int32_t end = (row_group + 1) * CL_LINEAR_ROW_GROUP;
    return end < p->n ? end : p->n;
}

static void run_row_groups(cl_microbatch *p, ca_task task) {
    ca_pool_run_shares(p->f->pool, (p->n + CL_LINEAR_ROW_GROUP - 1) / CL_LINEAR_ROW_GROUP, task, p);
}

/* The same for tasks that end with norm_rows. */
static void run_norm_row_groups(cl_microbatch *p, ca_task task) {
    const int32_t n_embd = p->f->m->params.n_embd;
    cl_linear_set(p->f->in, p->f->branch, (size_t)n_embd, p->n, n_embd);
    run_row_groups(p, task);
}

static const cl_layer_weights *layer_of(const cl_microbatch *p) { return &p->f->m->weights.layers[p->layer]; }

static void angles(const struct cl_forward *f, int rope, int32_t row) {
    const int32_t n_rot = f->m->params.n_rot;
    float *cos_sin = cl_row_of(f->cos_sin[rope], row, n_rot);
    for (int32_t j = 0; j < n_rot / 2; j++) {
        const double angle = (double)f->positions[row] * f->frequency[rope][j];
        cos_sin[2 * j] = (float)cos(angle);
        cos_sin[2 * j + 1] = (float)sin(angle);
    }
}

static void norm_rows(const cl_microbatch *p, int32_t row_group, const float *weight) {
    const struct cl_forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd;
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++)
        f->m->kernels->row_ops.rms_norm(cl_row_of(f->x, p->first + i, n_embd), weight, n_embd, f->m->params.rms_eps,
                                        cl_row_of(f->branch, i, n_embd));
    cl_linear_prepare_row_group(f->in, row_group);
}

static void embed_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const struct cl_forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = p->first + row_group * CL_LINEAR_ROW_GROUP; i < p->first + group_end(p, row_group); i++) {
        float *x = cl_row_of(f->x, i, n_embd);
        cl_linear_row_f32(f->m->weights.embedding, f->tokens[i], x);
        for (int32_t k = 0; f->embedding_scale != 1 && k < n_embd; k++) x[k] *= f->embedding_scale;
        for (int rope = 0; rope < CL_N_ROPES; rope++)
            if (f->cos_sin[rope]) angles(f, rope, i);
    }
    norm_rows(p, row_group, layer_of(p)->attn_norm);
    ca_fp_leave(fp);
}

/* post: the weights of the norm that is applied to branch first, or NULL. */
static void add_rows(const cl_microbatch *p, int32_t row_group, const float *post) {
    const struct cl_forward *f = p->f;
    const int32_t n_embd = f->m->params.n_embd;
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++) {
        float *delta = cl_row_of(f->branch, i, n_embd);
        if (post) f->m->kernels->row_ops.rms_norm(delta, post, n_embd, f->m->params.rms_eps, delta);
        f->m->kernels->row_ops.add(cl_row_of(f->x, p->first + i, n_embd), delta, n_embd);
    }
}

static void add_attention_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const unsigned fp = ca_fp_enter();
    add_rows(p, row_group, layer_of(p)->post_attn_norm);
    norm_rows(p, row_group, layer_of(p)->ffn_norm);
    ca_fp_leave(fp);
}

static void add_ffn_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_model_weights *w = &p->f->m->weights;
    const unsigned fp = ca_fp_enter();
    add_rows(p, row_group, layer_of(p)->post_ffn_norm);
    norm_rows(p, row_group, p->layer + 1 < p->f->m->params.n_layers ? w->layers[p->layer + 1].attn_norm : w->output_norm);
    ca_fp_leave(fp);
}

/* Rotate columns [begin, end) of a row. They may cut heads, but only between pairs whose two columns are neighbours. */
static void rotate(const struct cl_forward *f, float *x, const float *cos_sin, int32_t begin, int32_t end) {
    const cl_model_params *mp = &f->m->params;
    for (int32_t at = begin, n; at < end; at += n) {
        const int32_t in_head = at % mp->head_dim, n_heads = in_head ? 0 : (end - at) / mp->head_dim;
        const int32_t rest = mp->head_dim - in_head < end - at ? mp->head_dim - in_head : end - at; /* of a head */
        const int32_t n_rot = mp->n_rot - in_head < rest ? mp->n_rot - in_head : rest;
        if (n_heads)
            f->rope(x + at, cos_sin, n_heads, mp->head_dim, mp->n_rot);
        else if (n_rot > 0)
            f->rope(x + at, cos_sin + in_head, 1, rest, n_rot);
        n = n_heads ? n_heads * mp->head_dim : rest;
    }
}

/* The bias and the norm that are applied to Q, K or V; NULL: none. */
typedef struct finish {
    float *rows;
    int32_t n;
    const float *bias, *norm;
    float *cos_sin; /* of the step's rows */
} finish;

static finish finish_of(const cl_microbatch *p, int which) {
    const struct cl_forward *f = p->f;
    const cl_layer_weights *l = layer_of(p);
    float *cos_sin = f->cos_sin[cl_rope_of(&f->m->params, p->layer)];
    if (which == 0) return (finish){f->q, f->n_q, l->q_bias, l->q_norm, cos_sin};
    if (which == 1) return (finish){f->k, f->n_kv, l->k_bias, l->k_norm, cos_sin};
    return (finish){f->v, f->n_kv, l->v_bias, NULL, NULL};
}

void cl_rows_finish_qkv(void *arg, int which, int32_t row, int32_t n_rows, int32_t begin, int32_t end) {
    const cl_microbatch *p = arg;
    const struct cl_forward *f = p->f;
    const cl_model_params *mp = &f->m->params;
    const finish of = finish_of(p, which);
    for (int32_t i = p->first + row; i < p->first + row + n_rows; i++) {
        float *x = cl_row_of(of.rows, i, of.n);
        if (of.bias) f->m->kernels->row_ops.add(x + begin, of.bias + begin, end - begin);
        for (int32_t at = begin; of.norm && at < end; at += mp->head_dim)
            f->m->kernels->row_ops.rms_norm(x + at, of.norm, mp->head_dim, mp->rms_eps, x + at);
        if (of.cos_sin) rotate(f, x, cl_row_of(of.cos_sin, i, mp->n_rot), begin, end);
    }
}

int32_t cl_rows_qkv_unit(const cl_microbatch *p) {
    const cl_layer_weights *l = layer_of(p);
    const bool by_head = p->f->m->params.rope_halves || l->q_norm || l->k_norm;
    return by_head ? p->f->m->params.head_dim : 0;
}

static void cap_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_model_params *mp = &p->f->m->params;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++)
        cl_ops_softcap(cl_row_of(p->logits, i, mp->n_vocab), mp->n_vocab, mp->logit_softcap);
    ca_fp_leave(fp);
}

void cl_rows_embed(cl_microbatch *p) { run_norm_row_groups(p, embed_row_group); }
void cl_rows_add_attention(cl_microbatch *p) { run_norm_row_groups(p, add_attention_row_group); }
void cl_rows_add_ffn(cl_microbatch *p) { run_norm_row_groups(p, add_ffn_row_group); }
void cl_rows_cap_logits(cl_microbatch *p) { run_row_groups(p, cap_row_group); }
