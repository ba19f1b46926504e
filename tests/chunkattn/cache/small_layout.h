/* The layout of chunks in tests of trees and plans: layers of one KV head, f32. */
#ifndef TESTS_CHUNKATTN_CACHE_SMALL_LAYOUT_H
#define TESTS_CHUNKATTN_CACHE_SMALL_LAYOUT_H

#include <stdlib.h>

#include "chunkattn/cache/chunk_pool.h"

/* d: numbers of K, and of V. To be freed with small_layout_free; it counts against no test's allocator. */
static inline void small_layout(ca_chunk_layout *l, int32_t n_layers, int32_t d, int c) {
    ca_alloc alloc = ca_alloc_default();
    const cattn_config config = {.n_layers = n_layers, .n_heads = 1, .n_kv_heads = 1, .head_dim = d, .kv_type = CATTN_F32};
    if (ca_chunk_layout_init(l, &config, c, &alloc) != CATTN_OK) abort();
}

static inline void small_layout_free(ca_chunk_layout *l) {
    ca_alloc alloc = ca_alloc_default();
    alloc.bytes = SIZE_MAX; /* those of small_layout are among them */
    ca_chunk_layout_free(l, &alloc);
}

/* The tiles of a chunk in a layer. */
static inline char *small_tile(const ca_chunk_pool *pool, const ca_chunk_layout *l, ca_chunk_id chunk, int32_t layer) {
    return ca_chunk_tile(pool, chunk, ca_tile_of(l, layer, 0));
}

#endif
