/* The row operations of the forward pass as tasks of the thread pool, one per row group. */
#include "forward_rows.h"

#include <math.h>
#include <string.h>

#include "altup.h"
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
    const int32_t n_embd = p->f->base.m->params.n_embd;
    cl_linear_set(p->f->in, p->f->branch, (size_t)n_embd, p->n, n_embd);
    run_row_groups(p, task);
}

static const cl_layer_weights *layer_of(const cl_microbatch *p) { return &p->f->base.m->weights.layers[p->layer]; }

static void angles(const cl_cpu_forward *f, int rope, int32_t row) {
    const int32_t n_rot = f->base.m->params.rope[rope].n_rot;
    const double magnitude = f->base.m->params.rope[rope].magnitude;
    float *cos_sin = cl_row_of(f->cos_sin[rope], row, n_rot);
    for (int32_t j = 0; j < n_rot / 2; j++) {
        const double angle = (double)f->positions[row] * f->frequency[rope][j];
        cos_sin[2 * j] = (float)(magnitude * cos(angle));
        cos_sin[2 * j + 1] = (float)(magnitude * sin(angle));
    }
}

static void scale(float *x, int32_t n, float factor) {
    for (int32_t i = 0; factor != 1 && i < n; i++) x[i] *= factor;
}

/* out = the norm of x [n_embd], or x where the model has no such norm. out may be x. */
static void norm_row(const cl_cpu_forward *f, const cl_norm *norm, const float *x, float *out) {
    const int32_t n = f->base.m->params.n_embd;
    if (norm->scale)
        f->norm(x, norm->scale, n, f->base.m->params.norm_eps, out);
    else if (out != x)
        memcpy(out, x, sizeof(float) * (size_t)n);
    if (norm->bias) f->base.m->kernels->row_ops.add(out, norm->bias, n);
}

static void norm_rows(const cl_microbatch *p, int32_t row_group, const cl_norm *norm) {
    const cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd;
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++)
        norm_row(f, norm, cl_row_of(f->x, p->first + i, n_embd), cl_row_of(f->branch, i, n_embd));
    cl_linear_prepare_row_group(f->in, row_group);
}

static cl_states states_of(const cl_microbatch *p, int32_t i, int32_t worker) {
    const cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd;
    return (cl_states){.ops = &f->base.m->kernels->row_ops,
                       .p = &f->base.m->params,
                       .x = cl_row_of(f->x, p->first + i, n_embd),
                       .others = cl_row_of(f->others, p->first + i, cl_n_others(f)),
                       .room = cl_row_of(f->room, worker, n_embd)};
}

/* From the states of a layer's rows to its input. */
static void begin_layer(const cl_microbatch *p, int32_t layer, int32_t row_group, int32_t worker) {
    const cl_cpu_forward *f = p->f;
    const cl_layer_weights *l = &f->base.m->weights.layers[layer];
    const int32_t n_embd = f->base.m->params.n_embd;
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; f->others && i < group_end(p, row_group); i++) {
        const cl_states s = states_of(p, i, worker);
        cl_altup_predict(&s, &l->altup);
        memcpy(cl_row_of(f->predicted, p->first + i, n_embd), s.x, sizeof(float) * (size_t)n_embd);
    }
    norm_rows(p, row_group, &l->attn_norm);
}

static float query_scale(const cl_model_params *p, int64_t position) {
    const int64_t periods = position / p->query_period;
    return (float)(1 + p->query_beta * log1p((double)periods));
}

static void embed_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = p->first + row_group * CL_LINEAR_ROW_GROUP; i < p->first + group_end(p, row_group); i++) {
        float *x = cl_row_of(f->x, i, n_embd);
        cl_linear_row_f32(f->base.m->weights.embedding, f->tokens[i], x);
        scale(x, n_embd, f->base.m->params.embedding_scale);
        if (f->query_scale) f->query_scale[i] = query_scale(&f->base.m->params, f->positions[i]);
        for (int rope = 0; rope < CL_N_ROPES; rope++)
            if (f->cos_sin[rope]) angles(f, rope, i);
    }
    norm_rows(p, row_group, f->layer_embd ? &(cl_norm){0} : &layer_of(p)->attn_norm);
    ca_fp_leave(fp);
}

/* Add rows of delta to x, after their norm. */
static void add_rows(const cl_microbatch *p, int32_t row_group, float *delta, const cl_norm *post) {
    const cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd;
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++) {
        float *row = cl_row_of(delta, i, n_embd);
        norm_row(f, post, row, row);
        scale(row, n_embd, f->base.m->params.residual_scale);
        f->base.m->kernels->row_ops.add(cl_row_of(f->x, p->first + i, n_embd), row, n_embd);
    }
}

/* Add the output of the product beside attention. */
static void add_laurel(const cl_microbatch *p, int32_t row_group) {
    const cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd;
    for (int32_t i = p->first + row_group * CL_LINEAR_ROW_GROUP; i < p->first + group_end(p, row_group); i++) {
        float *x = cl_row_of(f->x, i, n_embd);
        f->base.m->kernels->row_ops.add(x, cl_row_of(f->laurel, i, n_embd), n_embd);
        scale(x, n_embd, sqrtf(0.5f));
    }
}

/* Norm rows of x for experts beside a dense block. */
static void norm_beside(const cl_microbatch *p, int32_t row_group) {
    const cl_cpu_forward *f = p->f;
    const cl_norm *norm = &layer_of(p)->experts.norm;
    const int32_t n_embd = f->base.m->params.n_embd;
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; norm->scale && i < group_end(p, row_group); i++)
        norm_row(f, norm, cl_row_of(f->x, p->first + i, n_embd), cl_row_of(f->beside, i, n_embd));
}

static void add_attention_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_layer_weights *l = layer_of(p);
    const unsigned fp = ca_fp_enter();
    if (p->f->aside) { /* x is still the input of attention */
        norm_rows(p, row_group, &l->attn_norm);
        add_rows(p, row_group, p->f->aside, &l->post_attn_norm);
    } else {
        add_rows(p, row_group, p->f->branch, &l->post_attn_norm);
        if (p->f->laurel) add_laurel(p, row_group);
        norm_rows(p, row_group, l->experts.router_norm.scale ? &l->experts.router_norm : &l->ffn_norm);
        norm_beside(p, row_group);
    }
    ca_fp_leave(fp);
}

static void norm_dense_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const unsigned fp = ca_fp_enter();
    norm_rows(p, row_group, &layer_of(p)->ffn_norm);
    ca_fp_leave(fp);
}

static void add_beside_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_cpu_forward *f = p->f;
    const cl_expert_weights *e = &layer_of(p)->experts;
    const int32_t n_embd = f->base.m->params.n_embd;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++) {
        float *dense = cl_row_of(f->branch, i, n_embd), *beside = cl_row_of(f->beside, i, n_embd);
        norm_row(f, &e->post_dense_norm, dense, dense);
        norm_row(f, &e->post_norm, beside, beside);
        f->base.m->kernels->row_ops.add(dense, beside, n_embd);
    }
    ca_fp_leave(fp);
}

/* Scale x as the layer says at its end, and norm it for the next layer or the output; the further states come before that. */
static void end_layer(const cl_microbatch *p, int32_t row_group, int32_t worker) {
    const int32_t n_embd = p->f->base.m->params.n_embd;
    const float *factor = layer_of(p)->scale;
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; factor && i < group_end(p, row_group); i++)
        scale(cl_row_of(p->f->x, p->first + i, n_embd), n_embd, *factor);
    if (p->layer + 1 < p->f->base.m->params.n_layers)
        begin_layer(p, p->layer + 1, row_group, worker);
    else if (!p->f->others)
        norm_rows(p, row_group, &p->f->base.m->weights.output_norm);
}

/* From the output x of a layer to its corrected states, and to the input of the layer's own embedding. */
static void correct_rows(const cl_microbatch *p, int32_t row_group, int32_t worker) {
    const cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd;
    const float *factors = layer_of(p)->altup.scale;
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++) {
        const cl_states s = states_of(p, i, worker);
        float *out = cl_row_of(f->branch, i, n_embd);
        cl_altup_correct(&s, &layer_of(p)->altup, cl_row_of(f->predicted, p->first + i, n_embd));
        for (int32_t j = 0; j < n_embd; j++) out[j] = s.x[j] * factors[j];
    }
    cl_linear_prepare_row_group(f->in, row_group);
}

static void add_ffn_row_group(void *arg, int32_t row_group, int32_t worker) {
    const cl_microbatch *p = arg;
    const unsigned fp = ca_fp_enter();
    add_rows(p, row_group, p->f->branch, &layer_of(p)->post_ffn_norm);
    if (p->f->others)
        correct_rows(p, row_group, worker);
    else if (p->f->layer_embd)
        norm_rows(p, row_group, &(cl_norm){0});
    else
        end_layer(p, row_group, worker);
    ca_fp_leave(fp);
}

/* ---- Layers' own embeddings ---- */

static void embed_layers_row_group(void *arg, int32_t row_group, int32_t worker) {
    const cl_microbatch *p = arg;
    const cl_cpu_forward *f = p->f;
    const cl_model_params *mp = &f->base.m->params;
    const cl_model_weights *w = &f->base.m->weights;
    const int32_t width = mp->n_layer_embd, n = mp->n_layers * width;
    float *token = cl_row_of(f->token_embd, worker, n);
    const unsigned fp = ca_fp_enter();
    for (int32_t i = p->first + row_group * CL_LINEAR_ROW_GROUP; i < p->first + group_end(p, row_group); i++) {
        float *row = cl_row_of(f->layer_embd, i, n);
        cl_linear_row_f32(&w->layer_embeddings, f->tokens[i] < w->layer_embeddings.n_out ? f->tokens[i] : 0, token);
        scale(token, n, sqrtf((float)width));
        scale(row, n, 1 / sqrtf((float)mp->n_embd));
        for (int32_t at = 0; at < n; at += width) f->norm(row + at, w->layer_embd_norm.scale, width, mp->norm_eps, row + at);
        f->base.m->kernels->row_ops.add(row, token, n);
        scale(row, n, sqrtf(0.5f));
        for (int32_t k = 0; f->others && k < mp->n_states - 1; k++)
            cl_altup_match(&f->base.m->kernels->row_ops, cl_row_of(f->x, i, mp->n_embd),
                           cl_row_of(f->others, i, cl_n_others(f)) + (size_t)k * (size_t)mp->n_embd, mp->n_embd);
    }
    begin_layer(p, 0, row_group, worker);
    ca_fp_leave(fp);
}

static void gate_layer_embd_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_cpu_forward *f = p->f;
    const int32_t width = f->base.m->params.n_layer_embd, n = f->base.m->params.n_layers * width;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++) {
        float *gate = cl_row_of(f->h, i, width);
        f->base.m->kernels->row_ops.geglu(gate, cl_row_of(f->layer_embd, p->first + i, n) + p->layer * width, width, gate);
    }
    cl_linear_prepare_row_group(f->in_h, row_group);
    ca_fp_leave(fp);
}

/* Add the normed branch to the further states. */
static void add_to_others(const cl_microbatch *p, int32_t row_group) {
    const cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd, n_others = cl_n_others(f);
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++) {
        float *row = cl_row_of(f->branch, i, n_embd);
        norm_row(f, &layer_of(p)->post_layer_embd_norm, row, row);
        for (int32_t at = 0; at < n_others; at += n_embd)
            f->base.m->kernels->row_ops.add(cl_row_of(f->others, p->first + i, n_others) + at, row, n_embd);
    }
}

static void add_layer_embd_row_group(void *arg, int32_t row_group, int32_t worker) {
    const cl_microbatch *p = arg;
    const unsigned fp = ca_fp_enter();
    if (p->f->others)
        add_to_others(p, row_group);
    else
        add_rows(p, row_group, p->f->branch, &layer_of(p)->post_layer_embd_norm);
    end_layer(p, row_group, worker);
    ca_fp_leave(fp);
}

/* ---- Products and states beside the first ---- */

static void end_laurel_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++) {
        float *row = cl_row_of(f->laurel, p->first + i, n_embd);
        norm_row(f, &layer_of(p)->laurel_norm, row, row);
        f->base.m->kernels->row_ops.add(row, cl_row_of(f->branch, i, n_embd), n_embd);
    }
    ca_fp_leave(fp);
}

static void end_state_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++) {
        float *to = cl_row_of(f->others, p->first + i, cl_n_others(f)) + (size_t)p->state * (size_t)n_embd;
        memcpy(to, cl_row_of(f->branch, i, n_embd), sizeof(float) * (size_t)n_embd);
        cl_altup_match(&f->base.m->kernels->row_ops, cl_row_of(f->x, p->first + i, n_embd), to, n_embd);
    }
    ca_fp_leave(fp);
}

static void merge_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd, n_others = cl_n_others(f);
    const unsigned fp = ca_fp_enter();
    for (int32_t i = p->first + row_group * CL_LINEAR_ROW_GROUP; i < p->first + group_end(p, row_group); i++) {
        float *x = cl_row_of(f->x, i, n_embd);
        for (int32_t at = 0; at < n_others; at += n_embd)
            f->base.m->kernels->row_ops.add(x, cl_row_of(f->others, i, n_others) + at, n_embd);
        scale(x, n_embd, 1 / (float)f->base.m->params.n_states);
    }
    norm_rows(p, row_group, &f->base.m->weights.output_norm);
    ca_fp_leave(fp);
}

/* ---- Q, K and V ---- */

/* What is applied to Q, K or V; NULL: none. */
typedef struct finish {
    float *rows;
    int32_t n, head_dim, n_rot;
    const float *bias, *norm;
    cl_qk_norm kind;    /* of the norm */
    float *cos_sin;     /* of the step's rows */
    const float *scale; /* of the step's rows */
} finish;

/* Rotate columns [begin, end) of a row. They may cut heads, but only between pairs whose two columns are neighbours. */
static void rotate(const cl_cpu_forward *f, const finish *of, float *x, const float *cos_sin, int32_t begin, int32_t end) {
    for (int32_t at = begin, n; at < end; at += n) {
        const int32_t in_head = at % of->head_dim, n_heads = in_head ? 0 : (end - at) / of->head_dim;
        const int32_t rest = of->head_dim - in_head < end - at ? of->head_dim - in_head : end - at; /* of a head */
        const int32_t n_rot = of->n_rot - in_head < rest ? of->n_rot - in_head : rest;
        if (n_heads)
            f->rope(x + at, cos_sin, n_heads, of->head_dim, of->n_rot);
        else if (n_rot > 0)
            f->rope(x + at, cos_sin + in_head, 1, rest, n_rot);
        n = n_heads ? n_heads * of->head_dim : rest;
    }
}

static finish finish_of(const cl_microbatch *p, int which) {
    const cl_cpu_forward *f = p->f;
    const cl_layer_weights *l = layer_of(p);
    const cl_model_params *mp = &f->base.m->params;
    const int rope = cl_rope_of(mp, p->layer);
    finish of = {.n = cl_n_kv(mp, p->layer), .head_dim = mp->head_dim[p->layer], .kind = mp->arch->qk_norm};
    if (which < 2 && rope != CL_ROPE_NONE) {
        of.cos_sin = f->cos_sin[rope];
        of.n_rot = mp->rope[rope].n_rot;
    }
    if (which == 0) {
        of.rows = f->q, of.n = cl_n_q(mp, p->layer), of.bias = l->q_bias, of.norm = l->q_norm, of.scale = f->query_scale;
    } else if (which == 1) {
        of.rows = f->k, of.bias = l->k_bias, of.norm = l->k_norm;
    } else {
        of.rows = f->v, of.bias = l->v_bias, of.norm = f->ones, of.kind = CL_QK_NORM_HEAD;
    }
    return of;
}

/* Norm columns [begin, end) of a row of Q, K or V, which are whole heads or all. */
static void norm_heads(const cl_cpu_forward *f, const finish *of, float *x, int32_t begin, int32_t end) {
    const int32_t width = of->kind == CL_QK_NORM_ALL ? of->n : of->head_dim;
    for (int32_t at = begin; at < end; at += width)
        f->norm(x + at, of->kind == CL_QK_NORM_HEAD ? of->norm : of->norm + at, width, f->base.m->params.norm_eps, x + at);
}

/* V of a layer that has no matrix of it is K before its norm. */
static void copy_keys(const cl_microbatch *p, int32_t row, int32_t n_rows, int32_t begin, int32_t end) {
    const int32_t n = cl_n_kv(&p->f->base.m->params, p->layer);
    for (int32_t i = p->first + row; i < p->first + row + n_rows; i++)
        memcpy(cl_row_of(p->f->v, i, n) + begin, cl_row_of(p->f->k, i, n) + begin, sizeof(float) * (size_t)(end - begin));
    cl_rows_finish_qkv((void *)p, 2, row, n_rows, begin, end);
}

void cl_rows_finish_qkv(void *arg, int which, int32_t row, int32_t n_rows, int32_t begin, int32_t end) {
    const cl_microbatch *p = arg;
    const cl_cpu_forward *f = p->f;
    const finish of = finish_of(p, which);
    const bool rotated_first = f->base.m->params.arch->qk_norm_rotated;
    if (which == 1 && layer_of(p)->v.n_out == 0) copy_keys(p, row, n_rows, begin, end);
    for (int32_t i = p->first + row; i < p->first + row + n_rows; i++) {
        float *x = cl_row_of(of.rows, i, of.n);
        if (of.bias) f->base.m->kernels->row_ops.add(x + begin, of.bias + begin, end - begin);
        if (of.norm && !rotated_first) norm_heads(f, &of, x, begin, end);
        if (of.cos_sin) rotate(f, &of, x, cl_row_of(of.cos_sin, i, of.n_rot), begin, end);
        if (of.norm && rotated_first) norm_heads(f, &of, x, begin, end);
        if (of.scale) scale(x + begin, end - begin, of.scale[i]);
    }
}

int32_t cl_rows_qkv_unit(const cl_microbatch *p) {
    const cl_layer_weights *l = layer_of(p);
    const bool by_head = p->f->base.m->params.rope_halves || l->q_norm || l->k_norm;
    return by_head ? p->f->base.m->params.head_dim[p->layer] : 0;
}

static void finish_whole_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const int32_t first = row_group * CL_LINEAR_ROW_GROUP, n = group_end(p, row_group) - first;
    const unsigned fp = ca_fp_enter();
    for (int which = 0; which < 3; which++) cl_rows_finish_qkv(arg, which, first, n, 0, finish_of(p, which).n);
    ca_fp_leave(fp);
}

void cl_rows_add_bias(void *arg, int which, int32_t row, int32_t n_rows, int32_t begin, int32_t end) {
    (void)which;
    const cl_bias *b = arg;
    for (int32_t i = row; i < row + n_rows; i++)
        b->f->base.m->kernels->row_ops.add(cl_row_of(b->y, i, b->n) + begin, b->bias + begin, end - begin);
}

static void activate_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_cpu_forward *f = p->f;
    const int32_t n_ff = layer_of(p)->up.n_out, first = row_group * CL_LINEAR_ROW_GROUP;
    const unsigned fp = ca_fp_enter();
    f->base.m->kernels->row_ops.gelu(cl_row_of(f->h, first, n_ff), (group_end(p, row_group) - first) * n_ff);
    cl_linear_prepare_row_group(f->in_h, row_group);
    ca_fp_leave(fp);
}

static void cut_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_cpu_forward *f = p->f;
    const int32_t n_ff = layer_of(p)->up.n_out;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++) {
        float *gate = cl_row_of(f->gate, i, n_ff), *h = cl_row_of(f->h, i, n_ff);
        f->base.m->kernels->row_ops.cut(gate, n_ff, f->base.m->params.gate_cuts[p->layer]);
        f->activate(gate, h, n_ff, h);
    }
    cl_linear_prepare_row_group(f->in_h, row_group);
    ca_fp_leave(fp);
}

static void finish_logits_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    const cl_microbatch *p = arg;
    const cl_model_params *mp = &p->f->base.m->params;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(p, row_group); i++) {
        float *logits = cl_row_of(p->logits, i, mp->n_vocab);
        scale(logits, mp->n_vocab, mp->logit_scale);
        if (mp->logit_softcap > 0) cl_ops_softcap(logits, mp->n_vocab, mp->logit_softcap);
    }
    ca_fp_leave(fp);
}

void cl_rows_embed(cl_microbatch *p) { run_norm_row_groups(p, embed_row_group); }
void cl_rows_add_attention(cl_microbatch *p) { run_norm_row_groups(p, add_attention_row_group); }
void cl_rows_norm_dense(cl_microbatch *p) { run_norm_row_groups(p, norm_dense_row_group); }
void cl_rows_add_beside(cl_microbatch *p) { run_row_groups(p, add_beside_row_group); }
void cl_rows_add_ffn(cl_microbatch *p) { run_norm_row_groups(p, add_ffn_row_group); }
void cl_rows_embed_layers(cl_microbatch *p) { run_norm_row_groups(p, embed_layers_row_group); }
void cl_rows_end_laurel(cl_microbatch *p) { run_row_groups(p, end_laurel_row_group); }
void cl_rows_end_state(cl_microbatch *p, int32_t state) {
    p->state = state;
    run_row_groups(p, end_state_row_group);
}
void cl_rows_merge(cl_microbatch *p) { run_norm_row_groups(p, merge_row_group); }
void cl_rows_cut(cl_microbatch *p) {
    const int32_t n_ff = layer_of(p)->up.n_out;
    cl_linear_set(p->f->in_h, p->f->h, (size_t)n_ff, p->n, n_ff);
    run_row_groups(p, cut_row_group);
}
void cl_rows_add_layer_embd(cl_microbatch *p) { run_norm_row_groups(p, add_layer_embd_row_group); }
void cl_rows_gate_layer_embd(cl_microbatch *p) {
    const int32_t width = p->f->base.m->params.n_layer_embd;
    cl_linear_set(p->f->in_h, p->f->h, (size_t)width, p->n, width);
    run_row_groups(p, gate_layer_embd_row_group);
}
void cl_rows_finish_logits(cl_microbatch *p) { run_row_groups(p, finish_logits_row_group); }
void cl_rows_finish_whole_qkv(cl_microbatch *p) { run_row_groups(p, finish_whole_row_group); }
void cl_rows_activate(cl_microbatch *p) {
    const int32_t n_ff = layer_of(p)->up.n_out;
    cl_linear_set(p->f->in_h, p->f->h, (size_t)n_ff, p->n, n_ff);
    run_row_groups(p, activate_row_group);
}
