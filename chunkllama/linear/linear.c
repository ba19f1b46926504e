/* Linear layers: the choice of the kernel level, preparation of activations, and distribution of products over threads. */
#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/fp.h"
#include "chunkattn/base/levels.h"
#include "chunkllama/tensor/weight_type.h"
#include "linear_input.h"

/* ---- Levels ---- */

#define CA_LEVEL(name, features) &cl_kernels_##name,
static const cl_kernels *const kernels_of_levels[CA_N_LEVELS] = {
#include "chunkattn/base/levels.def"
};
#undef CA_LEVEL

const cl_kernels *cl_kernels_find(const char *level) {
    int chosen;
    return ca_level_choose(level, &chosen) == CA_LEVEL_OK ? kernels_of_levels[chosen] : NULL;
}

const char *cl_kernels_level(const cl_kernels *kernels) { return kernels->level; }

const char *cl_kernels_level_name(int i) {
    const int level = ca_level_of_cpu(i);
    return level < 0 ? NULL : ca_level_name(level);
}

/* ---- Input ---- */

enum {
    MAX_PRODUCTS = 4,
    /* Outputs of gate, and of up, that a thread holds: 32 columns of the rows of a task. */
    PAIR_FLOATS = CL_LINEAR_ROW_BLOCK * CL_LINEAR_BLOCK
};

static size_t blocks_of(int32_t n_in) { return ((size_t)n_in + CL_LINEAR_BLOCK - 1) / CL_LINEAR_BLOCK; }

unsigned cl_linear_forms(const cl_linear *w) {
    const cl_linear_layout layout = cl_linear_layout_of(w->type);
    return layout == CL_LINEAR_BF16 ? CL_LINEAR_IN_BF16 : layout >= CL_LINEAR_FIRST_QUANT ? CL_LINEAR_IN_INT8 : 0;
}

cl_linear_input *cl_linear_input_create(const cl_kernels *kernels, unsigned forms, int32_t max_rows, int32_t max_in,
                                        int n_workers) {
    assert(max_rows >= 1 && max_in >= 1 && n_workers >= 1);
    ca_alloc alloc = ca_alloc_default();
    cl_linear_input *in = ca_new_zero(&alloc, 1, sizeof *in);
    if (!in) return NULL;
    in->kernels = kernels;
    in->forms = forms;
    in->max_rows = max_rows;
    in->max_in = max_in;
    in->n_workers = n_workers;
    in->row_groups_bytes = (size_t)max_rows * blocks_of(max_in) * CL_LINEAR_ROW_BYTES;
    in->bf16_bytes = (size_t)max_rows * cl_linear_bf16_stride(max_in) * sizeof *in->bf16;
    in->scratch_bytes = blocks_of(max_in) * CL_LINEAR_SCRATCH_BYTES;
    in->row_groups = ca_new(&alloc, in->row_groups_bytes, 1);
    in->bf16 = ca_new(&alloc, in->bf16_bytes, 1);
    in->scratch = ca_new(&alloc, (size_t)n_workers, in->scratch_bytes);
    in->pairs = ca_new(&alloc, (size_t)n_workers, 2 * PAIR_FLOATS * sizeof(float));
    in->alloc = alloc;
    if (!in->row_groups || !in->bf16 || !in->scratch || !in->pairs) cl_linear_input_free(&in);
    return in;
}

void cl_linear_input_free(cl_linear_input **input) {
    cl_linear_input *in = *input;
    if (!in) return;
    ca_alloc alloc = in->alloc;
    ca_delete(&alloc, in->row_groups, in->row_groups_bytes, 1);
    ca_delete(&alloc, in->bf16, in->bf16_bytes, 1);
    ca_delete(&alloc, in->scratch, (size_t)in->n_workers, in->scratch_bytes);
    ca_delete(&alloc, in->pairs, (size_t)in->n_workers, 2 * PAIR_FLOATS * sizeof(float));
    ca_delete(&alloc, in, 1, sizeof *in);
    *input = NULL;
}

void cl_linear_set(cl_linear_input *in, const float *x, size_t row_stride, int32_t n_rows, int32_t n_in) {
    assert(n_rows >= 1 && n_rows <= in->max_rows && n_in >= 1 && n_in <= in->max_in);
    in->x = x;
    in->x_stride = row_stride;
    in->n_rows = n_rows;
    in->n_in = n_in;
}

int32_t cl_linear_group_rows(const cl_linear_input *in) {
    return in->n_rows < in->kernels->min_group_rows ? CL_LINEAR_ROW_GROUP : in->kernels->group_rows;
}

int32_t cl_linear_row_block(const cl_linear_input *in) {
    const int32_t n_blocks = (in->n_rows + CL_LINEAR_ROW_BLOCK - 1) / CL_LINEAR_ROW_BLOCK;
    const int32_t group_rows = cl_linear_group_rows(in);
    return ((in->n_rows + n_blocks - 1) / n_blocks + group_rows - 1) / group_rows * group_rows;
}

/* Quantise n_rows (1 to 8) rows of a row group from `row` on, and n_blocks blocks from `block` on. x: their first value. */
static void put_rows(cl_linear_input *in, const float *x, size_t row_stride, int32_t row, int32_t n_rows, size_t block,
                     int32_t n_blocks) {
    const int32_t full = cl_linear_group_rows(in), in_tile = row % full, left = in->n_rows - (row - in_tile);
    const int32_t group_rows = left < full ? left : full;
    const size_t records = (size_t)(row - in_tile) * ((size_t)in->n_in / CL_LINEAR_BLOCK) + (size_t)group_rows * block;
    in->kernels->quantize(x, row_stride, n_rows, n_blocks, in->row_groups + records * CL_LINEAR_ROW_BYTES + 4 * (size_t)in_tile,
                          group_rows);
}

void cl_linear_prepare_rows(cl_linear_input *in, const float *x, size_t row_stride, int32_t row, int32_t n_rows) {
    if (in->forms & CL_LINEAR_IN_INT8 && in->n_in % CL_LINEAR_BLOCK == 0) /* quantised matrices have no other n_in */
        put_rows(in, x, row_stride, row, n_rows, 0, in->n_in / CL_LINEAR_BLOCK);
    if (!(in->forms & CL_LINEAR_IN_BF16) || !in->kernels->round_bf16) return;
    const size_t stride = cl_linear_bf16_stride(in->n_in);
    for (int32_t r = 0; r < n_rows; r++)
        in->kernels->round_bf16(x + (size_t)r * row_stride, in->n_in, in->bf16 + (size_t)(row + r) * stride);
}

void cl_linear_prepare_row_group(cl_linear_input *in, int32_t row_group) {
    const int32_t first = row_group * CL_LINEAR_ROW_GROUP, left = in->n_rows - first;
    const int32_t n = left < CL_LINEAR_ROW_GROUP ? left : CL_LINEAR_ROW_GROUP;
    cl_linear_prepare_rows(in, in->x + (size_t)first * in->x_stride, in->x_stride, first, n);
}

void cl_linear_leave(const cl_linear_input *in, unsigned fp) {
    if (in->kernels->leave) in->kernels->leave();
    ca_fp_leave(fp);
}

static void prepare_task(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    const unsigned fp = ca_fp_enter();
    cl_linear_prepare_row_group(arg, task);
    ca_fp_leave(fp);
}

void cl_linear_prepare(cl_linear_input *in, ca_pool *pool) {
    ca_pool_run_shares(pool, (in->n_rows + CL_LINEAR_ROW_GROUP - 1) / CL_LINEAR_ROW_GROUP, prepare_task, in);
}

/* ---- Products ---- */

/* Divides a product into tasks: a task is a range of panels, of about equal lengths, and a block of rows. */
typedef struct grid {
    const cl_linear_input *in;
    int32_t n_panels, n_ranges, row_block;
    int32_t unit; /* panels that are not divided */
} grid;

static grid make_grid(const cl_linear_input *in, int32_t n_panels, int32_t unit, const ca_pool *pool) {
    const int n_workers = ca_pool_size(pool);
    assert(n_workers <= in->n_workers);
    grid g = {.in = in, .n_panels = n_panels, .unit = unit, .row_block = cl_linear_row_block(in)};
    const int32_t wanted = n_workers > 1 ? CL_LINEAR_TASKS_A_WORKER * n_workers : 1;
    const int32_t n_units = (n_panels + unit - 1) / unit;
    g.n_ranges = wanted < n_units ? wanted : n_units;
    return g;
}

unsigned cl_linear_form_of(const cl_linear_input *in, const cl_linear *w) {
    const unsigned form = cl_linear_forms(w);
    assert((form & ~in->forms) == 0);
    return form == CL_LINEAR_IN_BF16 && !in->kernels->round_bf16 ? 0 : form;
}

void cl_linear_multiply(const cl_linear_input *in, const cl_linear *w, cl_linear_cell c, float *y, size_t y_stride,
                        int32_t worker) {
    const cl_linear_layout layout = cl_linear_layout_of(w->type);
    const cl_linear_task task = {
        .panels = (const uint8_t *)w->data + (size_t)c.begin * cl_linear_panel_bytes(layout, in->n_in),
        .n_panels = c.end - c.begin,
        .n_in = in->n_in,
        .n_last = c.end == cl_linear_panels(w) ? w->n_out - (c.end - 1) * CL_LINEAR_LANES : CL_LINEAR_LANES,
        .n_rows = c.n_rows,
        .x = in->x ? in->x + (size_t)c.row * in->x_stride : NULL,
        .x_stride = in->x_stride,
        .x_bf16 = in->bf16 + (size_t)c.row * cl_linear_bf16_stride(in->n_in),
        .x_bf16_stride = cl_linear_bf16_stride(in->n_in),
        .table = cl_linear_table_of(w->type),
        .row_groups = in->row_groups + (size_t)c.row * ((size_t)in->n_in / CL_LINEAR_BLOCK) * CL_LINEAR_ROW_BYTES,
        .y = y,
        .y_stride = y_stride,
        .scratch = in->scratch + (size_t)worker * in->scratch_bytes,
        .prefetch_to_l2 = in->kernels->prefetch_to_l2,
    };
    in->kernels->multiply[layout](&task);
}

static cl_linear_cell cell_of(const grid *g, int32_t task) {
    const int32_t range = task % g->n_ranges, row = task / g->n_ranges * g->row_block;
    const int32_t left = g->in->n_rows - row;
    return (cl_linear_cell){cl_linear_range_begin(g->n_panels, g->n_ranges, g->unit, range),
                            cl_linear_range_begin(g->n_panels, g->n_ranges, g->unit, range + 1), row,
                            left < g->row_block ? left : g->row_block};
}

/*
 * Call fn for each cell; arg begins with the grid. The cells of a worker's share are neighbours in memory, so that the weights
 * that a kernel has prefetched are in the cache of the worker that needs them.
 */
static void run_grid(const grid *g, ca_task fn, void *arg, ca_pool *pool) {
    ca_pool_run_shares(pool, g->n_ranges * ((g->in->n_rows + g->row_block - 1) / g->row_block), fn, arg);
}

/* Several products: their panels are numbered consecutively in the grid. */
typedef struct apply {
    grid grid;
    const cl_linear_product *products;
    int n;
    const cl_linear_finish *finish;
} apply;

static void apply_task(void *arg, int32_t task, int32_t worker) {
    const apply *a = arg;
    const unsigned fp = ca_fp_enter();
    const cl_linear_cell all = cell_of(&a->grid, task);
    int32_t first = 0; /* number of the product's first panel */
    for (int i = 0; i < a->n; i++) {
        const cl_linear_product *p = &a->products[i];
        const int32_t n_panels = cl_linear_panels(p->w);
        cl_linear_cell c = all;
        c.begin = all.begin > first ? all.begin - first : 0;
        c.end = all.end - first < n_panels ? all.end - first : n_panels;
        float *y = p->y + (size_t)c.row * p->y_stride + (size_t)c.begin * CL_LINEAR_LANES;
        first += n_panels;
        if (c.begin >= c.end) continue;
        cl_linear_multiply(a->grid.in, p->w, c, y, p->y_stride, worker);
        const int32_t end = c.end * CL_LINEAR_LANES < p->w->n_out ? c.end * CL_LINEAR_LANES : p->w->n_out;
        if (a->finish) a->finish->fn(a->finish->arg, i, c.row, c.n_rows, c.begin * CL_LINEAR_LANES, end);
    }
    cl_linear_leave(a->grid.in, fp);
}

void cl_linear_apply(const cl_linear_input *in, const cl_linear_product *products, int n, const cl_linear_finish *finish,
                     ca_pool *pool) {
    assert(n >= 1 && n <= MAX_PRODUCTS);
    const int32_t unit = finish ? finish->unit : 0;
    int32_t n_panels = 0;
    for (int i = 0; i < n; i++) {
        assert(products[i].w->n_in == in->n_in);
        assert((cl_linear_forms(products[i].w) & ~in->forms) == 0);
        assert(unit == 0 || (unit % CL_LINEAR_LANES == 0 && products[i].w->n_out % unit == 0));
        n_panels += cl_linear_panels(products[i].w);
    }
    apply a = {make_grid(in, n_panels, unit ? unit / CL_LINEAR_LANES : CL_LINEAR_AT_ONCE, pool), products, n, finish};
    run_grid(&a.grid, apply_task, &a, pool);
}

/* ---- Gated products ---- */

/* A gated product: the panels of the grid are those of gate, and at the same time those of up. */
typedef struct gated {
    grid grid;
    cl_linear_gated of;
} gated;

/* Quantise n columns, from a multiple of 32 on, of rows [row, row + n_rows), which begin a row group. */
static void put_blocks(cl_linear_input *in, const float *x, int32_t column, int32_t n, int32_t row, int32_t n_rows) {
    for (int32_t r = 0; r < n_rows; r += CL_LINEAR_ROW_GROUP) {
        const int32_t at_once = n_rows - r < CL_LINEAR_ROW_GROUP ? n_rows - r : CL_LINEAR_ROW_GROUP;
        put_rows(in, x + (size_t)r * (size_t)n, (size_t)n, row + r, at_once, (size_t)column / CL_LINEAR_BLOCK,
                 n / CL_LINEAR_BLOCK);
    }
}

/* Round the same columns to bf16. */
static void put_bf16(cl_linear_input *in, const float *x, int32_t column, int32_t n, int32_t row, int32_t n_rows) {
    const size_t stride = cl_linear_bf16_stride(in->n_in);
    for (int32_t r = 0; r < n_rows; r++)
        in->kernels->round_bf16(x + (size_t)r * (size_t)n, n, in->bf16 + (size_t)(row + r) * stride + column);
}

/* Some panels of gate and up, whose outputs stay in the thread's own cache. */
static void multiply_pair(const cl_linear_input *in, const cl_linear_gated *g, cl_linear_cell c, int32_t worker) {
    const int32_t column = c.begin * CL_LINEAR_LANES, end = c.end * CL_LINEAR_LANES;
    const cl_linear_pair *p = &g->pair;
    const int32_t n_out = p->gate->n_out, n = (end < n_out ? end : n_out) - column;
    float *gate = in->pairs + (size_t)worker * 2 * PAIR_FLOATS, *up = gate + PAIR_FLOATS;
    cl_linear_multiply(in, p->gate, c, gate, (size_t)n, worker);
    cl_linear_multiply(in, p->up, c, up, (size_t)n, worker);
    for (int32_t r = 0; r < c.n_rows; r++) {
        if (p->gate_bias) in->kernels->row_ops.add(gate + (size_t)r * (size_t)n, p->gate_bias + column, n);
        if (p->up_bias) in->kernels->row_ops.add(up + (size_t)r * (size_t)n, p->up_bias + column, n);
    }
    p->activate(gate, up, n * c.n_rows, gate);
    if (g->form == CL_LINEAR_IN_INT8) put_blocks(g->out, gate, column, n, c.row, c.n_rows);
    if (g->form == CL_LINEAR_IN_BF16) put_bf16(g->out, gate, column, n, c.row, c.n_rows);
    for (int32_t r = 0; g->form == 0 && r < c.n_rows; r++)
        memcpy(g->h + (size_t)(c.row + r) * (size_t)n_out + column, gate + (size_t)r * (size_t)n, sizeof(float) * (size_t)n);
}

void cl_linear_multiply_gated(const cl_linear_input *in, const cl_linear_gated *g, cl_linear_cell all, int32_t worker) {
    const int32_t at_once = PAIR_FLOATS / (CL_LINEAR_LANES * all.n_rows) & ~1;
    for (cl_linear_cell c = all; c.begin < all.end; c.begin = c.end) {
        c.end = c.begin + at_once < all.end ? c.begin + at_once : all.end;
        multiply_pair(in, g, c, worker);
    }
}

static void gated_task(void *arg, int32_t task, int32_t worker) {
    const gated *a = arg;
    const unsigned fp = ca_fp_enter();
    cl_linear_multiply_gated(a->grid.in, &a->of, cell_of(&a->grid, task), worker);
    cl_linear_leave(a->grid.in, fp);
}

void cl_linear_apply_gated(const cl_linear_input *in, const cl_linear_pair *pair, float *h, const cl_linear *next,
                           cl_linear_input *out, ca_pool *pool) {
    const cl_linear *gate = pair->gate;
    assert(gate->n_in == in->n_in && pair->up->n_in == in->n_in && gate->n_out == pair->up->n_out && next->n_in == gate->n_out);
    gated a = {make_grid(in, cl_linear_panels(gate), CL_LINEAR_AT_ONCE, pool), {*pair, h, cl_linear_form_of(out, next), out}};
    cl_linear_set(out, h, (size_t)gate->n_out, in->n_rows, gate->n_out);
    run_grid(&a.grid, gated_task, &a, pool);
}
