/* What went wrong in the K/V cache, in ChunkLlama's terms. */
#ifndef LLAMA_KV_STATUS_H
#define LLAMA_KV_STATUS_H

#include "chunkattn.h"
#include "llama/common/error.h"

static inline cl_status cl_kv_status(cattn_status status) {
    switch (status) {
    case CATTN_OK: return CL_OK;
    case CATTN_ERR_NOMEM: return CL_ERR_NOMEM;
    case CATTN_ERR_BUDGET: return CL_ERR_LIMIT;
    case CATTN_ERR_UNSUPPORTED: return CL_ERR_UNSUPPORTED;
    case CATTN_ERR_ARG:
    case CATTN_ERR_STATE: break;
    }
    return CL_ERR_ARG;
}

#endif
