/* Choosing a backend, and refusing what it lacks: see backends.h. */
#include "backends.h"

#include <stdio.h>

#include "cache_handle.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/pages/handle.h"
#include "chunkattn_cuda.h"

ca_compute ca_compute_for(const cattn_config *config) {
    const int32_t device = config->cuda ? config->cuda->device : -1;
    return (ca_compute){.backend = device < 0 ? &ca_backend_cpu : &ca_backend_cuda, .cuda_device = device};
}

/* ---- Refusals ---- */

typedef char place_text[40];

/* Where a handle's K and V are. */
static const char *place_of(int32_t cuda_device, place_text text) {
    if (cuda_device < 0) return ca_backend_cpu.name;
    snprintf(text, sizeof(place_text), "%s %d", ca_backend_cuda.name, cuda_device);
    return text;
}

cattn_status ca_backend_refuse(int32_t cuda_device, ca_lack lack, cattn_error *error) {
    static const struct {
        const char *requested, *lacks, *instead;
    } refusals[] = {
        [CA_LACKS_TIER] = {"tier_dir is set", "which has no file tier", "leave it NULL"},
        [CA_LACKS_SET_BUDGET] = {"cattn_cache_set_budget is called", "whose memory does not shrink",
                                 "create another cache with that budget_bytes"},
        [CA_LACKS_EXPORT] = {"cattn_seq_export is called", "which neither exports nor imports",
                             "compute the tokens where they are needed"},
        [CA_LACKS_IMPORT] = {"cattn_seq_import is called", "which neither exports nor imports",
                             "join with the tokens, and compute them"},
        [CA_LACKS_READ] = {"cattn_seq_read is called", "whose K and V the host does not read",
                           "keep what cattn_cuda_step_write gets"},
    };
    place_text text;
    return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1, "%s, but K and V are on %s, %s; %s", refusals[lack].requested,
                   place_of(cuda_device, text), refusals[lack].lacks, refusals[lack].instead);
}

/* ---- Calls ---- */

/* handle: what the call's first argument is; own: the calls to use. */
static cattn_status check_call(const ca_compute *compute, const ca_backend *of, const char *handle, const ca_calls *own,
                               const char *call, cattn_error *error) {
    place_text text;
    if (compute->backend == of) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "the %s is on %s; use %s%s of %s, or %s", handle,
                   place_of(compute->cuda_device, text), own->prefix, call, own->header, of->choice);
}

cattn_status ca_check_step_call(const cattn_cache *cache, const ca_backend *of, const char *call, cattn_error *error) {
    const cattn_status s = ca_need(cache, "cache", error);
    return s ? s : check_call(&cache->compute, of, "cache", &cache->compute.backend->steps, call, error);
}

cattn_status ca_check_pages_call(const cattn_pages *pages, const ca_backend *of, const char *call, cattn_error *error) {
    const cattn_status s = ca_need(pages, "pages", error);
    return s ? s : check_call(&pages->compute, of, "handle", &pages->compute.backend->pages, call, error);
}

/* ---- Limits ---- */

cattn_status ca_check_length(const ca_compute *compute, int64_t n, cattn_error *error) {
    place_text text;
    if (n <= compute->backend->max_tokens) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "the sequence would have %lld tokens; on %s it may have at most %lld",
                   (long long)n, place_of(compute->cuda_device, text), (long long)compute->backend->max_tokens);
}
