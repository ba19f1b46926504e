/* kcheck --device cuda: the kernels of the CUDA backend, where there is a device. */
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
    if (cattn_cache_create(&config, &cache, &error) == CATTN_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", error.message);
        return KCHECK_SKIPPED;
    }
    /* The checks of kernels belong here. Without them this is an error, not a pass. */
    printf("FAILED cuda: there are kernels, but no check\n");
    cattn_cache_destroy(&cache);
    return 1;
}
