/* The public functions of chunkattn_cuda.h. */
#include <string.h>

#include "backends.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/cuda/device.h"
#include "chunkattn/cuda/runtime.h"
#include "chunkattn/pages/handle.h"
#include "chunkattn_cuda.h"
#include "public_struct.h"
#include "step.h"

/* ---- Devices ---- */

static cattn_status count_devices(int32_t *n, cattn_error *error) {
    const ca_cuda_runtime *runtime = ca_cuda_get();
    *n = 0;
    if (!runtime)
        return ca_fail(
            error, CATTN_ERR_UNSUPPORTED, -1,
            "CUDA is not linked; link pkg-config's chunkattn-cuda or CMake's chunkattn::cuda, of a libchunkattn that "
            "was built with -DCATTN_CUDA=ON");
    const char *failure = runtime->count_devices(n);
    if (failure)
        return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1, "CUDA does not work here (%s); check the driver with nvidia-smi",
                       failure);
    if (*n == 0)
        return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1,
                       "there is no CUDA device; check nvidia-smi and the environment variable CUDA_VISIBLE_DEVICES");
    return CATTN_OK;
}

cattn_status ca_cuda_find_device(int32_t device, ca_cuda_device *info, cattn_error *error) {
    int32_t n;
    const cattn_status s = count_devices(&n, error);
    if (s) return s;
    if (device < 0 || device >= n)
        return ca_fail(error, CATTN_ERR_ARG, -1, "CUDA device %d is requested; it must be from 0 to %d", device, n - 1);
    const char *failure = ca_cuda_get()->get_device(device, info);
    if (failure) return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1, "CUDA device %d does not answer (%s)", device, failure);
    return CATTN_OK;
}

cattn_status cattn_cuda_device_count(int32_t *n, cattn_error *error) {
    const cattn_status s = ca_need(n, "n", error);
    return s ? s : count_devices(n, error);
}

cattn_status cattn_cuda_device_get_info(int32_t device, cattn_cuda_device_info *info, cattn_error *error) {
    cattn_status s = ca_need(info, "info", error);
    if (s) return s;
    if ((s = CA_STRUCT_CHECK(cattn_cuda_device_info, memory_bytes, info, error))) return s;
    ca_cuda_device found;
    if ((s = ca_cuda_find_device(device, &found, error))) return s;
    cattn_cuda_device_info now = {
        .major = found.major, .minor = found.minor, .n_processors = found.n_processors, .memory_bytes = found.memory_bytes};
    memcpy(now.name, found.name, sizeof now.name);
    return CA_STRUCT_WRITE(cattn_cuda_device_info, memory_bytes, info, &now, error);
}

/* ---- Steps ---- */

cattn_status cattn_cuda_step_begin(cattn_cache *c, cattn_entry *entries, int32_t n_entries, int64_t row_limit,
                                   cattn_cuda_stream stream, uint64_t *graph, cattn_error *error) {
    CA_CALL(c, "cache", error);
    ca_cuda_caller before;
    cattn_status s = ca_step_check_begin(c, &ca_backend_cuda, entries, n_entries, row_limit, error);
    if (s || (s = ca_device_enter(c->compute.device, &before, error))) return s;
    c->compute.device->stream = stream;
    s = ca_step_begin(c, entries, n_entries, row_limit, error);
    ca_device_leave(c->compute.device, &before);
    if (s == CATTN_OK && graph) *graph = ca_device_graph(c->compute.device);
    return s;
}

cattn_status cattn_cuda_step_write(cattn_cache *c, int32_t layer, const cattn_view *k, const cattn_view *v,
                                   cattn_cuda_stream stream, cattn_error *error) {
    return ca_step_write(c, &ca_backend_cuda, layer, k, v, stream, error);
}

cattn_status cattn_cuda_step_attend(cattn_cache *c, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse,
                                    cattn_cuda_stream stream, cattn_error *error) {
    return ca_step_attend(c, &ca_backend_cuda, layer, q, out, lse, stream, error);
}

/* ---- Foreign pages ---- */

/* Reserve the device's memory for the plan. If there is too little, free what earlier, larger batches left, and try again. */
static cattn_status reserve(cattn_pages *p, cattn_error *error) {
    const cattn_status s = ca_device_reserve(p->compute.device, p->plan.plans.at, 0, 0, error);
    if (s != CATTN_ERR_NOMEM) return s;
    ca_device_release(p->compute.device);
    return ca_device_reserve(p->compute.device, p->plan.plans.at, 0, 0, error);
}

/* Plan the sequences that were read. If the device cannot get the new plan, there is no plan afterwards. */
static cattn_status update_plan(cattn_pages *p, int64_t n_rows, cattn_error *error) {
    static const ca_device_rows no_rows;
    static const ca_kv_commands no_copies;
    cattn_status s = ca_page_plan_update(&p->plan, NULL, p->seqs.at, (int32_t)p->seqs.n, error);
    if (s) return s;
    p->n_rows = n_rows;
    if ((s = reserve(p, error)) == CATTN_OK) s = ca_device_begin(p->compute.device, &no_rows, &no_copies, &no_copies, error);
    if (s == CATTN_OK) return CATTN_OK;
    p->plan.exists = false;
    ca_device_release(p->compute.device);
    return s;
}

cattn_status cattn_cuda_pages_plan(cattn_pages *p, const cattn_pages_batch *batch, cattn_cuda_stream stream, uint64_t *graph,
                                   cattn_error *error) {
    CA_CALL(p, "pages", error);
    int64_t n_rows;
    ca_cuda_caller before;
    cattn_status s = ca_pages_read_batch(p, &ca_backend_cuda, batch, &n_rows, error);
    if (s || (s = ca_device_enter(p->compute.device, &before, error))) return s;
    p->compute.device->stream = stream;
    s = update_plan(p, n_rows, error);
    ca_device_leave(p->compute.device, &before);
    if (s == CATTN_OK && graph) *graph = ca_device_graph(p->compute.device);
    return s;
}

cattn_status cattn_cuda_pages_attend(cattn_pages *p, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                     const cattn_view *q, const cattn_view *out, float *lse, cattn_cuda_stream stream,
                                     cattn_error *error) {
    return ca_pages_attend(p, &ca_backend_cuda, layer, k, v, q, out, lse, stream, error);
}
