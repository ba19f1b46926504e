/* Pools states: see embedding.h. */
#include "embedding.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

cl_embedding *cl_embedding_create(int32_t n) {
    cl_embedding *e = calloc(1, sizeof *e);
    if (e) e->n = n;
    return e;
}

bool cl_embedding_start(cl_embedding *e) {
    if (!e->value) e->value = calloc((size_t)e->n, sizeof *e->value);
    if (!e->sum) e->sum = calloc((size_t)e->n, sizeof *e->sum);
    return e->value && e->sum;
}

void cl_embedding_free(cl_embedding **address) {
    cl_embedding *e = address ? *address : NULL;
    if (!e) return;
    *address = NULL;
    free(e->value);
    free(e->sum);
    free(e);
}

void cl_embedding_set(cl_embedding *e, const float *state) { memcpy(e->value, state, (size_t)e->n * sizeof *state); }

void cl_embedding_add(cl_embedding *e, int64_t position, const float *state) {
    assert(position <= e->n_added);
    if (position < e->n_added) return;
    e->n_added++;
    for (int32_t i = 0; i < e->n; i++) e->sum[i] += (double)state[i];
}

const float *cl_embedding_value(cl_embedding *e) {
    for (int32_t i = 0; e->n_added > 0 && i < e->n; i++) e->value[i] = (float)(e->sum[i] / (double)e->n_added);
    return e->value;
}
