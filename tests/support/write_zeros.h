/* Writing K and V where a test needs a step's tokens to be ready, and not what they are. */
#ifndef TESTS_SUPPORT_WRITE_ZEROS_H
#define TESTS_SUPPORT_WRITE_ZEROS_H

#include <stdlib.h>

#include "chunkattn/api/cache_handle.h"

/* Write zeros in all layers of the open step. False if a call fails. */
static inline bool write_zeros(cattn_cache *cache) {
    const ca_chunk_layout *l = &cache->layout;
    bool ok = true;
    for (int32_t layer = 0; layer < l->n_layers && ok; layer++) {
        const ca_shape *s = ca_shape_of(l, layer);
        const int32_t dim = s->tiles.d_k > s->tiles.d_v ? s->tiles.d_k : s->tiles.d_v;
        float *zeros = calloc((cache->step.rows.n + (size_t)s->n_kv_heads) * (size_t)dim, sizeof *zeros); /* heads overlap */
        const cattn_view view = {zeros, CATTN_F32, dim, dim};
        ok = zeros && (!ca_layer_stores(l, layer) || cattn_step_write(cache, layer, &view, &view, NULL) == CATTN_OK);
        free(zeros);
    }
    return ok;
}

#endif
