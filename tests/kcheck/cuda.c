/* kcheck --device cuda, which does not compare CUDA kernels yet: scripts/device_first_run.sh does (docs/cuda.md). */
#define CATTN_EXPERIMENTAL
#include <stdio.h>

#include "chunkattn_cuda.h"
#include "kcheck.h"

int check_cuda(void) {
    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = config.n_heads = config.n_kv_heads = 1;
    config.head_dim = 64;
    config.cuda_device = 0;
    cattn_error error = {0};
    cattn_cache *cache;
    const cattn_status status = cattn_cache_create(&config, &cache, &error);
    if (status == CATTN_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", error.message);
        return KCHECK_SKIPPED;
    }
    /* No check is an error, not a pass. */
    printf("FAILED cuda: %s\n",
           status ? error.message : "kcheck does not compare CUDA kernels; run scripts/device_first_run.sh");
    cattn_cache_destroy(&cache);
    return 1;
}
