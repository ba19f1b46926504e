/*
 * The forward pass on a CUDA device: the steps of forward_cpu.c, as launches on one stream. The host looks up embeddings, and
 * waits once, for the logits and states at the end. No bit depends on the other rows of a step, since no kernel's does.
 */
#define CATTN_EXPERIMENTAL
#include "device_forward.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/fp.h"
#include "chunkattn_cuda.h"
#include "chunkllama/cuda/kernel_table.h"
#include "chunkllama/tensor/weight_type.h"
#include "device_graphs.h"
#include "device_model.h"
#include "kv_cache.h"

enum { LOGIT_ROWS = 64, GRAPH_ROWS = 64, MAX_BUFFERS = 24, ROW_WARPS = 8 };

typedef struct device_forward {
    cl_forward base;
    const cl_device_model *on;
    cattn_cache *cache;
    ca_pool *pool;
    ca_cuda_stream stream;
    cl_device_attend *attend; /* NULL: that of the cache */
    void *attend_ctx;

    /* On the device; owned. rows: max_rows up to the end of the last row group. */
    float *x, *delta, *out;      /* [rows][n_embd] residual stream, what is added to it, and its norm */
    float *q, *k, *v, *attended; /* [rows][cl_n_q or cl_n_kv of the widest layer] */
    float *gate, *up;            /* [rows][n_ff of the widest layer] */
    uint8_t *records;            /* of `rows` rows of the widest input of a matrix */
    float *logits;               /* [LOGIT_ROWS][n_vocab] */
    float *cos_sin[CL_N_ROPES];  /* [n_ctx][n_rot]; NULL: no layer uses this RoPE */
    float *query_scale;          /* [rows]; NULL: queries are not scaled by their position */
    int32_t *positions, *kept;   /* [rows] */
    void *buffers[MAX_BUFFERS];  /* [n_buffers] all of them */
    int n_buffers;

    /* On the host, pinned; owned. */
    float *host_x;                                     /* [rows][n_embd] embeddings, then final states */
    float *host_logits;                                /* [LOGIT_ROWS][n_vocab] */
    float *host_scale;                                 /* [rows] */
    int32_t *host_positions, *host_kept, *host_wanted; /* [rows] */
    void *pinned[MAX_BUFFERS];
    int n_pinned;

    cl_device_graphs graphs;
    bool no_graphs;
    uint64_t n_replays; /* steps by graphs */

    /* The open step. */
    uint64_t attention; /* the number of its launches */
    const int32_t *tokens;
    const char *failure; /* of the first call of the runtime that failed; then no further ones are made */
} device_forward;

static const cl_layer_weights *layer_of(const device_forward *f, int32_t layer) { return &f->on->layers[layer]; }

/* Rows up to the end of the last row group. */
static int32_t whole_groups(int32_t n_rows) {
    return (n_rows + CL_LINEAR_ROW_GROUP - 1) / CL_LINEAR_ROW_GROUP * CL_LINEAR_ROW_GROUP;
}

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static cl_status failed(const device_forward *f, cl_error *error) {
    return f->failure ? cl_fail(error, CL_ERR_ARG, "CUDA device %d reports: %s", f->on->device, f->failure) : CL_OK;
}

/* ---- Creation ---- */

static void *on_device(device_forward *f, size_t bytes) {
    void *p = NULL;
    if (!f->failure) f->failure = f->on->runtime->allocate(&p, bytes);
    if (p) f->buffers[f->n_buffers++] = p;
    f->base.device_bytes += bytes;
    return p;
}

static void *on_host(device_forward *f, size_t bytes) {
    void *p = NULL;
    if (!f->failure) f->failure = f->on->runtime->allocate_host(&p, bytes);
    if (p) f->pinned[f->n_pinned++] = p;
    return p;
}

static void copy(device_forward *f, void *to, const void *from, size_t bytes) {
    if (!f->failure) f->failure = f->on->runtime->copy(to, from, bytes, f->stream);
}

static void finish(device_forward *f) {
    const char *failure = f->on->runtime->wait(f->stream);
    if (!f->failure) f->failure = failure;
}

/* The rotations of all positions, as the CPU computes them for those of a step. */
typedef struct rotations {
    int64_t n_ctx;
    int32_t n_rot;
    double magnitude;
    double *frequency; /* [n_rot / 2] */
    float *cos_sin;    /* [n_ctx][n_rot] */
} rotations;

enum { POSITIONS_A_TASK = 256 };

static void rotate_positions(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    const rotations *r = arg;
    const int64_t first = (int64_t)task * POSITIONS_A_TASK, end = first + POSITIONS_A_TASK;
    const unsigned fp = ca_fp_enter();
    for (int64_t p = first; p < end && p < r->n_ctx; p++)
        for (int32_t i = 0; i < r->n_rot / 2; i++) {
            const double angle = (double)p * r->frequency[i];
            r->cos_sin[p * r->n_rot + 2 * i] = (float)(r->magnitude * cos(angle));
            r->cos_sin[p * r->n_rot + 2 * i + 1] = (float)(r->magnitude * sin(angle));
        }
    ca_fp_leave(fp);
}

static void create_rotations(device_forward *f, int rope, int64_t n_ctx) {
    if (rope == CL_ROPE_NONE || f->cos_sin[rope] || f->failure) return;
    const cl_rope_params *p = &f->base.m->params.rope[rope];
    const size_t bytes = (size_t)n_ctx * (size_t)p->n_rot * sizeof(float);
    rotations r = {n_ctx, p->n_rot, p->magnitude, malloc((size_t)p->n_rot / 2 * sizeof *r.frequency), malloc(bytes)};
    if (r.frequency && r.cos_sin) {
        for (int32_t i = 0; i < p->n_rot / 2; i++) r.frequency[i] = cl_rope_frequency(p, i, n_ctx);
        ca_pool_run_shares(f->pool, (int32_t)((n_ctx + POSITIONS_A_TASK - 1) / POSITIONS_A_TASK), rotate_positions, &r);
        f->cos_sin[rope] = on_device(f, bytes);
        copy(f, f->cos_sin[rope], r.cos_sin, bytes);
        finish(f);
    } else {
        f->failure = "the host has none";
    }
    free(r.frequency);
    free(r.cos_sin);
}

static void prepare_kernels(device_forward *f) {
    for (int i = 0; i < CL_CUDA_N_KERNELS && !f->failure; i++) f->failure = f->on->runtime->prepare(&cl_cuda_get()->kernels[i]);
}

static size_t records_bytes(int32_t n_rows, int32_t n) {
    return (size_t)whole_groups(n_rows) * (size_t)(n / CL_LINEAR_BLOCK) * CL_LINEAR_ROW_BYTES;
}

static void create_buffers(device_forward *f, int64_t n_ctx) {
    const cl_model_params *p = &f->base.m->params;
    const size_t rows = (size_t)whole_groups(f->base.max_rows), n_embd = (size_t)p->n_embd, n_vocab = (size_t)p->n_vocab,
                 s = sizeof(float);
    int32_t n_q = 0, n_kv = 0;
    for (int32_t i = 0; i < p->n_layers; i++) {
        n_q = larger(n_q, cl_n_q(p, i));
        n_kv = larger(n_kv, cl_n_kv(p, i));
    }
    const int32_t n_ff = cl_most(p->n_ff, p->n_layers);
    f->x = on_device(f, rows * n_embd * s);
    f->delta = on_device(f, rows * n_embd * s);
    f->out = on_device(f, rows * n_embd * s);
    f->q = on_device(f, rows * (size_t)n_q * s);
    f->k = on_device(f, rows * (size_t)n_kv * s);
    f->v = on_device(f, rows * (size_t)n_kv * s);
    f->attended = on_device(f, rows * (size_t)n_q * s);
    f->gate = on_device(f, rows * (size_t)n_ff * s);
    f->up = on_device(f, rows * (size_t)n_ff * s);
    f->records = on_device(f, records_bytes(f->base.max_rows, larger(larger(p->n_embd, n_q), n_ff)) + 1);
    f->logits = on_device(f, LOGIT_ROWS * n_vocab * s);
    f->positions = on_device(f, rows * sizeof *f->positions);
    f->kept = on_device(f, rows * sizeof *f->kept);
    if (p->query_beta > 0) f->query_scale = on_device(f, rows * s);
    f->host_x = on_host(f, rows * n_embd * s);
    f->host_logits = on_host(f, LOGIT_ROWS * n_vocab * s);
    f->host_scale = on_host(f, rows * s);
    f->host_positions = on_host(f, rows * sizeof *f->host_positions);
    f->host_kept = on_host(f, rows * sizeof *f->host_kept);
    f->host_wanted = on_host(f, rows * sizeof *f->host_wanted);
    for (int32_t i = 0; i < p->n_layers; i++) create_rotations(f, cl_rope_of(p, i), n_ctx);
    prepare_kernels(f);
}

static void release(cl_forward *forward) {
    device_forward *f = (device_forward *)forward;
    const ca_cuda_runtime *r = f->on->runtime;
    ca_cuda_caller before;
    r->enter(f->on->device, &before);
    if (f->stream) r->wait(f->stream);
    cl_device_graphs_free(&f->graphs, r);
    for (int i = 0; i < f->n_buffers; i++) r->free_memory(f->buffers[i]);
    for (int i = 0; i < f->n_pinned; i++) r->free_host(f->pinned[i]);
    if (f->stream) r->destroy_stream(f->stream);
    r->leave(&before);
    free(f);
}

static cl_status create(const cl_model *m, cattn_cache *cache, ca_pool *pool, int32_t max_rows, int64_t n_ctx, cl_forward **out,
                        cl_error *error) {
    device_forward *f = calloc(1, sizeof *f);
    if (!f) return cl_fail(error, CL_ERR_NOMEM, "no memory for the forward pass");
    f->base = (cl_forward){.backend = &cl_backend_cuda, .m = m, .max_rows = max_rows};
    f->on = m->on_device;
    f->cache = cache;
    f->pool = pool;
    ca_cuda_caller before;
    f->failure = f->on->runtime->enter(f->on->device, &before);
    if (!f->failure) f->failure = f->on->runtime->create_stream(&f->stream);
    if (!f->failure) create_buffers(f, n_ctx);
    f->on->runtime->leave(&before);
    if (f->failure) {
        const cl_status status =
            cl_fail(error, CL_ERR_NOMEM, "no memory on CUDA device %d for steps of %d rows (%s); use smaller steps",
                    f->on->device, max_rows, f->failure);
        release(&f->base);
        return status;
    }
    *out = &f->base;
    return CL_OK;
}

void cl_device_forward_splice(cl_forward *forward, cl_device_attend *attend, void *ctx) {
    device_forward *f = (device_forward *)forward;
    f->attend = attend;
    f->attend_ctx = ctx;
}

void cl_device_forward_set_graphs(cl_forward *forward, bool on) { ((device_forward *)forward)->no_graphs = !on; }

uint64_t cl_device_forward_n_replays(const cl_forward *forward) { return ((const device_forward *)forward)->n_replays; }

/* ---- Launches ---- */

static void launch(device_forward *f, int kernel, int32_t blocks, const void *args) {
    if (!f->failure) f->failure = f->on->runtime->launch(&cl_cuda_get()->kernels[kernel], blocks, args, f->stream);
}

/* Where rows of x are quantised to; NULL: no matrix reads them so, or none could. */
static uint8_t *records_of_x(const device_forward *f) {
    const bool quantised = f->base.m->weights.forms & CL_LINEAR_IN_INT8;
    return quantised && f->base.m->params.n_embd % CL_LINEAR_BLOCK == 0 ? f->records : NULL;
}

/* The same for the input of one matrix, which reads either records or f32. */
static uint8_t *records_for(const device_forward *f, const cl_linear *w) {
    return cl_linear_layout_of(w->type) >= CL_LINEAR_FIRST_QUANT ? f->records : NULL;
}

/* Whether one launch may have both matrices. */
static bool are_alike(const cl_linear *a, const cl_linear *b) {
    return cl_linear_layout_of(a->type) == cl_linear_layout_of(b->type) &&
           cl_linear_table_of(a->type) == cl_linear_table_of(b->type);
}

/* One of several products of the same rows. */
typedef struct product {
    const cl_linear *w;
    float *y; /* [n_rows][n_out] */
} product;

/* x: [n_rows][n_in], and as records where matrices read them. Matrices of one layout are one launch. */
static void multiply(device_forward *f, const float *x, int32_t n_rows, const product *products, int n) {
    for (int i = 0, next; i < n; i = next) {
        const cl_linear *w = products[i].w;
        const cl_linear_layout layout = cl_linear_layout_of(w->type);
        cl_cuda_linear_args a = {.records = f->records, .x = x, .n_in = w->n_in, .n_rows = n_rows};
        int32_t n_panels = 0;
        for (next = i; next < n && a.n_products < CL_CUDA_PRODUCTS && are_alike(w, products[next].w); next++) {
            const int32_t n_out = products[next].w->n_out;
            a.of[a.n_products++] = (cl_cuda_product){products[next].w->data, products[next].y, n_out, n_out};
            n_panels += (n_out + CL_LINEAR_LANES - 1) / CL_LINEAR_LANES;
        }
        if (cl_linear_table_of(w->type)) memcpy(a.table, cl_linear_table_of(w->type), sizeof a.table);
        int more = 0; /* kernels behind the first one */
        while (layout != CL_LINEAR_F32 && layout != CL_LINEAR_F16 && more < 3 && n_rows > CL_LINEAR_ROW_GROUP << more) more++;
        const int32_t rows = CL_LINEAR_ROW_GROUP << more;
        launch(f, cl_cuda_first_product(layout) + more,
               (n_panels + CL_CUDA_PANELS_A_BLOCK - 1) / CL_CUDA_PANELS_A_BLOCK * ((n_rows + rows - 1) / rows), &a);
    }
}

/* What is added to x, and how; NULL: nothing. */
typedef struct addition {
    float *delta;
    const float *bias;
    const cl_norm *norm;
    const float *layer_scale;
} addition;

/* x plus an addition, and its norm to out, and to the records. */
static void add_norm(device_forward *f, float *x, int32_t n_rows, const addition *add, const cl_norm *norm, float *out) {
    const cl_model_params *p = &f->base.m->params;
    const cl_cuda_norm_args a = {.x = x,
                                 .delta = add ? add->delta : NULL,
                                 .delta_bias = add ? add->bias : NULL,
                                 .delta_norm = add ? add->norm->scale : NULL,
                                 .delta_norm_bias = add ? add->norm->bias : NULL,
                                 .norm = norm->scale,
                                 .norm_bias = norm->bias,
                                 .layer_scale = add ? add->layer_scale : NULL,
                                 .out = out,
                                 .records = records_of_x(f),
                                 .residual_scale = p->residual_scale,
                                 .eps = p->norm_eps,
                                 .n = p->n_embd,
                                 .n_rows = n_rows,
                                 .layer_norm = p->arch->norm == CL_NORM_LAYER};
    launch(f, CL_CUDA_rows_norm, whole_groups(n_rows), &a);
}

static void finish_heads(device_forward *f, int32_t layer, int32_t n_rows) {
    const cl_model_params *p = &f->base.m->params;
    const cl_layer_weights *l = layer_of(f, layer);
    const int rope = cl_rope_of(p, layer);
    const float *cos_sin = rope == CL_ROPE_NONE ? NULL : f->cos_sin[rope];
    const int32_t n_kv = cl_has_kv(p, layer) ? p->n_kv_heads[layer] : 0;
    const cl_cuda_finish_args a = {.of = {{f->q, l->q_bias, l->q_norm, cos_sin, f->query_scale, p->n_heads},
                                          {f->k, l->k_bias, l->k_norm, cos_sin, NULL, n_kv},
                                          {f->v, l->v_bias, NULL, NULL, NULL, n_kv}},
                                   .positions = f->positions,
                                   .eps = p->norm_eps,
                                   .n_rows = n_rows,
                                   .head_dim = p->head_dim[layer],
                                   .n_rot = cos_sin ? p->rope[rope].n_rot : 0,
                                   .halves = p->rope_halves,
                                   .own_norm = p->arch->qk_norm == CL_QK_NORM_OWN,
                                   .norm_is_behind = p->arch->qk_norm_rotated,
                                   .layer_norm = p->arch->norm == CL_NORM_LAYER};
    launch(f, CL_CUDA_rows_finish_heads, (n_rows * (p->n_heads + 2 * n_kv) + ROW_WARPS - 1) / ROW_WARPS, &a);
}

/* From the normed x to Q, K and V. */
static void before_attention(device_forward *f, int32_t layer, int32_t n_rows) {
    const cl_layer_weights *l = layer_of(f, layer);
    const product products[] = {{&l->q, f->q}, {&l->k, f->k}, {&l->v, f->v}};
    multiply(f, f->out, n_rows, products, cl_has_kv(&f->base.m->params, layer) ? 3 : 1);
    finish_heads(f, layer, n_rows);
}

static cl_status attend(device_forward *f, int32_t layer, int32_t n_rows, cl_error *error) {
    const cl_model_params *p = &f->base.m->params;
    const int32_t head_dim = p->head_dim[layer], n_q = cl_n_q(p, layer), n_kv = cl_n_kv(p, layer);
    const bool has_kv = cl_has_kv(p, layer);
    if (f->failure) return failed(f, error);
    if (f->attend) {
        finish(f);
        return f->attend(f->attend_ctx, layer, n_rows, f->q, has_kv ? f->k : NULL, has_kv ? f->v : NULL, f->attended);
    }
    const cattn_view q = {f->q, CATTN_F32, n_q, head_dim}, out = {f->attended, CATTN_F32, n_q, head_dim};
    const cattn_view k = {f->k, CATTN_F32, n_kv, head_dim}, v = {f->v, CATTN_F32, n_kv, head_dim};
    cattn_error e;
    cattn_status status = has_kv ? cattn_cuda_step_write(f->cache, layer, &k, &v, f->stream, &e) : CATTN_OK;
    if (status == CATTN_OK) status = cattn_cuda_step_attend(f->cache, layer, &q, &out, NULL, f->stream, &e);
    return status == CATTN_OK ? CL_OK : cl_fail(error, cl_kv_status(status), "attention of layer %d: %s", layer, e.message);
}

static void feed_forward(device_forward *f, int32_t layer, int32_t n_rows, const float *x) {
    static const int kinds[] = {[CL_FFN_SWIGLU] = CL_CUDA_SWIGLU,
                                [CL_FFN_SWIGLU_CLAMPED] = CL_CUDA_SWIGLU_CLAMPED,
                                [CL_FFN_GEGLU] = CL_CUDA_GEGLU,
                                [CL_FFN_GELU] = CL_CUDA_GELU};
    const cl_layer_weights *l = layer_of(f, layer);
    const product products[] = {{&l->up, f->up}, {&l->gate, f->gate}};
    const cl_cuda_activate_args a = {.gate = l->gate.data ? f->gate : NULL,
                                     .up = f->up,
                                     .gate_bias = l->gate_bias,
                                     .up_bias = l->up_bias,
                                     .h = f->up,
                                     .records = records_for(f, &l->down),
                                     .n = l->up.n_out,
                                     .n_rows = n_rows,
                                     .ffn = kinds[f->base.m->params.arch->ffn]};
    multiply(f, x, n_rows, products, l->gate.data ? 2 : 1);
    launch(f, CL_CUDA_rows_activate, whole_groups(n_rows), &a);
    multiply(f, f->up, n_rows, &(product){&l->down, f->delta}, 1);
}

/* From what attention has read through the rest of a layer to x, and to the norm of x for what follows. */
static void after_attention(device_forward *f, int32_t layer, int32_t n_rows, float *x, const float *attended, float *out,
                            const cl_norm *norm) {
    const cl_layer_weights *l = layer_of(f, layer);
    if (records_for(f, &l->o))
        launch(f, CL_CUDA_rows_quantize, whole_groups(n_rows),
               &(cl_cuda_quantize_args){attended, f->records, l->o.n_in, n_rows});
    multiply(f, attended, n_rows, &(product){&l->o, f->delta}, 1);
    add_norm(f, x, n_rows, &(addition){f->delta, l->o_bias, &l->post_attn_norm, NULL}, &l->ffn_norm, out);
    feed_forward(f, layer, n_rows, out);
    add_norm(f, x, n_rows, &(addition){f->delta, l->down_bias, &l->post_ffn_norm, l->scale}, norm, out);
}

/* ---- The host's part ---- */

static void embed_row(void *arg, int32_t row, int32_t worker) {
    (void)worker;
    const device_forward *f = arg;
    const cl_model_params *p = &f->base.m->params;
    float *x = f->host_x + (size_t)row * (size_t)p->n_embd;
    const unsigned fp = ca_fp_enter();
    cl_linear_row_f32(f->base.m->weights.embedding, f->tokens[row], x);
    for (int32_t i = 0; p->embedding_scale != 1 && i < p->n_embd; i++) x[i] *= p->embedding_scale;
    ca_fp_leave(fp);
    if (!f->query_scale) return;
    const int32_t periods = f->host_positions[row] / p->query_period;
    f->host_scale[row] = (float)(1 + p->query_beta * log1p((double)periods));
}

/* n_padded >= n_rows: rows of zeros at the first position are added up to these. */
static void begin_rows(device_forward *f, const int64_t *positions, int32_t n_rows, int32_t n_padded) {
    const size_t n = (size_t)n_padded, n_embd = (size_t)f->base.m->params.n_embd, first = (size_t)n_rows;
    for (int32_t i = 0; i < n_padded; i++) f->host_positions[i] = i < n_rows ? (int32_t)positions[i] : 0;
    memset(f->host_x + first * n_embd, 0, (n - first) * n_embd * sizeof *f->host_x);
    memset(f->host_scale + first, 0, (n - first) * sizeof *f->host_scale);
    ca_pool_run_shares(f->pool, n_rows, embed_row, f);
    copy(f, f->x, f->host_x, n * n_embd * sizeof *f->x);
    copy(f, f->positions, f->host_positions, n * sizeof *f->positions);
    if (f->query_scale) copy(f, f->query_scale, f->host_scale, n * sizeof *f->query_scale);
}

static void gather(device_forward *f, const float *from, float *to, const int32_t *rows, int32_t n, int32_t n_rows) {
    launch(f, CL_CUDA_rows_gather, n_rows, &(cl_cuda_gather_args){from, to, rows, n, n_rows});
}

static void copy_back(device_forward *f, void *to, const void *from, size_t bytes) {
    if (!f->failure) f->failure = f->on->runtime->copy_back(to, from, bytes, f->stream);
}

/* Pass on the states of *out among the kept rows, whose states are [n_kept] `states` on the device. */
static void yield_states(device_forward *f, const float *states, int32_t n_kept, const cl_forward_output *out) {
    const size_t n_embd = (size_t)f->base.m->params.n_embd;
    if (out->n_states == 0) return;
    copy_back(f, f->host_x, states, (size_t)n_kept * n_embd * sizeof *states);
    finish(f);
    for (int32_t i = 0, k = 0; i < n_kept && k < out->n_states && !f->failure; i++) {
        if (out->state_rows[k] != f->host_kept[i]) continue;
        out->take_state(out->ctx, f->host_kept[i], f->host_x + (size_t)i * n_embd);
        k++;
    }
}

/* Queue the logits of n_rows rows of states, at most LOGIT_ROWS. */
static void multiply_output(device_forward *f, const float *states, int32_t n_rows) {
    const cl_linear *w = &f->on->output;
    if (records_for(f, w))
        launch(f, CL_CUDA_rows_quantize, whole_groups(n_rows), &(cl_cuda_quantize_args){states, f->records, w->n_in, n_rows});
    multiply(f, states, n_rows, &(product){w, f->logits}, 1);
}

/* Wait for the logits of n_rows rows, and bring them to the host. */
static void fetch_logits(device_forward *f, int32_t n_rows, float *logits) {
    const cl_model_params *p = &f->base.m->params;
    const size_t n = (size_t)n_rows * (size_t)p->n_vocab;
    copy_back(f, f->host_logits, f->logits, n * sizeof *logits);
    finish(f);
    if (f->failure) return;
    memcpy(logits, f->host_logits, n * sizeof *logits);
    const unsigned fp = ca_fp_enter();
    for (size_t i = 0; p->logit_scale != 1 && i < n; i++) logits[i] *= p->logit_scale;
    if (p->logit_softcap > 0) cl_ops_softcap(logits, (int32_t)n, p->logit_softcap);
    ca_fp_leave(fp);
}

/* The logits of *out; states: of the kept rows, room: [n_kept] for those with logits. */
static void yield_logits(device_forward *f, float *states, float *room, int32_t n_kept, const cl_forward_output *out) {
    const size_t n_embd = (size_t)f->base.m->params.n_embd, n_vocab = (size_t)f->base.m->params.n_vocab;
    if (out->n_logits > 0 && out->n_logits < n_kept) {
        int32_t n = 0;
        for (int32_t i = 0; i < n_kept && n < out->n_logits; i++)
            if (f->host_kept[i] == out->logit_rows[n]) f->host_wanted[n++] = i;
        copy(f, f->kept, f->host_wanted, (size_t)n * sizeof *f->kept);
        gather(f, states, room, f->kept, f->base.m->params.n_embd, n);
        states = room;
    }
    for (int32_t first = 0; first < out->n_logits; first += LOGIT_ROWS) {
        const int32_t left = out->n_logits - first, n = left < LOGIT_ROWS ? left : LOGIT_ROWS;
        multiply_output(f, states + (size_t)first * n_embd, n);
        fetch_logits(f, n, out->logits + (size_t)first * n_vocab);
    }
}

/* The last layer behind its attention, for the rows of *out alone. */
static void end_rows(device_forward *f, int32_t n_rows, const cl_forward_output *out) {
    const cl_model_params *p = &f->base.m->params;
    const int32_t last = p->n_layers - 1, n_kept = cl_forward_list_rows(out, f->host_kept);
    float *x = f->x, *attended = f->attended, *states = f->out;
    if (n_kept == 0) return;
    if (n_kept < n_rows) {
        copy(f, f->kept, f->host_kept, (size_t)n_kept * sizeof *f->kept);
        gather(f, f->x, f->out, f->kept, p->n_embd, n_kept);
        gather(f, f->attended, f->q, f->kept, cl_n_q(p, last), n_kept);
        x = f->out;
        attended = f->q;
        states = f->x;
    }
    after_attention(f, last, n_kept, x, attended, states, &f->on->output_norm);
    yield_states(f, states, n_kept, out);
    yield_logits(f, states, x, n_kept, out);
}

/* All layers up to the last one's attention. */
static cl_status run_layers(device_forward *f, int32_t n_rows, cl_error *error) {
    const int32_t last = f->base.m->params.n_layers - 1;
    cl_status status = CL_OK;
    add_norm(f, f->x, n_rows, NULL, &layer_of(f, 0)->attn_norm, f->out);
    for (int32_t layer = 0; layer <= last && status == CL_OK; layer++) {
        before_attention(f, layer, n_rows);
        status = attend(f, layer, n_rows, error);
        if (layer == last || status != CL_OK) continue;
        after_attention(f, layer, n_rows, f->x, f->attended, f->out, &layer_of(f, layer + 1)->attn_norm);
    }
    return status;
}

static cl_status run(device_forward *f, const int64_t *positions, int32_t n_rows, const cl_forward_output *out,
                     cl_error *error) {
    begin_rows(f, positions, n_rows, n_rows);
    const cl_status status = run_layers(f, n_rows, error);
    if (status == CL_OK) end_rows(f, n_rows, out);
    return status;
}

/* ---- Decode steps ---- */

/* Whether a step is launches alone, from its embeddings to the logits of all rows. */
static bool is_decode(const device_forward *f, int32_t n_rows, const cl_forward_output *out) {
    return n_rows <= GRAPH_ROWS && out->n_logits == n_rows && out->n_states == 0 && !f->attend && !f->no_graphs;
}

static cl_status launch_decode(device_forward *f, int32_t n_rows, cl_error *error) {
    const int32_t last = f->base.m->params.n_layers - 1;
    const cl_status status = run_layers(f, n_rows, error);
    if (status != CL_OK) return status;
    after_attention(f, last, n_rows, f->x, f->attended, f->out, &f->on->output_norm);
    multiply_output(f, f->out, n_rows);
    return CL_OK;
}

/* Make and keep the graph of a decode step. */
static cl_status capture_decode(device_forward *f, cl_graph_key key, ca_cuda_graph **graph, cl_error *error) {
    const ca_cuda_runtime *r = f->on->runtime;
    *graph = NULL;
    if (!f->failure) f->failure = r->begin_graph(f->stream);
    if (f->failure) return CL_OK;
    const cl_status status = launch_decode(f, key.n_rows, error);
    const char *failure = r->end_graph(f->stream, graph);
    if (!f->failure) f->failure = failure;
    if (status == CL_OK && !f->failure) {
        cl_device_graphs_add(&f->graphs, key, *graph, r);
    } else {
        r->destroy_graph(*graph);
        *graph = NULL;
    }
    return status;
}

/* Rows are filled up to whole groups, which take no longer and have the same graph. */
static cl_status run_decode(device_forward *f, const int64_t *positions, int32_t n_rows, float *logits, cl_error *error) {
    const cl_graph_key key = {f->attention, whole_groups(n_rows)};
    bool capture;
    ca_cuda_graph *graph = cl_device_graphs_find(&f->graphs, key, &capture);
    cl_status status = CL_OK;
    begin_rows(f, positions, n_rows, key.n_rows);
    if (capture) status = capture_decode(f, key, &graph, error);
    if (!graph && !capture) status = launch_decode(f, key.n_rows, error);
    if (graph && !f->failure) f->failure = f->on->runtime->run_graph(graph, f->stream);
    f->n_replays += graph != NULL;
    if (status == CL_OK) fetch_logits(f, n_rows, logits);
    return status;
}

static cl_status step(cl_forward *forward, const int32_t *tokens, const int64_t *positions, int32_t n_rows,
                      const cl_forward_output *out, cl_error *error) {
    device_forward *f = (device_forward *)forward;
    ca_cuda_caller before;
    f->tokens = tokens;
    f->failure = f->on->runtime->enter(f->on->device, &before);
    cl_status status = is_decode(f, n_rows, out) ? run_decode(f, positions, n_rows, out->logits, error)
                                                 : run(f, positions, n_rows, out, error);
    finish(f);
    if (status == CL_OK) status = failed(f, error);
    f->on->runtime->leave(&before);
    return status;
}

static cattn_status begin(cl_forward *forward, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error) {
    device_forward *f = (device_forward *)forward;
    return cattn_cuda_step_begin(f->cache, entries, n_entries, row_limit, f->stream, &f->attention, error);
}

const cl_backend cl_backend_cuda = {create, release, begin, step};
