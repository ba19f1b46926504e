/* Between ChunkLlama and libchunkattn's cache: the fields of its configuration that a model determines, and its errors. */
#ifndef CHUNKLLAMA_MODEL_KV_CACHE_H
#define CHUNKLLAMA_MODEL_KV_CACHE_H

#include "chunkattn.h"
#include "chunkllama/common/error.h"
#include "params.h"

/* Values of layers [n] if they differ, otherwise NULL. */
static inline const int32_t *cl_if_differing(const int32_t *of_layers, int32_t n) {
    for (int32_t i = 1; i < n; i++)
        if (of_layers[i] != of_layers[0]) return of_layers;
    return NULL;
}

/*
 * Set the fields of *config that the model determines: the shape of K and V and the options of its attention. The other fields
 * keep their values. Arrays are borrowed from *p.
 */
static inline void cl_params_to_cache(const cl_model_params *p, cattn_config *config) {
    config->n_layers = p->n_layers;
    config->n_heads = p->n_heads;
    config->n_kv_heads = p->n_kv_heads[0];
    config->head_dim = p->head_dim[0];
    config->layer_n_kv_heads = cl_if_differing(p->n_kv_heads, p->n_layers);
    config->layer_head_dim = cl_if_differing(p->head_dim, p->n_layers);
    config->kv_source = p->kv_source;
    config->scale = p->score_scale;
    config->softcap = p->score_softcap;
    config->windows = p->windows;
    config->sink_logits = p->sink_logits;
}

/* The status under which ChunkLlama reports a status of the cache. */
static inline cl_status cl_kv_status(cattn_status status) {
    switch (status) {
    case CATTN_OK: return CL_OK;
    case CATTN_ERR_NOMEM: return CL_ERR_NOMEM;
    case CATTN_ERR_BUDGET: return CL_ERR_LIMIT;
    case CATTN_ERR_UNSUPPORTED: return CL_ERR_UNSUPPORTED;
    case CATTN_ERR_ARG:
    case CATTN_ERR_STATE:
    case CATTN_ERR_DATA:
    case CATTN_ERR_WRITE: break; /* ChunkLlama neither exports nor imports */
    }
    return CL_ERR_ARG;
}

#endif
