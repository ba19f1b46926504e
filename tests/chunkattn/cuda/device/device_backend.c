/* See device_backend.h. */
#include "device_backend.h"

#include "chunkattn_cuda.h"
#include "test_device.h"

static int stream;

static void first_stream(const plan_round *how) {
    (void)how;
    stream = 0;
}

static void other_stream(void) { stream = !stream; }

static cattn_status begin_step(cattn_cache *cache, cattn_entry *entries, int32_t n, int64_t row_limit, cattn_error *error) {
    return cattn_cuda_step_begin(cache, entries, n, row_limit, dev_stream(stream), NULL, error);
}
static cattn_status write_layer(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v,
                                cattn_error *error) {
    return cattn_cuda_step_write(cache, layer, k, v, dev_stream(stream), error);
}
static cattn_status attend(cattn_cache *cache, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse,
                           cattn_error *error) {
    return cattn_cuda_step_attend(cache, layer, q, out, lse, dev_stream(stream), error);
}
static cattn_status plan_pages(cattn_pages *pages, const cattn_pages_batch *batch, cattn_error *error) {
    return cattn_cuda_pages_plan(pages, batch, NULL, NULL, error);
}
static cattn_status attend_pages(cattn_pages *pages, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                 const cattn_view *q, const cattn_view *out, float *lse, cattn_error *error) {
    return cattn_cuda_pages_attend(pages, layer, k, v, q, out, lse, NULL, error);
}

backend device_backend(void) {
    static const cattn_cuda_config cuda = {.device = 0};
    return (backend){.cuda = &cuda,
                     .budget_bytes = (uint64_t)48 << 20,
                     .most_rows = 20,
                     .most_pending = 16,
                     .aligned = true,
                     .page_gap = 8,
                     .alloc = dev_alloc,
                     .free = dev_free,
                     .finish = dev_finish,
                     .open = first_stream,
                     .other_stream = other_stream,
                     .begin = begin_step,
                     .write = write_layer,
                     .attend = attend,
                     .plan_pages = plan_pages,
                     .attend_pages = attend_pages};
}
