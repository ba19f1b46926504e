/* A cache in a model's shape: see model_cache.h. */
#include "model_cache.h"

#include "llama/kv_status.h"

cl_status cl_model_cache_create(const cl_model_params *p, ca_pool *pool, const cl_engine_config *config, uint64_t budget_bytes,
                                cattn_cache **cache, cl_error *error) {
    cattn_config cc;
    cattn_config_init(&cc);
    cl_params_to_cache(p, &cc);
    cc.chunk_size = config->chunk_size;
    cc.kv_type = config->kv_type;
    cc.sharing = config->sharing;
    cc.retention = config->retention;
    cc.budget_bytes = budget_bytes;
    cc.n_threads = ca_pool_size(pool);
    cc.level = config->level;
    cc.parallel = (cattn_parallel){.run = ca_pool_run, .ctx = pool};
    cattn_error cause;
    const cattn_status status = cattn_cache_create(&cc, cache, &cause);
    return status == CATTN_OK ? CL_OK : cl_fail(error, cl_kv_status(status), "K/V cache: %s", cause.message);
}
