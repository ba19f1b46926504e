/*
 * The forward pass on a CPU, the same for all architectures: they differ only in the table of arch.h and in the vectors that a
 * layer has.
 *
 * Everything but attention treats rows independently, so it runs over one microbatch of the rows at a time: after the attention
 * of a layer, a microbatch passes the output projection, the feed-forward block and the Q, K and V of the next layer while it
 * is in the cache, and the wide buffers hold only one microbatch.
 */
#include "forward_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kv_cache.h"

enum { MICROBATCH = 512 };

/* ---- Creation ---- */

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static float *new_floats(size_t rows, size_t columns) {
    return aligned_alloc(64, (rows * columns * sizeof(float) + 63) / 64 * 64);
}

/* Allocate the angles of a RoPE and compute its frequencies, unless that has been done. */
static bool create_angles(cl_cpu_forward *f, int rope, int64_t n_ctx) {
    if (rope == CL_ROPE_NONE || f->cos_sin[rope]) return true;
    const cl_model_params *p = &f->base.m->params;
    const int32_t n_rot = p->rope[rope].n_rot;
    f->cos_sin[rope] = new_floats((size_t)f->base.max_rows, (size_t)n_rot);
    double *frequency = f->frequency[rope] = malloc((size_t)n_rot / 2 * sizeof *frequency);
    if (!f->cos_sin[rope] || !frequency) return false;
    for (int32_t i = 0; i < n_rot / 2; i++) frequency[i] = cl_rope_frequency(&p->rope[rope], i, n_ctx);
    return true;
}

static cl_linear_activate *activation(const cl_model *m) {
    const cl_row_ops *ops = &m->kernels->row_ops;
    switch (m->params.arch->ffn) {
    case CL_FFN_GEGLU: return ops->geglu;
    case CL_FFN_SWIGLU_CLAMPED: return ops->swiglu_clamped;
    default: return ops->swiglu;
    }
}

/* Allocate what layers need that have embeddings of their own. */
static bool create_layer_embd(cl_cpu_forward *f) {
    const cl_model_params *p = &f->base.m->params;
    const size_t n = (size_t)p->n_layers * (size_t)p->n_layer_embd;
    if (n == 0) return true;
    f->layer_embd = new_floats((size_t)f->base.max_rows, n);
    f->token_embd = new_floats((size_t)ca_pool_size(f->pool), n);
    return f->layer_embd && f->token_embd;
}

/* Allocate what rows need that have several states. */
static bool create_states(cl_cpu_forward *f, size_t n_microbatch) {
    const cl_model_params *p = &f->base.m->params;
    const size_t rows = (size_t)f->base.max_rows, n = (size_t)p->n_embd;
    if (!p->arch->altup) return true;
    f->others = new_floats(rows, (size_t)cl_n_others(f));
    f->predicted = new_floats(rows, n);
    f->laurel = new_floats(rows, n);
    f->room = new_floats((size_t)ca_pool_size(f->pool), n);
    f->gate = new_floats(n_microbatch, (size_t)cl_most(p->n_ff, p->n_layers));
    return f->others && f->predicted && f->laurel && f->room && f->gate;
}

static bool create_ones(cl_cpu_forward *f) {
    const cl_model_params *p = &f->base.m->params;
    if (!p->arch->v_norm) return true;
    const int32_t n = cl_most(p->head_dim, p->n_layers);
    f->ones = new_floats(1, (size_t)n);
    for (int32_t i = 0; f->ones && i < n; i++) f->ones[i] = 1;
    return f->ones;
}

/* Allocate what only some models need. */
static bool create_extras(cl_cpu_forward *f, size_t n_microbatch, int64_t n_ctx) {
    const cl_model_params *p = &f->base.m->params;
    const bool has_experts = p->router.n_experts > 0;
    if (p->arch->parallel) f->aside = new_floats(n_microbatch, (size_t)p->n_embd);
    if (has_experts) f->moe = cl_moe_create(f->base.m, f->pool, (int32_t)n_microbatch, f->activate);
    if (p->query_beta > 0) f->query_scale = new_floats((size_t)f->base.max_rows, 1);
    bool made = (f->aside || !p->arch->parallel) && (f->moe || !has_experts) && (f->query_scale || p->query_beta == 0);
    if (has_experts && p->arch->experts_beside) made &= (f->beside = new_floats(n_microbatch, (size_t)p->n_embd)) != NULL;
    made = made && create_layer_embd(f) && create_states(f, n_microbatch) && create_ones(f);
    for (int32_t i = 0; i < p->n_layers && made; i++) made = create_angles(f, cl_rope_of(p, i), n_ctx);
    return made;
}

static void release(cl_forward *forward) {
    cl_cpu_forward *f = (cl_cpu_forward *)forward;
    float *const buffers[] = {f->x,          f->q,      f->k,      f->v,         f->attended,    f->branch,
                              f->aside,      f->beside, f->gate,   f->h,         f->query_scale, f->layer_embd,
                              f->token_embd, f->ones,   f->others, f->predicted, f->laurel,      f->room};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]);
    for (int i = 0; i < CL_N_ROPES; i++) {
        free(f->cos_sin[i]);
        free(f->frequency[i]);
    }
    free(f->kept);
    cl_moe_free(&f->moe);
    cl_linear_input_free(&f->in);
    cl_linear_input_free(&f->in_h);
    free(f);
}

static cl_status create(const cl_model *m, cattn_cache *cache, ca_pool *pool, int32_t max_rows, int64_t n_ctx, cl_forward **out,
                        cl_error *error) {
    cl_cpu_forward *f = calloc(1, sizeof *f);
    if (!f) return cl_fail(error, CL_ERR_NOMEM, "no memory for the forward pass");
    const cl_model_params *p = &m->params;
    const size_t rows = (size_t)max_rows, n_microbatch = max_rows < MICROBATCH ? rows : MICROBATCH;
    f->cache = cache;
    f->pool = pool;
    f->base = (cl_forward){.backend = &cl_backend_cpu, .m = m, .max_rows = max_rows};
    int32_t n_q = 0, n_kv = 0, n_h = larger(larger(p->n_layer_embd, p->laurel_rank), 1);
    for (int32_t i = 0; i < p->n_layers; i++) {
        n_q = larger(n_q, cl_n_q(p, i));
        n_kv = larger(n_kv, cl_n_kv(p, i));
        n_h = larger(n_h, p->n_ff[i]);
    }
    f->x = new_floats(rows, (size_t)p->n_embd);
    f->q = new_floats(rows, (size_t)n_q);
    f->k = new_floats(rows, (size_t)n_kv);
    f->v = new_floats(rows, (size_t)n_kv);
    f->attended = new_floats(rows, (size_t)n_q);
    f->branch = new_floats(n_microbatch, (size_t)p->n_embd);
    f->h = new_floats(n_microbatch, (size_t)n_h);
    f->kept = malloc(rows * sizeof *f->kept);
    f->rope = p->rope_halves ? m->kernels->row_ops.rope_halves : m->kernels->row_ops.rope;
    f->norm = p->arch->norm == CL_NORM_RMS ? m->kernels->row_ops.rms_norm : m->kernels->row_ops.layer_norm;
    f->activate = activation(m);
    const bool extras = create_extras(f, n_microbatch, n_ctx);
    const int32_t widest = larger(p->n_embd, n_q);
    f->in = cl_linear_input_create(m->kernels, m->weights.forms, (int32_t)n_microbatch, widest, ca_pool_size(pool));
    f->in_h = cl_linear_input_create(m->kernels, m->weights.forms, (int32_t)n_microbatch, n_h, ca_pool_size(pool));
    if (!f->x || !f->q || !f->k || !f->v || !f->attended || !f->branch || !f->h || !f->kept || !extras || !f->in || !f->in_h) {
        release(&f->base);
        return cl_fail(error, CL_ERR_NOMEM, "no memory for steps of %d rows; use smaller steps", max_rows);
    }
    *out = &f->base;
    return CL_OK;
}

/* ---- The pass ---- */

/* y = W x + bias; bias may be NULL. */
static void multiply(cl_cpu_forward *f, const cl_linear_input *in, const cl_linear *w, const float *bias, float *y) {
    cl_bias of = {f, bias, y, w->n_out};
    cl_linear_apply(in, &(cl_linear_product){w, y, (size_t)w->n_out}, 1,
                    bias ? &(cl_linear_finish){cl_rows_add_bias, &of, 0} : NULL, f->pool);
}

/* The low-rank product beside attention, of the normed x. */
static void multiply_laurel(cl_microbatch *p, const cl_layer_weights *l) {
    cl_cpu_forward *f = p->f;
    const int32_t rank = l->laurel_left.n_out;
    if (!f->laurel) return;
    multiply(f, f->in, &l->laurel_left, NULL, f->h);
    cl_linear_set(f->in_h, f->h, (size_t)rank, p->n, rank);
    cl_linear_prepare(f->in_h, f->pool);
    multiply(f, f->in_h, &l->laurel_right, NULL, cl_row_of(f->laurel, p->first, l->laurel_right.n_out));
    cl_rows_end_laurel(p);
}

/* From the normed x to Q, K and V of a layer. */
static void before_attention(cl_microbatch *p, int32_t layer) {
    cl_cpu_forward *f = p->f;
    const cl_layer_weights *l = &f->base.m->weights.layers[layer];
    const int32_t n_q = cl_n_q(&f->base.m->params, layer), n_kv = cl_n_kv(&f->base.m->params, layer);
    const int n = l->v.n_out ? 3 : l->k.n_out ? 2 : 1;
    p->layer = layer;
    const cl_linear_product products[] = {
        {&l->q, cl_row_of(f->q, p->first, n_q), (size_t)n_q},
        {&l->k, cl_row_of(f->k, p->first, n_kv), (size_t)n_kv},
        {&l->v, cl_row_of(f->v, p->first, n_kv), (size_t)n_kv},
    };
    if (f->base.m->params.arch->qk_norm == CL_QK_NORM_ALL) {
        cl_linear_apply(f->in, products, n, NULL, f->pool);
        cl_rows_finish_whole_qkv(p);
    } else {
        cl_linear_apply(f->in, products, n, &(cl_linear_finish){cl_rows_finish_qkv, p, cl_rows_qkv_unit(p)}, f->pool);
    }
    multiply_laurel(p, l);
}

/* The layers' own embeddings and further states, from the embeddings, and the norm of x for the first layer. */
static void embed_layers(cl_microbatch *p) {
    cl_cpu_forward *f = p->f;
    const cl_model_weights *w = &f->base.m->weights;
    if (!f->layer_embd) return;
    multiply(f, f->in, &w->layer_embd_proj, NULL, cl_row_of(f->layer_embd, p->first, w->layer_embd_proj.n_out));
    for (int32_t i = 0; f->others && i < f->base.m->params.n_states - 1; i++) {
        const size_t n_others = (size_t)cl_n_others(f), n_embd = (size_t)f->base.m->params.n_embd;
        const cl_linear_product product = {&w->states_in[i], f->others + (size_t)p->first * n_others + (size_t)i * n_embd,
                                           n_others};
        cl_linear_apply(f->in, &product, 1, NULL, f->pool);
    }
    cl_rows_embed_layers(p);
}

/* From the states behind the last layer to the normed mean of what they become. */
static void merge_states(cl_microbatch *p) {
    cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd, n_others = cl_n_others(f);
    if (!f->others) return;
    for (int32_t i = 0; i < f->base.m->params.n_states - 1; i++) {
        cl_linear_set(f->in, cl_row_of(f->others, p->first, n_others) + (size_t)i * (size_t)n_embd, (size_t)n_others, p->n,
                      n_embd);
        cl_linear_prepare(f->in, f->pool);
        multiply(f, f->in, &f->base.m->weights.states_out[i], NULL, f->branch);
        cl_rows_end_state(p, i);
    }
    cl_rows_merge(p);
}

/* From x to x plus what the layer's own embedding adds, and to x normed for the next layer. */
static void add_layer_embd(cl_microbatch *p, const cl_layer_weights *l) {
    cl_cpu_forward *f = p->f;
    if (!f->layer_embd) return;
    multiply(f, f->in, &l->layer_embd_gate, NULL, f->h);
    cl_rows_gate_layer_embd(p);
    multiply(f, f->in_h, &l->layer_embd_up, NULL, f->branch);
    cl_rows_add_layer_embd(p);
}

/* From the normed x to the activations that `down` multiplies. */
static void activate(cl_microbatch *p, const cl_layer_weights *l) {
    cl_cpu_forward *f = p->f;
    if (cl_is_cut(&f->base.m->params, p->layer)) {
        const cl_linear_product products[] = {{&l->gate, f->gate, (size_t)l->gate.n_out}, {&l->up, f->h, (size_t)l->up.n_out}};
        cl_linear_apply(f->in, products, 2, NULL, f->pool);
        cl_rows_cut(p);
    } else if (l->gate.data) {
        const cl_linear_pair pair = {&l->gate, &l->up, l->gate_bias, l->up_bias, f->activate};
        cl_linear_apply_gated(f->in, &pair, f->h, &l->down, f->in_h, f->pool);
    } else {
        multiply(f, f->in, &l->up, l->up_bias, f->h);
        cl_rows_activate(p);
    }
}

/* From the normed x, which is in `branch`, to the output of the feed-forward block, of experts or of both. */
static void feed_forward(cl_microbatch *p, const cl_layer_weights *l) {
    cl_cpu_forward *f = p->f;
    const bool beside = l->experts.norm.scale;
    float *of_experts = beside ? f->beside : f->branch;
    if (l->experts.n) cl_moe_route(f->moe, l, f->in, of_experts, p->n);
    if (beside) cl_rows_norm_dense(p);
    if (l->down.data) {
        activate(p, l);
        multiply(f, f->in_h, &l->down, l->down_bias, f->branch);
    }
    if (l->experts.n) cl_moe_apply(f->moe, l->down.data && !beside, of_experts);
    if (beside) cl_rows_add_beside(p);
}

/* From the output of attention through the rest of a layer to x, and to x normed for what follows. */
static void after_attention(cl_microbatch *p, int32_t layer) {
    cl_cpu_forward *f = p->f;
    const cl_layer_weights *l = &f->base.m->weights.layers[layer];
    const int32_t n_q = cl_n_q(&f->base.m->params, layer);
    p->layer = layer;
    cl_linear_set(f->in, cl_row_of(f->attended, p->first, n_q), (size_t)n_q, p->n, n_q);
    cl_linear_prepare(f->in, f->pool);
    multiply(f, f->in, &l->o, l->o_bias, f->aside ? f->aside : f->branch);
    cl_rows_add_attention(p);
    feed_forward(p, l);
    cl_rows_add_ffn(p);
    add_layer_embd(p, l);
}

/* From the normed x to logits, of all rows of a microbatch. */
static void output(cl_microbatch *p) {
    cl_cpu_forward *f = p->f;
    multiply(f, f->in, &f->base.m->weights.output, NULL, p->logits);
    if (f->base.m->params.logit_softcap > 0 || f->base.m->params.logit_scale != 1) cl_rows_finish_logits(p);
}

static cl_status attend(cl_cpu_forward *f, int32_t layer, cl_error *error) {
    const cl_model_params *p = &f->base.m->params;
    const int32_t head_dim = p->head_dim[layer], n_q = cl_n_q(p, layer), n_kv = cl_n_kv(p, layer);
    const cattn_view q = {f->q, CATTN_F32, n_q, head_dim}, out = {f->attended, CATTN_F32, n_q, head_dim};
    const cattn_view k = {f->k, CATTN_F32, n_kv, head_dim}, v = {f->v, CATTN_F32, n_kv, head_dim};
    cattn_error e;
    cattn_status status = cl_has_kv(p, layer) ? cattn_step_write(f->cache, layer, &k, &v, &e) : CATTN_OK;
    if (status == CATTN_OK) status = cattn_step_attend(f->cache, layer, &q, &out, NULL, &e);
    return status == CATTN_OK ? CL_OK : cl_fail(error, cl_kv_status(status), "attention of layer %d: %s", layer, e.message);
}

/* Copy a row of n values to another; rows NULL: there are none. */
static void move_row(float *rows, int32_t to, int32_t from, int32_t n) {
    if (rows) memcpy(cl_row_of(rows, to, n), cl_row_of(rows, from, n), sizeof(float) * (size_t)n);
}

/*
 * Move the rows of *out to the front, where f->kept lists them: after the attention of the last layer no others are needed.
 * Returns their number.
 */
static int32_t keep_rows(cl_cpu_forward *f, const cl_forward_output *out) {
    const cl_model_params *p = &f->base.m->params;
    const int32_t n_embd = p->n_embd, n_q = cl_n_q(p, p->n_layers - 1);
    const int32_t n_layer = p->n_layer_embd, n_layers = p->n_layers * n_layer;
    const int32_t n_kept = cl_forward_list_rows(out, f->kept);
    for (int32_t n = 0; n < n_kept; n++) {
        const int32_t row = f->kept[n];
        if (row == n) continue;
        move_row(f->x, n, row, n_embd);
        move_row(f->attended, n, row, n_q);
        move_row(f->others, n, row, cl_n_others(f));
        move_row(f->predicted, n, row, n_embd);
        move_row(f->laurel, n, row, n_embd);
        if (f->layer_embd)
            memcpy(cl_row_of(f->layer_embd, n + 1, n_layers) - n_layer, cl_row_of(f->layer_embd, row + 1, n_layers) - n_layer,
                   sizeof(float) * (size_t)n_layer);
    }
    return n_kept;
}

static cl_microbatch microbatch_at(cl_cpu_forward *f, int32_t first, int32_t n_rows) {
    return (cl_microbatch){.f = f, .first = first, .n = n_rows - first < MICROBATCH ? n_rows - first : MICROBATCH};
}

/*
 * Yield the states and the logits of a microbatch of the kept rows, whose normed x is in `branch`. *n_logits, *n_states: how
 * many of *out were yielded before. Where the microbatch has rows without logits, those with logits move to its front.
 */
static void yield(cl_microbatch *p, const cl_forward_output *out, int32_t *n_logits, int32_t *n_states) {
    cl_cpu_forward *f = p->f;
    const int32_t n_embd = f->base.m->params.n_embd;
    int32_t n = 0;
    p->logits = out->logits + (size_t)*n_logits * (size_t)f->base.m->params.n_vocab;
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t row = f->kept[p->first + i];
        float *state = cl_row_of(f->branch, i, n_embd);
        if (*n_states < out->n_states && out->state_rows[*n_states] == row) {
            out->take_state(out->ctx, row, state);
            (*n_states)++;
        }
        if (*n_logits == out->n_logits || out->logit_rows[*n_logits] != row) continue;
        if (n < i) memcpy(cl_row_of(f->branch, n, n_embd), state, sizeof(float) * (size_t)n_embd);
        n++;
        (*n_logits)++;
    }
    if (n == 0) return;
    if (n < p->n) {
        p->n = n;
        cl_linear_set(f->in, f->branch, (size_t)n_embd, n, n_embd);
        cl_linear_prepare(f->in, f->pool);
    }
    output(p);
}

static cl_status step(cl_forward *forward, const int32_t *tokens, const int64_t *positions, int32_t n_rows,
                      const cl_forward_output *out, cl_error *error) {
    cl_cpu_forward *f = (cl_cpu_forward *)forward;
    const cl_model *m = f->base.m;
    cl_status status = CL_OK;
    f->tokens = tokens;
    f->positions = positions;

    for (int32_t first = 0; first < n_rows; first += MICROBATCH) {
        cl_microbatch p = microbatch_at(f, first, n_rows);
        cl_rows_embed(&p);
        embed_layers(&p);
        before_attention(&p, 0);
    }
    const int32_t last = m->params.n_layers - 1;
    for (int32_t layer = 0; layer < last; layer++) {
        status = attend(f, layer, error);
        if (status != CL_OK) return status;
        for (int32_t first = 0; first < n_rows; first += MICROBATCH) {
            cl_microbatch p = microbatch_at(f, first, n_rows);
            after_attention(&p, layer);
            before_attention(&p, layer + 1);
        }
    }
    status = attend(f, last, error);
    if (status != CL_OK) return status;
    const int32_t n_kept = keep_rows(f, out);
    int32_t n_logits = 0, n_states = 0;
    for (int32_t first = 0; first < n_kept; first += MICROBATCH) {
        cl_microbatch p = microbatch_at(f, first, n_kept);
        after_attention(&p, last);
        merge_states(&p);
        yield(&p, out, &n_logits, &n_states);
    }
    return CL_OK;
}

static cattn_status begin(cl_forward *forward, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error) {
    return cattn_step_begin(((cl_cpu_forward *)forward)->cache, entries, n_entries, row_limit, error);
}

const cl_backend cl_backend_cpu = {create, release, begin, step};
