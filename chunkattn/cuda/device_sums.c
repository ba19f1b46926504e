/*
 * Whether a device's instructions give the same bits for the same sums of products, which exactness relies on: a row is a row
 * of A in one kernel and a column of B in another, at any place, and prefill may use wgmma. No manual promises it, so it is
 * measured (products.cuh).
 */
#include <pthread.h>
#include <string.h>

#include "chunkattn/base/fail.h"
#include "device.h"
#include "products.h"

enum { LEAST_TILES = 4 }; /* one of each content */

/* What was found, for each kind of device in this process. */
typedef struct kind {
    ca_cuda_device of;
    uint32_t by_mma, by_wgmma; /* sums that differ */
} kind;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static kind kinds[8];
static int32_t n_kinds;

static const kind *find_kind(const ca_cuda_device *info) {
    for (int32_t i = 0; i < n_kinds; i++) {
        const ca_cuda_device *of = &kinds[i].of;
        if (of->major == info->major && of->minor == info->minor && of->wgmma == info->wgmma && !strcmp(of->name, info->name))
            return &kinds[i];
    }
    return NULL;
}

/* Device memory of a comparison. */
typedef struct room {
    ca_cuda_products *found;
    float *sums;
    ca_cuda_stream stream;
} room;

static const char *run(const ca_cuda_runtime *r, const room *in, int32_t kernel, int32_t n_blocks, ca_cuda_products *found) {
    const ca_cuda_products_args args = {in->found, in->sums, n_blocks < LEAST_TILES ? LEAST_TILES : n_blocks, -1};
    const char *failure = r->prepare(&r->kernels[kernel]);
    if (!failure) failure = r->zero(in->found, sizeof *in->found, in->stream);
    if (!failure) failure = r->launch(&r->kernels[kernel], n_blocks, &args, in->stream);
    if (!failure) failure = r->copy_back(found, in->found, sizeof *found, in->stream);
    const char *second = r->wait(in->stream);
    return failure ? failure : second;
}

/* Compare the sums of both types, and count those that differ. */
static const char *compare(const ca_cuda_runtime *r, const room *in, kind *k) {
    static const int32_t by_mma[] = {CA_CUDA_products_bf16, CA_CUDA_products_f16};
    static const int32_t by_both[] = {CA_CUDA_products_wgmma_bf16, CA_CUDA_products_wgmma_f16};
    for (int type = 0; type < 2; type++) {
        ca_cuda_products found;
        const char *failure = run(r, in, (k->of.wgmma ? by_both : by_mma)[type], k->of.n_processors, &found);
        if (failure) return failure;
        for (int way = CA_PRODUCT_ROWS_MOVED; way < CA_PRODUCT_WAYS; way++)
            *(way < CA_PRODUCT_BY_WGMMA ? &k->by_mma : &k->by_wgmma) += found.n_differ[way];
    }
    return NULL;
}

static cattn_status reported(const kind *k, const char *failure, cattn_error *error) {
    return ca_fail(error, CATTN_ERR_STATE, -1, "%s reports: %s", k->of.name, failure);
}

static cattn_status measure(const ca_cuda_runtime *r, kind *k, cattn_error *error) {
    const size_t bytes = (size_t)k->of.n_processors * CA_PRODUCT_SUMS * sizeof(float);
    room in = {0};
    const char *failure = r->create_stream(&in.stream);
    if (failure) return reported(k, failure, error);
    failure = r->allocate((void **)&in.found, sizeof *in.found);
    if (!failure) failure = r->allocate((void **)&in.sums, bytes);
    cattn_status s = CATTN_OK;
    if (failure)
        s = ca_fail(error, CATTN_ERR_NOMEM, -1, "the device gives no %zu bytes to compare sums in (%s)", bytes, failure);
    else if ((failure = compare(r, &in, k)))
        s = reported(k, failure, error);
    r->free_memory(in.found);
    r->free_memory(in.sums);
    r->destroy_stream(in.stream);
    return s;
}

/* Find a kind of device, or measure it and keep it as long as there is a place. */
static cattn_status learn(const ca_cuda_runtime *r, int32_t device, const ca_cuda_device *info, kind *k, cattn_error *error) {
    const kind *known = find_kind(info);
    if (known) {
        *k = *known;
        return CATTN_OK;
    }
    *k = (kind){.of = *info};
    ca_cuda_caller before;
    const char *failure = r->enter(device, &before);
    const cattn_status s = failure ? reported(k, failure, error) : measure(r, k, error);
    r->leave(&before);
    if (s == CATTN_OK && n_kinds < (int32_t)(sizeof kinds / sizeof *kinds)) kinds[n_kinds++] = *k;
    return s;
}

cattn_status ca_device_check_sums(const ca_cuda_runtime *r, int32_t device, ca_cuda_device *info, cattn_error *error) {
    if (info->known_sums) return CATTN_OK;
    kind k;
    pthread_mutex_lock(&mutex);
    const cattn_status s = learn(r, device, info, &k, error);
    pthread_mutex_unlock(&mutex);
    if (s) return s;
    if (k.by_mma > 0)
        return ca_fail(
            error, CATTN_ERR_UNSUPPORTED, -1,
            "on %s, %u sums of products depend on where a row stands in a product, so results would depend on the rest "
            "of the batch; use another device",
            info->name, k.by_mma);
    info->wgmma &= k.by_wgmma == 0;
    return CATTN_OK;
}
