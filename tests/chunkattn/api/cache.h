/*
 * Small configurations of caches, creating a cache, which must succeed, and reading its statistics and a sequence's tokens.
 * Included after cmocka.
 */
#ifndef TESTS_CHUNKATTN_API_CACHE_H
#define TESTS_CHUNKATTN_API_CACHE_H

#include "chunkattn/api/cache_handle.h"
#include "chunkattn_inspect.h"
#include "tests/support/write_zeros.h"

enum { CHUNK = 16 };

/* Chunks of CHUNK tokens, and one thread. */
static inline cattn_config small_config(int32_t n_layers, int32_t n_heads, int32_t n_kv_heads, int32_t head_dim,
                                        uint64_t budget_bytes) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = n_layers;
    c.n_heads = n_heads;
    c.n_kv_heads = n_kv_heads;
    c.head_dim = head_dim;
    c.chunk_size = CHUNK;
    c.n_threads = 1;
    c.budget_bytes = budget_bytes;
    return c;
}

static inline cattn_cache *create(const cattn_config *config) {
    cattn_cache *cache = NULL;
    cattn_error error = {0};
    if (cattn_cache_create(config, &cache, &error)) fail_msg("%s", error.message);
    return cache;
}

/* End the open step, whose rows are zeros. */
static inline void end_step(cattn_cache *cache) {
    assert_true(write_zeros(cache));
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
}

static inline cattn_stats stats_of(const cattn_cache *cache) {
    cattn_stats s = {.struct_size = sizeof s};
    assert_int_equal(cattn_cache_stats(cache, &s), CATTN_OK);
    return s;
}

static inline void tokens_of(const cattn_cache *cache, cattn_seq seq, int64_t first, int64_t n, int32_t *tokens) {
    ca_seq_tokens(ca_tree_find(cache->tree, seq), first, n, tokens);
}

#endif
