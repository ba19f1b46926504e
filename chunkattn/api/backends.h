/*
 * The backends (chunkattn/attn/backend.h), and what a call is answered where the handle's backend has no part in it: no other
 * code knows what a backend lacks, or which calls are another one's.
 */
#ifndef CHUNKATTN_API_BACKENDS_H
#define CHUNKATTN_API_BACKENDS_H

#include "chunkattn/attn/backend.h"
#include "chunkattn_pages.h"

extern const ca_backend ca_backend_cpu, ca_backend_cuda;

/* A compute with the backend that the config chooses, for its create_cache or create_pages. */
ca_compute ca_compute_for(const cattn_config *config);

/* What a backend may lack. */
typedef enum ca_lack { CA_LACKS_TIER, CA_LACKS_SET_BUDGET, CA_LACKS_EXPORT, CA_LACKS_IMPORT, CA_LACKS_READ } ca_lack;

/* CATTN_ERR_UNSUPPORTED: what was requested, that the backend lacks it, and what to do. */
cattn_status ca_backend_refuse(int32_t cuda_device, ca_lack lack, cattn_error *error);

/*
 * Whether a step's call, or one for foreign pages, is one of the handle's backend; the handle may be NULL. CATTN_ERR_ARG names
 * the call to use. `of`: the backend of the call; `call`: the end of its name, which is the same for all backends.
 */
cattn_status ca_check_step_call(const cattn_cache *cache, const ca_backend *of, const char *call, cattn_error *error);
cattn_status ca_check_pages_call(const cattn_pages *pages, const ca_backend *of, const char *call, cattn_error *error);

/* Whether a sequence may have n tokens. */
cattn_status ca_check_length(const ca_compute *compute, int64_t n, cattn_error *error);

#endif
