/* Creating a cache, which must succeed, and reading its statistics. Included after cmocka. */
#ifndef TESTS_CHUNKATTN_API_CACHE_H
#define TESTS_CHUNKATTN_API_CACHE_H

#include "chunkattn.h"

static inline cattn_cache *create(const cattn_config *config) {
    cattn_cache *cache = NULL;
    cattn_error error = {0};
    if (cattn_cache_create(config, &cache, &error)) fail_msg("%s", error.message);
    return cache;
}

static inline cattn_stats stats_of(const cattn_cache *cache) {
    cattn_stats s = {.struct_size = sizeof s};
    assert_int_equal(cattn_cache_stats(cache, &s), CATTN_OK);
    return s;
}

#endif
