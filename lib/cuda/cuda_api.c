/* The public functions of chunkattn_cuda.h: they check the arguments and call the backend. */
#include <string.h>

#include "backend.h"
#include "chunkattn_cuda.h"
#include "device.h"
#include "lib/error.h"
#include "lib/struct_size.h"

static cattn_status require(const void *pointer, const char *name, cattn_error *error) {
    return pointer ? CATTN_OK : ca_fail(error, CATTN_ERR_ARG, -1, "%s is NULL", name);
}

/* ---- Devices ---- */

static cattn_status count_devices(int32_t *n, cattn_error *error) {
    const ca_cuda_backend *backend = ca_cuda_get();
    *n = 0;
    if (!backend)
        return ca_fail(
            error, CATTN_ERR_UNSUPPORTED, -1,
            "CUDA is not linked; link pkg-config's chunkattn-cuda or CMake's chunkattn::cuda, of a libchunkattn that "
            "was built where nvcc is found (-DCATTN_CUDA=ON)");
    const char *failure = backend->count_devices(n);
    if (failure)
        return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1, "CUDA does not work here (%s); check the driver with nvidia-smi",
                       failure);
    if (*n == 0)
        return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1,
                       "there is no CUDA device; check nvidia-smi and the environment variable CUDA_VISIBLE_DEVICES");
    return CATTN_OK;
}

static cattn_status get_device(int32_t device, ca_cuda_device *info, cattn_error *error) {
    int32_t n;
    const cattn_status s = count_devices(&n, error);
    if (s) return s;
    if (device < 0 || device >= n)
        return ca_fail(error, CATTN_ERR_ARG, -1, "CUDA device %d is requested; it must be from 0 to %d", device, n - 1);
    const char *failure = ca_cuda_get()->get_device(device, info);
    if (failure) return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1, "CUDA device %d does not answer (%s)", device, failure);
    return CATTN_OK;
}

cattn_status ca_cuda_check_device(int32_t device, cattn_error *error) {
    ca_cuda_device info;
    const cattn_status s = get_device(device, &info, error);
    if (s) return s;
    return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1,
                   "cuda_device is %d (%s, compute capability %d.%d), but this version has no CUDA kernels yet; leave it at -1",
                   device, info.name, info.major, info.minor);
}

cattn_status cattn_cuda_device_count(int32_t *n, cattn_error *error) {
    const cattn_status s = require(n, "n", error);
    return s ? s : count_devices(n, error);
}

cattn_status cattn_cuda_device_get_info(int32_t device, cattn_cuda_device_info *info, cattn_error *error) {
    cattn_status s = require(info, "info", error);
    if (s) return s;
    if ((s = CA_STRUCT_CHECK(cattn_cuda_device_info, memory_bytes, info, error))) return s;
    ca_cuda_device found;
    if ((s = get_device(device, &found, error))) return s;
    cattn_cuda_device_info now = {
        .major = found.major, .minor = found.minor, .n_processors = found.n_processors, .memory_bytes = found.memory_bytes};
    memcpy(now.name, found.name, sizeof now.name);
    return CA_STRUCT_WRITE(cattn_cuda_device_info, memory_bytes, info, &now, error);
}

/* ---- Steps: no cache is on a device yet ---- */

static cattn_status refuse(const cattn_cache *cache, cattn_error *error) {
    const cattn_status s = require(cache, "cache", error);
    if (s) return s;
    return ca_fail(error, CATTN_ERR_ARG, -1, "the cache is on the CPU; use cattn_step_* of chunkattn.h, or set cuda_device");
}

cattn_status cattn_cuda_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n_entries, int64_t row_limit,
                                   cattn_cuda_stream stream, int32_t *moved, cattn_error *error) {
    (void)entries, (void)n_entries, (void)row_limit, (void)stream, (void)moved;
    return refuse(cache, error);
}

cattn_status cattn_cuda_step_write(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v,
                                   cattn_cuda_stream stream, cattn_error *error) {
    (void)layer, (void)k, (void)v, (void)stream;
    return refuse(cache, error);
}

cattn_status cattn_cuda_step_attend(cattn_cache *cache, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse,
                                    cattn_cuda_stream stream, cattn_error *error) {
    (void)layer, (void)q, (void)out, (void)lse, (void)stream;
    return refuse(cache, error);
}
