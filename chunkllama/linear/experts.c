/* Orders the rows of a mixture of experts by expert, and multiplies them: see experts.h. */
#include "experts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/fp.h"
#include "linear_input.h"

/* ---- Routes ---- */

/* Blocks that n_rows rows can have at most. */
static size_t most_blocks(const cl_routes *r) {
    return (size_t)r->n_experts + (size_t)r->max_rows * (size_t)r->n_used / CL_LINEAR_ROW_BLOCK * 2;
}

cl_routes *cl_routes_create(int32_t n_experts, int32_t n_used, int32_t max_rows) {
    assert(n_used >= 1 && n_used <= n_experts && max_rows >= 1);
    cl_routes *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    *r = (cl_routes){.n_experts = n_experts, .n_used = n_used, .max_rows = max_rows};
    const size_t n_parts = (size_t)max_rows * (size_t)n_used;
    r->expert = malloc(n_parts * sizeof *r->expert);
    r->part = malloc(n_parts * sizeof *r->part);
    r->row = malloc(n_parts * sizeof *r->row);
    r->first = malloc((size_t)(n_experts + 1) * sizeof *r->first);
    r->blocks = malloc(most_blocks(r) * sizeof *r->blocks);
    if (!r->expert || !r->part || !r->row || !r->first || !r->blocks) cl_routes_free(&r);
    return r;
}

void cl_routes_free(cl_routes **routes) {
    cl_routes *r = *routes;
    if (!r) return;
    free(r->expert);
    free(r->part);
    free(r->row);
    free(r->first);
    free(r->blocks);
    free(r);
    *routes = NULL;
}

void cl_routes_sort(cl_routes *r, int32_t n_rows) {
    assert(n_rows >= 1 && n_rows <= r->max_rows);
    const int32_t n_parts = n_rows * r->n_used;
    r->n_rows = n_rows;
    memset(r->first, 0, (size_t)(r->n_experts + 1) * sizeof *r->first);
    for (int32_t i = 0; i < n_parts; i++) r->first[r->expert[i] + 1]++;
    for (int32_t e = 0; e < r->n_experts; e++) r->first[e + 1] += r->first[e];
    for (int32_t i = 0; i < n_parts; i++) { /* first[e] counts up to the first part of the next expert */
        r->part[i] = r->first[r->expert[i]]++;
        r->row[r->part[i]] = i / r->n_used;
    }
    memmove(r->first + 1, r->first, (size_t)r->n_experts * sizeof *r->first);
    r->first[0] = 0;
}

/* The parts of an expert as an input of their own. */
static cl_linear_input parts_of(const cl_linear_input *in, int32_t first, int32_t n) {
    cl_linear_input parts = *in;
    if (in->x) parts.x += (size_t)first * in->x_stride;
    parts.row_groups += (size_t)first * ((size_t)in->n_in / CL_LINEAR_BLOCK) * CL_LINEAR_ROW_BYTES;
    parts.bf16 += (size_t)first * cl_linear_bf16_stride(in->n_in);
    parts.n_rows = n;
    return parts;
}

/* Divide the parts of each expert into blocks of whole row groups. */
static void make_blocks(cl_routes *r, const cl_linear_input *in) {
    r->n_blocks = 0;
    for (int32_t e = 0; e < r->n_experts; e++) {
        const int32_t first = r->first[e], n = r->first[e + 1] - first;
        if (n == 0) continue;
        const cl_linear_input parts = parts_of(in, first, n);
        const int32_t block = cl_linear_row_block(&parts);
        for (int32_t row = 0; row < n; row += block)
            r->blocks[r->n_blocks++] = (cl_route_block){e, first, n, row, n - row < block ? n - row : block};
    }
    assert((size_t)r->n_blocks <= most_blocks(r));
}

/* ---- Products ---- */

/* A task is a range of panels of one block, of about equal lengths. */
typedef struct work {
    const cl_linear_input *in;
    const cl_routes *routes;
    int32_t n_panels, n_ranges;
    const cl_linear *w; /* [n_experts] */
    float *y;
    cl_linear_gated gated; /* of all experts */
} work;

static int32_t n_ranges_of(const cl_routes *r, int32_t n_panels, const ca_pool *pool) {
    const int n_workers = ca_pool_size(pool);
    const int32_t wanted = n_workers > 1 ? CL_LINEAR_TASKS_A_WORKER * n_workers : 1;
    const int32_t n = (wanted + r->n_blocks - 1) / r->n_blocks, most = (n_panels + CL_LINEAR_AT_ONCE - 1) / CL_LINEAR_AT_ONCE;
    return n < most ? n : most;
}

static cl_linear_cell cell_of(const work *a, int32_t task, const cl_route_block **block) {
    const cl_route_block *b = *block = &a->routes->blocks[task / a->n_ranges];
    const int32_t range = task % a->n_ranges;
    return (cl_linear_cell){cl_linear_range_begin(a->n_panels, a->n_ranges, CL_LINEAR_AT_ONCE, range),
                            cl_linear_range_begin(a->n_panels, a->n_ranges, CL_LINEAR_AT_ONCE, range + 1), b->row, b->n_rows};
}

static void apply_task(void *arg, int32_t task, int32_t worker) {
    const work *a = arg;
    const cl_route_block *b;
    const cl_linear_cell c = cell_of(a, task, &b);
    const cl_linear_input in = parts_of(a->in, b->first, b->n);
    const cl_linear *w = &a->w[b->expert];
    const size_t n_out = (size_t)w->n_out;
    const unsigned fp = ca_fp_enter();
    if (c.begin < c.end)
        cl_linear_multiply(&in, w, c, a->y + (size_t)(b->first + c.row) * n_out + (size_t)c.begin * CL_LINEAR_LANES, n_out,
                           worker);
    cl_linear_leave(&in, fp);
}

/* The pair of one expert. */
static cl_linear_pair pair_of(const cl_linear_pair *all, int32_t expert) {
    const size_t bias = (size_t)expert * (size_t)all->gate->n_out;
    return (cl_linear_pair){all->gate + expert, all->up + expert, all->gate_bias ? all->gate_bias + bias : NULL,
                            all->up_bias ? all->up_bias + bias : NULL, all->activate};
}

static void gated_task(void *arg, int32_t task, int32_t worker) {
    const work *a = arg;
    const cl_route_block *b;
    const cl_linear_cell c = cell_of(a, task, &b);
    const cl_linear_input in = parts_of(a->in, b->first, b->n);
    cl_linear_input out = parts_of(a->gated.out, b->first, b->n);
    cl_linear_gated g = {pair_of(&a->gated.pair, b->expert), a->gated.h, a->gated.form, &out};
    if (g.h) g.h += (size_t)b->first * (size_t)g.pair.gate->n_out;
    const unsigned fp = ca_fp_enter();
    cl_linear_multiply_gated(&in, &g, c, worker);
    cl_linear_leave(&in, fp);
}

void cl_linear_apply_gated_experts(const cl_linear_input *in, const cl_routes *r, const cl_linear_pair *pair, float *h,
                                   const cl_linear *next, cl_linear_input *out, ca_pool *pool) {
    const cl_linear *gate = pair->gate;
    assert(gate->n_in == in->n_in && pair->up->n_in == in->n_in && gate->n_out == pair->up->n_out && next->n_in == gate->n_out);
    assert(ca_pool_size(pool) <= in->n_workers);
    const int32_t n_panels = cl_linear_panels(gate);
    cl_linear_set(out, h, (size_t)gate->n_out, in->n_rows, gate->n_out);
    work a = {.in = in,
              .routes = r,
              .n_panels = n_panels,
              .n_ranges = n_ranges_of(r, n_panels, pool),
              .gated = {*pair, h, cl_linear_form_of(out, next), out}};
    ca_pool_run_shares(pool, r->n_blocks * a.n_ranges, gated_task, &a);
}

void cl_linear_apply_experts(const cl_linear_input *in, const cl_routes *r, const cl_linear *w, float *y, ca_pool *pool) {
    assert(w->n_in == in->n_in && ca_pool_size(pool) <= in->n_workers);
    const int32_t n_panels = cl_linear_panels(w);
    work a = {.in = in, .routes = r, .n_panels = n_panels, .n_ranges = n_ranges_of(r, n_panels, pool), .w = w, .y = y};
    ca_pool_run_shares(pool, r->n_blocks * a.n_ranges, apply_task, &a);
}

/* ---- Parts ---- */

typedef struct gather {
    cl_linear_input *in;
    const cl_routes *routes;
    const float *x;
    size_t row_stride;
    float *gathered;
} gather;

/* The rows of a block, one by one, since they are not neighbours in x. */
static void gather_task(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    const gather *g = arg;
    const cl_route_block *b = &g->routes->blocks[task];
    cl_linear_input parts = parts_of(g->in, b->first, b->n);
    const size_t n_in = (size_t)g->in->n_in;
    const unsigned fp = ca_fp_enter();
    for (int32_t i = b->row; i < b->row + b->n_rows; i++) {
        const float *x = g->x + (size_t)g->routes->row[b->first + i] * g->row_stride;
        cl_linear_prepare_rows(&parts, x, g->row_stride, i, 1);
        if (g->gathered) memcpy(g->gathered + (size_t)(b->first + i) * n_in, x, n_in * sizeof *x);
    }
    ca_fp_leave(fp);
}

void cl_linear_gather(cl_linear_input *in, cl_routes *r, const float *x, size_t row_stride, int32_t n_in, float *gathered,
                      ca_pool *pool) {
    gather g = {in, r, x, row_stride, gathered};
    cl_linear_set(in, gathered, (size_t)n_in, r->n_rows * r->n_used, n_in);
    make_blocks(r, in);
    ca_pool_run_shares(pool, r->n_blocks, gather_task, &g);
}
