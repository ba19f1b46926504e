/*
 * kcheck --device cuda: whether a cache can be created on CUDA device 0. A device's kernels are not checked here but by
 * check_decode and check_prefill (tests/chunkattn/cuda/device_run).
 */
#define CATTN_EXPERIMENTAL
#include <stdio.h>

#include "chunkattn_cuda.h"
#include "kcheck.h"

int check_cuda(void) {
    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = config.n_heads = config.n_kv_heads = 1;
    config.head_dim = 64;
    config.cuda = &(cattn_cuda_config){.device = 0};
    cattn_error error = {0};
    cattn_cache *cache;
    const cattn_status status = cattn_cache_create(&config, &cache, &error);
    cattn_cache_destroy(&cache);
    if (status == CATTN_OK) {
        printf("a cache can be created; check_decode and check_prefill check the kernels\n");
        return 0;
    }
    if (status == CATTN_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", error.message);
        return KCHECK_SKIPPED;
    }
    printf("FAILED cuda: %s: %s\n", cattn_status_name(status), error.message);
    return 1;
}
