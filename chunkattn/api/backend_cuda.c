/* CUDA devices as a backend (chunkattn/attn/backend.h): its table, for caches and foreign pages. */
#include "backends.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/cuda/device.h"
#include "chunkattn/pages/handle.h"
#include "step.h"

/* ---- Caches and foreign pages ---- */

static void destroy(ca_compute *compute, bool inherited) {
    (inherited ? ca_device_abandon : ca_device_destroy)(&compute->device);
}

static ca_plan_config plan_config(const ca_compute *compute, const cattn_config *config, int32_t shape) {
    return ca_device_plan_for(compute->device, shape, config->n_sink_tokens);
}

static int add_plan(ca_compute *compute, int32_t shape) { return ca_device_add_plan(compute->device, shape); }

/* 16 bytes are read and written at a time. A stride over a single element is not checked. */
static cattn_status check_alignment(const char *name, const cattn_view *view, int64_t n_rows, int32_t n_heads,
                                    cattn_error *error) {
    const int64_t size = (int64_t)ca_type_size(view->type);
    const bool aligned = (uintptr_t)view->data % 16 == 0 && (n_rows <= 1 || view->row_stride * size % 16 == 0) &&
                         (n_heads <= 1 || view->head_stride * size % 16 == 0);
    if (aligned) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1,
                   "%s: data, row_stride and head_stride must be multiples of 16 bytes; they are %p, %lld and %lld bytes", name,
                   view->data, (long long)(view->row_stride * size), (long long)(view->head_stride * size));
}

/* ---- Caches ---- */

static cattn_status create_cache(cattn_cache *c, const cattn_config *config, cattn_error *error) {
    c->compute.level = "cuda";
    c->layout.has_open = false; /* a device has no open slot groups */
    return ca_device_create(&c->compute.device, &c->alloc, &c->layout, config, ca_chunk_pool_capacity(c->pool), NULL, error);
}

static uint64_t other_bytes(const cattn_cache *c) { return c->compute.device->bytes; }

/* The host's memory counts against no budget, and chunks never take the device memory that is for steps, so none exceeds it. */
static cattn_status reserve(cattn_cache *c, size_t bytes_before, size_t n_after, bool may_exceed, cattn_error *error) {
    (void)bytes_before, (void)may_exceed;
    return ca_device_reserve(c->compute.device, c->plans.at, ca_tree_pending(c->tree)->n, n_after, error);
}

static cattn_status begin(cattn_cache *c, cattn_error *error) {
    const ca_step *step = &c->step;
    const ca_device_rows rows = {step->rows.n > 0 ? &step->rows.at->chunk : NULL, sizeof *step->rows.at};
    return ca_device_begin(c->compute.device, &rows, &step->before, &step->after, error);
}

static void release(ca_compute *compute) { ca_device_release(compute->device); }

static cattn_status write(cattn_cache *c, int32_t layer, const cattn_view *k, const cattn_view *v, void *stream,
                          cattn_error *error) {
    ca_device *d = c->compute.device;
    ca_cuda_caller before;
    cattn_status s = ca_device_enter(d, &before, error);
    if (s) return s;
    s = ca_device_write(d, layer, k, v, stream, error);
    ca_device_leave(d, &before);
    return s;
}

/* plan: the layer's, which the device knows by its index; pages: foreign ones, or NULL. */
static cattn_status attend_plan(ca_device *d, int32_t layer, const ca_plan *plan, int32_t index, const ca_cuda_pages *pages,
                                const cattn_view *q, const cattn_view *out, float *lse, void *stream, cattn_error *error) {
    ca_cuda_caller before;
    cattn_status s = ca_device_enter(d, &before, error);
    if (s) return s;
    s = ca_device_attend(d, layer, index, &plan->config, pages, q, out, lse, stream, error);
    ca_device_leave(d, &before);
    return s;
}

static cattn_status attend(cattn_cache *c, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse, void *stream,
                           cattn_error *error) {
    const int32_t index = c->layer_plan[layer];
    return attend_plan(c->compute.device, layer, &c->plans.at[index], index, NULL, q, out, lse, stream, error);
}

/* ---- Foreign pages ---- */

/* As ca_page_source.find. */
static void find_places(const void *ctx, ca_chunk_id chunk, int32_t places[CA_CUDA_QUARTERS]) {
    const cattn_pages *p = ctx;
    for (int32_t i = 0; i < CA_CUDA_QUARTERS; i++) places[i] = (int32_t)ca_page_plan_find(&p->plan, chunk, i);
}

/* A work item line holds a quarter's place in 31 bits. */
static cattn_status create_pages(cattn_pages *p, const cattn_config *config, cattn_error *error) {
    const int64_t most_quarters = (int64_t)INT32_MAX + 1, most_ids = most_quarters >> p->plan.log2_quarters;
    p->compute.level = "cuda";
    if (p->most_ids > most_ids) p->most_ids = most_ids;
    const ca_page_source source = {find_places, p};
    return ca_device_create(&p->compute.device, &p->alloc, &p->layout, config, 0, &source, error);
}

/* As check_alignment. */
static cattn_status check_page_alignment(const cattn_pages *p, const char *name, const cattn_page_view *view,
                                         int32_t n_kv_heads, cattn_error *error) {
    const int64_t size = (int64_t)ca_type_size(p->layout.type);
    const bool aligned = (uintptr_t)view->data % 16 == 0 && view->page_stride * size % 16 == 0 &&
                         view->token_stride * size % 16 == 0 && (n_kv_heads == 1 || view->head_stride * size % 16 == 0);
    if (aligned) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1,
                   "%s: data and its strides must be multiples of 16 bytes; they are %p and %lld (page), %lld (token) and %lld "
                   "(head) bytes",
                   name, view->data, (long long)(view->page_stride * size), (long long)(view->token_stride * size),
                   (long long)(view->head_stride * size));
}

static ca_cuda_page_view view_of(const cattn_pages *p, const cattn_page_view *v) {
    const int64_t size = (int64_t)ca_type_size(p->layout.type);
    return (ca_cuda_page_view){v->data, v->page_stride * size, v->token_stride * size, v->head_stride * size};
}

static cattn_status attend_pages(cattn_pages *p, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                 const cattn_view *q, const cattn_view *out, float *lse, void *stream, cattn_error *error) {
    const ca_cuda_pages pages = {.k = view_of(p, k), .v = view_of(p, v), .log2_quarters = p->plan.log2_quarters};
    const int32_t index = p->layer_plan[layer];
    return attend_plan(p->compute.device, layer, &p->plan.plans.at[index], index, &pages, q, out, lse, stream, error);
}

/* ---- Table ---- */

const ca_backend ca_backend_cuda = {
    .name = "CUDA device",
    .choice = "set cuda",
    .steps = {"cattn_cuda_step_", "chunkattn_cuda.h"},
    .pages = {"cattn_cuda_pages_", "chunkattn_cuda.h"},
    .max_tokens = CA_CUDA_MAX_TOKENS, /* a work item line holds a segment's index in 16 bits */
    .destroy = destroy,
    .plan_config = plan_config,
    .add_plan = add_plan,
    .check_alignment = check_alignment,
    .chunk_budget = ca_device_chunk_budget,
    .create_cache = create_cache,
    .other_bytes = other_bytes,
    .reserve = reserve,
    .begin = begin,
    .write = write,
    .attend = attend,
    .release = release,
    .create_pages = create_pages,
    .check_page_alignment = check_page_alignment,
    .attend_pages = attend_pages,
};
