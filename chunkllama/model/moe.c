/* Routes rows to experts, multiplies them there, and adds the outputs. */
#include "moe.h"

#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/fp.h"
#include "chunkllama/linear/linear_kernels.h"

struct cl_moe {
    const cl_model *m;
    ca_pool *pool;
    cl_linear_activate *activate;
    int32_t n_rows;
    cl_routes *routes;
    float *logits, *room; /* [rows][n_experts] */
    float *weight;        /* [rows][n_used] */
    float *shared;        /* [rows] the logit of the shared expert's weight */
    float *x, *h, *y;     /* [parts][n_embd], [parts][n_ff], [parts][n_embd]; x, h: NULL if no expert reads f32 */
    cl_linear_input *in, *in_h;

    /* The layer that is computed, and its output. */
    const cl_layer_weights *layer;
    bool has_shared; /* out holds the output of the shared expert */
    float *out;
};

static float *new_floats(size_t rows, size_t columns) {
    return aligned_alloc(64, (rows * columns * sizeof(float) + 63) / 64 * 64);
}

/* The forms in which some matrices read their input; *f32: some read it as it is. */
static void add_forms(const cl_model *m, const cl_linear *w, unsigned *forms, bool *f32) {
    const unsigned form = w ? cl_linear_forms(w) : CL_LINEAR_IN_INT8;
    *forms |= form;
    *f32 |= form == 0 || (form == CL_LINEAR_IN_BF16 && !m->kernels->round_bf16);
}

cl_moe *cl_moe_create(const cl_model *m, ca_pool *pool, int32_t max_rows, cl_linear_activate *activate) {
    const cl_model_params *p = &m->params;
    const int32_t n_experts = p->router.n_experts, n_used = p->router.n_used, n_parts = max_rows * n_used;
    const size_t rows = (size_t)max_rows, parts = (size_t)n_parts;
    unsigned forms = 0, h_forms = 0;
    bool f32 = false, h_f32 = false;
    for (int32_t i = 0; i < p->n_layers; i++) {
        const cl_expert_weights *w = &m->weights.layers[i].experts;
        add_forms(m, w->gate, &forms, &f32);
        add_forms(m, w->up, &forms, &f32);
        add_forms(m, w->down, &h_forms, &h_f32);
    }
    cl_moe *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    *e = (cl_moe){.m = m,
                  .pool = pool,
                  .activate = activate,
                  .routes = cl_routes_create(n_experts, n_used, max_rows),
                  .logits = new_floats(rows, (size_t)n_experts),
                  .room = new_floats(rows, (size_t)n_experts),
                  .weight = new_floats(rows, (size_t)n_used),
                  .shared = new_floats(rows, 1),
                  .x = f32 ? new_floats(parts, (size_t)p->n_embd) : NULL,
                  .h = h_f32 ? new_floats(parts, (size_t)p->expert_n_ff) : NULL,
                  .y = new_floats(parts, (size_t)p->n_embd),
                  .in = cl_linear_input_create(m->kernels, forms, n_parts, p->n_embd, ca_pool_size(pool)),
                  .in_h = cl_linear_input_create(m->kernels, h_forms, n_parts, p->expert_n_ff, ca_pool_size(pool))};
    if (!e->routes || !e->logits || !e->room || !e->weight || !e->shared || (f32 && !e->x) || (h_f32 && !e->h) || !e->y ||
        !e->in || !e->in_h)
        cl_moe_free(&e);
    return e;
}

void cl_moe_free(cl_moe **moe) {
    cl_moe *e = *moe;
    if (!e) return;
    float *const buffers[] = {e->logits, e->room, e->weight, e->shared, e->x, e->h, e->y};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]);
    cl_routes_free(&e->routes);
    cl_linear_input_free(&e->in);
    cl_linear_input_free(&e->in_h);
    free(e);
    *moe = NULL;
}

static void run_row_groups(cl_moe *e, ca_task task) {
    ca_pool_run_shares(e->pool, (e->n_rows + CL_LINEAR_ROW_GROUP - 1) / CL_LINEAR_ROW_GROUP, task, e);
}

static int32_t group_end(const cl_moe *e, int32_t row_group) {
    const int32_t end = (row_group + 1) * CL_LINEAR_ROW_GROUP;
    return end < e->n_rows ? end : e->n_rows;
}

static float *row_of(float *rows, int32_t row, int32_t n) { return rows + (size_t)row * (size_t)n; }

static void choose_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    cl_moe *e = arg;
    const cl_router_params *p = &e->m->params.router;
    const cl_row_ops *ops = &e->m->kernels->row_ops;
    const cl_expert_weights *w = &e->layer->experts;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(e, row_group); i++) {
        float *logits = row_of(e->logits, i, p->n_experts), *weight = row_of(e->weight, i, p->n_used);
        int32_t *expert = e->routes->expert + (size_t)i * (size_t)p->n_used;
        if (w->router_bias) ops->add(logits, w->router_bias, p->n_experts);
        cl_router_choose(p, ops, w->choice_bias, logits, row_of(e->room, i, p->n_experts), expert, weight);
        for (int32_t k = 0; w->scale && k < p->n_used; k++) weight[k] *= w->scale[expert[k]];
    }
    ca_fp_leave(fp);
}

void cl_moe_route(cl_moe *e, const cl_layer_weights *layer, const cl_linear_input *in, const float *x, int32_t n_rows) {
    const cl_expert_weights *w = &layer->experts;
    const int32_t n_embd = e->m->params.n_embd;
    e->layer = layer;
    e->n_rows = n_rows;
    const cl_linear_product products[] = {{&w->router, e->logits, (size_t)w->router.n_out}, {&w->shared_router, e->shared, 1}};
    cl_linear_apply(in, products, w->shared_router.data ? 2 : 1, NULL, e->pool);
    run_row_groups(e, choose_row_group);
    cl_routes_sort(e->routes, n_rows);
    cl_linear_gather(e->in, e->routes, x, (size_t)n_embd, n_embd, e->x, e->pool);
}

/* Add the outputs of a row's experts to that of the shared one. */
static void add_row_group(void *arg, int32_t row_group, int32_t worker) {
    (void)worker;
    cl_moe *e = arg;
    const cl_expert_weights *w = &e->layer->experts;
    const cl_row_ops *ops = &e->m->kernels->row_ops;
    const int32_t n_embd = e->m->params.n_embd, n_used = e->routes->n_used;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = row_group * CL_LINEAR_ROW_GROUP; i < group_end(e, row_group); i++) {
        float *out = row_of(e->out, i, n_embd);
        const float weight = w->shared_router.data ? cl_ops_sigmoid(e->shared[i]) : 1;
        if (!e->has_shared) memset(out, 0, sizeof *out * (size_t)n_embd);
        for (int32_t j = 0; weight != 1 && j < n_embd; j++) out[j] *= weight;
        for (int32_t k = i * n_used; k < (i + 1) * n_used; k++) {
            float *y = row_of(e->y, e->routes->part[k], n_embd);
            if (w->down_bias) ops->add(y, row_of(w->down_bias, e->routes->expert[k], n_embd), n_embd);
            ops->add_scaled(out, y, n_embd, e->weight[k]);
        }
    }
    ca_fp_leave(fp);
}

void cl_moe_apply(cl_moe *e, bool has_shared, float *y) {
    const cl_expert_weights *w = &e->layer->experts;
    const cl_linear_pair pair = {w->gate, w->up, w->gate_bias, w->up_bias, e->activate};
    cl_linear_apply_gated_experts(e->in, e->routes, &pair, e->h, w->down, e->in_h, e->pool);
    cl_linear_apply_experts(e->in_h, e->routes, w->down, e->y, e->pool);
    e->has_shared = has_shared;
    e->out = y;
    run_row_groups(e, add_row_group);
}
