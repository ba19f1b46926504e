/* The public functions of chunkattn_cuda.h: they check the arguments and call the backend. */
#include <string.h>

#include "chunkattn/base/error.h"
#include "chunkattn/cuda/device.h"
#include "chunkattn/cuda/runtime.h"
#include "chunkattn_cuda.h"
#include "setup.h"
#include "step.h"
#include "struct_size.h"

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

static cattn_status check_on_device(const cattn_cache *cache, cattn_error *error) {
    const cattn_status s = ca_need(cache, "cache", error);
    if (s || cache->device) return s;
    return ca_fail(error, CATTN_ERR_ARG, -1, "the cache is on the CPU; use cattn_step_* of chunkattn.h, or set cuda_device");
}

cattn_status cattn_cuda_step_begin(cattn_cache *c, cattn_entry *entries, int32_t n_entries, int64_t row_limit,
                                   cattn_cuda_stream stream, uint64_t *graph, cattn_error *error) {
    int32_t before;
    cattn_status s = check_on_device(c, error);
    if (s || (s = ca_step_check_begin(c, entries, n_entries, row_limit, error))) return s;
    if ((s = ca_device_enter(c->device, &before, error))) return s;
    c->device->stream = stream;
    s = ca_step_begin(c, entries, n_entries, row_limit, error);
    ca_device_leave(c->device, before);
    if (s == CATTN_OK && graph) *graph = ca_device_graph(c->device);
    return s;
}

/* A stride over a single element is not checked. */
cattn_status ca_device_check_view(const char *name, const cattn_view *view, int64_t n_rows, int32_t n_heads, int32_t dim,
                                  cattn_error *error) {
    const cattn_status s = ca_check_view(name, view, n_rows, n_heads, dim, error);
    if (s) return s;
    const int64_t size = (int64_t)ca_type_size(view->type);
    const bool aligned = (uintptr_t)view->data % 16 == 0 && (n_rows <= 1 || view->row_stride * size % 16 == 0) &&
                         (n_heads <= 1 || view->head_stride * size % 16 == 0);
    if (aligned) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1,
                   "%s: data, row_stride and head_stride must be multiples of 16 bytes; they are %p, %lld and %lld bytes", name,
                   view->data, (long long)(view->row_stride * size), (long long)(view->head_stride * size));
}

static cattn_status check_view(const cattn_cache *c, const char *name, const cattn_view *view, int32_t n_heads,
                               cattn_error *error) {
    return ca_device_check_view(name, view, (int64_t)c->step.rows.n, n_heads, c->layout.d_k, error);
}

/* Check the layer and two views of n_heads heads. */
static cattn_status check_call(const cattn_cache *c, int32_t layer, int32_t n_heads, const char *name, const cattn_view *view,
                               const char *second_name, const cattn_view *second, cattn_error *error) {
    cattn_status s = check_on_device(c, error);
    if (s || (s = ca_step_check_layer(c, layer, error))) return s;
    if ((s = check_view(c, name, view, n_heads, error))) return s;
    return check_view(c, second_name, second, n_heads, error);
}

cattn_status cattn_cuda_step_write(cattn_cache *c, int32_t layer, const cattn_view *k, const cattn_view *v,
                                   cattn_cuda_stream stream, cattn_error *error) {
    int32_t before;
    cattn_status s = check_call(c, layer, c ? c->layout.n_kv_heads : 0, "k", k, "v", v, error);
    if (s || c->step.rows.n == 0) return s;
    if ((s = ca_device_enter(c->device, &before, error))) return s;
    s = ca_device_write(c->device, layer, k, v, stream, error);
    ca_device_leave(c->device, before);
    return s;
}

cattn_status cattn_cuda_step_attend(cattn_cache *c, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse,
                                    cattn_cuda_stream stream, cattn_error *error) {
    int32_t before;
    cattn_status s = check_call(c, layer, c ? c->layout.n_kv_heads * c->attn.group : 0, "q", q, "out", out, error);
    if (s || c->step.rows.n == 0) return s;
    if ((s = ca_device_enter(c->device, &before, error))) return s;
    const int32_t plan = c->layer_plan[layer];
    s = ca_device_attend(c->device, layer, plan, &c->plans.at[plan].config, NULL, q, out, lse, stream, error);
    ca_device_leave(c->device, before);
    return s;
}
