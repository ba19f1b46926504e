/*
 * Exactness on an emulated device: see tests/chunkattn/exact/worlds.c. Prefill is by mma or by wgmma, work is deferred by
 * random times, and the emulation finds nothing wrong with any kernel.
 */
#include "tests/chunkattn/exact/worlds.h"

#include "chunkattn/cuda/emu/emu_runtime.h"
#include "chunkattn_cuda.h"

static int stream;
static bool one_fails; /* an allocation of the round */
static uint64_t wgmma_before;

static void require(bool condition, const char *otherwise) {
    if (!condition) plan_fail(otherwise, otherwise);
}

static void begin_round(const plan_round *how) {
    emu_set_wgmma(how->wgmma);
    emu_set_streams(how->deferred ? EMU_DEFERRED : EMU_IMMEDIATE, (uint64_t)how->own);
    emu_fail_allocation((int)how->fail_device - 1);
    one_fails = how->fail_device > 0;
    wgmma_before = emu_get_totals().wgmma;
    stream = 0;
}

static bool allocation_failed(void) {
    const int left = emu_fail_allocation(-1);
    emu_fail_allocation(left);
    return one_fails && left < 0;
}

static void end_round(const plan_round *how, int64_t *counts) {
    const uint64_t wgmma = emu_get_totals().wgmma - wgmma_before;
    counts[COUNT_WGMMA] += (int64_t)wgmma;
    require(how->wgmma || wgmma == 0, "wgmma is used, which the device did not allow");
    require(emu_n_live() == 0, "allocations are left on the device");
    require(emu_errors() == 0, "the emulation has found errors");
}

static void other_stream(void) { stream = !stream; }

static cattn_status begin_step(cattn_cache *cache, cattn_entry *entries, int32_t n, int64_t row_limit, cattn_error *error) {
    return cattn_cuda_step_begin(cache, entries, n, row_limit, emu_stream(stream), NULL, error);
}
static cattn_status write_layer(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v,
                                cattn_error *error) {
    return cattn_cuda_step_write(cache, layer, k, v, emu_stream(stream), error);
}
static cattn_status attend(cattn_cache *cache, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse,
                           cattn_error *error) {
    return cattn_cuda_step_attend(cache, layer, q, out, lse, emu_stream(stream), error);
}
static cattn_status plan_pages(cattn_pages *pages, const cattn_pages_batch *batch, cattn_error *error) {
    return cattn_cuda_pages_plan(pages, batch, NULL, NULL, error);
}
static cattn_status attend_pages(cattn_pages *pages, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                 const cattn_view *q, const cattn_view *out, float *lse, cattn_error *error) {
    return cattn_cuda_pages_attend(pages, layer, k, v, q, out, lse, NULL, error);
}

int main(int argc, char **argv) {
    static const cattn_cuda_config cuda = {.device = 0};
    static const backend device = {.cuda = &cuda,
                                   .budget_bytes = (uint64_t)48 << 20,
                                   .most_rows = 20,
                                   .most_pending = 16,
                                   .aligned = true,
                                   .page_gap = 8,
                                   .alloc = emu_alloc,
                                   .free = emu_free,
                                   .finish = emu_finish,
                                   .open = begin_round,
                                   .close = end_round,
                                   .other_stream = other_stream,
                                   .allocation_failed = allocation_failed,
                                   .begin = begin_step,
                                   .write = write_layer,
                                   .attend = attend,
                                   .plan_pages = plan_pages,
                                   .attend_pages = attend_pages};
    return worlds_main(argc, argv, &device);
}
