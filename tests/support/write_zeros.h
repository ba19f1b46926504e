/* Writing K and V where a test needs a step's tokens to be ready, and not what they are. */
#ifndef TESTS_SUPPORT_WRITE_ZEROS_H
#define TESTS_SUPPORT_WRITE_ZEROS_H

#include <stdlib.h>

#include "chunkattn/api/cache_handle.h"

/* Write zeros in all layers of the open step. False if a call fails. */
static inline bool write_zeros(cattn_cache *cache) {
    const ca_layout *l = &cache->layout;
    const size_t dim = (size_t)(l->d_k > l->d_v ? l->d_k : l->d_v), n_rows = cache->step.rows.n;
    float *zeros = calloc((n_rows + (size_t)l->n_kv_heads) * dim, sizeof *zeros); /* rows and heads overlap */
    const cattn_view view = {zeros, CATTN_F32, (int64_t)dim, (int64_t)dim};
    bool ok = zeros != NULL;
    for (int32_t layer = 0; layer < l->n_layers && ok; layer++)
        ok = cattn_step_write(cache, layer, &view, &view, NULL) == CATTN_OK;
    free(zeros);
    return ok;
}

#endif
