/*
 * Dense attention without a cache of chunks: each sequence has its own contiguous f32 K and V, and each query head's row passes
 * over them twice, for the scores and for the weighted sum of V.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "method_private.h"

/* The number of partial sums: the compiler may not reorder additions, so it vectorises only separate sums. */
enum { LANES = 16 };

static float dot(const float *a, const float *b, int32_t n) {
    float sums[LANES] = {0};
    for (int32_t i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) sums[l] += a[i + l] * b[i + l];
    float sum = 0;
    for (int l = 0; l < LANES; l++) sum += sums[l];
    return sum;
}

static void softmax(float *x, int64_t n) {
    float max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++) sum += x[i] = expf(x[i] - max);
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
}

/* K/V of a head: K [n_tokens][dim], then V. scratch: scores [group][n_tokens]. */
static void attend_head(const private_method *m, const char *kv, const float *q, float *out, char *scratch) {
    const shape *s = m->s;
    const int64_t n_tokens = s->prefix + 1;
    const int32_t n_rows = s->heads / s->kv_heads, dim = s->head_dim;
    const float *k = (const float *)kv, *v = k + n_tokens * dim, scale = 1 / sqrtf((float)dim);
    float *scores = (float *)scratch;
    for (int64_t t = 0; t < n_tokens; t++)
        for (int32_t r = 0; r < n_rows; r++) scores[r * n_tokens + t] = scale * dot(q + r * dim, k + t * dim, dim);
    for (int32_t r = 0; r < n_rows; r++) softmax(scores + r * n_tokens, n_tokens);
    memset(out, 0, (size_t)n_rows * (size_t)dim * sizeof(float));
    for (int64_t t = 0; t < n_tokens; t++)
        for (int32_t r = 0; r < n_rows; r++) {
            const float weight = scores[r * n_tokens + t];
            for (int32_t i = 0; i < dim; i++) out[r * dim + i] += weight * v[t * dim + i];
        }
}

static void write_token(const private_method *m, char *kv, int64_t position, const float *k, const float *v) {
    const int64_t dim = m->s->head_dim;
    float *to = (float *)kv + position * dim;
    memcpy(to, k, (size_t)dim * sizeof(float));
    memcpy(to + (m->s->prefix + 1) * dim, v, (size_t)dim * sizeof(float));
}

method *method_create_naive(const shape *s, ca_pool *pool) {
    const size_t n_tokens = (size_t)s->prefix + 1;
    private_method *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    *m = (private_method){.base.level = "c",
                          .s = s,
                          .pool = pool,
                          .head_bytes = 2 * n_tokens * (size_t)s->head_dim * sizeof(float),
                          .scratch_bytes = (size_t)(s->heads / s->kv_heads) * n_tokens * sizeof(float),
                          .attend_head = attend_head,
                          .write = write_token};
    return private_method_start(m, METHOD_NAIVE);
}
