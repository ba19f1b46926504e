/* The public functions of chunkattn_cuda.h for foreign pages on a device. */
#include "chunkattn/base/error.h"
#include "chunkattn/pages/handle.h"
#include "chunkattn_cuda.h"

/* ---- Plan ---- */

/* Reserve the device's memory for the plan. If there is too little, free what earlier, larger batches left, and try again. */
static cattn_status reserve(cattn_pages *p, cattn_error *error) {
    const cattn_status s = ca_device_reserve(p->device, p->plan.plans.at, 0, 0, error);
    if (s != CATTN_ERR_NOMEM) return s;
    ca_device_release(p->device);
    return ca_device_reserve(p->device, p->plan.plans.at, 0, 0, error);
}

/* Plan the sequences that were read. If the device cannot get the new plan, there is no plan afterwards. */
static cattn_status update_plan(cattn_pages *p, int64_t n_rows, cattn_error *error) {
    static const ca_device_rows no_rows;
    static const ca_kv_commands no_copies;
    cattn_status s = ca_page_plan_update(&p->plan, NULL, p->seqs.at, (int32_t)p->seqs.n);
    if (s == CATTN_ERR_ARG)
        return ca_fail(error, s, -1, "the batch has too many sequences for its longest one; divide it into several");
    if (s) return ca_fail(error, s, -1, "no memory for the plan of %lld rows", (long long)n_rows);
    p->n_rows = n_rows;
    if ((s = reserve(p, error)) == CATTN_OK) s = ca_device_begin(p->device, &no_rows, &no_copies, &no_copies, error);
    if (s == CATTN_OK) return CATTN_OK;
    p->plan.exists = false;
    ca_device_release(p->device);
    return s;
}

cattn_status cattn_cuda_pages_plan(cattn_pages *p, const cattn_pages_batch *batch, cattn_cuda_stream stream, uint64_t *graph,
                                   cattn_error *error) {
    int64_t n_rows;
    int32_t before;
    cattn_status s;
    if ((s = ca_pages_check_place(p, true, "plan", error)) || (s = ca_need(batch, "batch", error))) return s;
    if ((s = ca_pages_read_batch(p, batch, &n_rows, error)) || (s = ca_device_enter(p->device, &before, error))) return s;
    p->device->stream = stream;
    s = update_plan(p, n_rows, error);
    ca_device_leave(p->device, before);
    if (s == CATTN_OK && graph) *graph = ca_device_graph(p->device);
    return s;
}

/* ---- Attend ---- */

/* 16 bytes are read at a time. */
static cattn_status check_alignment(const cattn_pages *p, const char *name, const cattn_page_view *view, cattn_error *error) {
    const int64_t size = (int64_t)ca_type_size(p->layout.type);
    const bool aligned = (uintptr_t)view->data % 16 == 0 && view->page_stride * size % 16 == 0 &&
                         view->token_stride * size % 16 == 0 &&
                         (p->layout.n_kv_heads == 1 || view->head_stride * size % 16 == 0);
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

cattn_status cattn_cuda_pages_attend(cattn_pages *p, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                     const cattn_view *q, const cattn_view *out, float *lse, cattn_cuda_stream stream,
                                     cattn_error *error) {
    int32_t before;
    cattn_status s;
    if ((s = ca_pages_check_place(p, true, "attend", error)) || (s = ca_pages_check_attend(p, layer, k, v, error))) return s;
    if (p->n_rows == 0) return CATTN_OK;
    const int32_t n_heads = p->layout.n_kv_heads * p->attn.group;
    if ((s = check_alignment(p, "k", k, error)) || (s = check_alignment(p, "v", v, error)) ||
        (s = ca_device_check_view("q", q, p->n_rows, n_heads, p->layout.d_k, error)) ||
        (s = ca_device_check_view("out", out, p->n_rows, n_heads, p->layout.d_k, error)))
        return s;
    if ((s = ca_device_enter(p->device, &before, error))) return s;
    const int32_t index = p->layer_plan[layer];
    const ca_cuda_pages pages = {
        .k = view_of(p, k), .v = view_of(p, v), .log2_quarters = p->layout.log2_c - CA_CUDA_LOG2_QUARTER};
    s = ca_device_attend(p->device, layer, index, &p->plan.plans.at[index].config, &pages, q, out, lse, stream, error);
    ca_device_leave(p->device, before);
    return s;
}
