/* A K/V cache in a model's shape. */
#ifndef ENGINE_MODEL_CACHE_H
#define ENGINE_MODEL_CACHE_H

#include "engine.h"

/* Run by the pool, which is borrowed; types, sharing and level are the config's. */
cl_status cl_model_cache_create(const cl_model_params *p, ca_pool *pool, const cl_engine_config *config, uint64_t budget_bytes,
                                cattn_cache **cache, cl_error *error);

#endif
