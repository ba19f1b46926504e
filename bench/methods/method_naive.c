/*
 * Dense attention without a cache of chunks: each sequence has its own contiguous f32 K and V, and each query head's row passes
 * over them twice, for the scores and for the weighted sum of V.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "method.h"

typedef struct naive_head {
    const float *k, *v; /* [n_tokens][dim] of one sequence and KV head */
    int64_t n_tokens;
    int32_t n_rows; /* query heads of the GQA group */
    int32_t dim;
    const float *q; /* [n_rows][dim] contiguous */
    float *out;     /* [n_rows][dim] contiguous */
    float scale;
} naive_head;

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

/* scores: scratch for n_rows * n_tokens elements. */
static void naive_attend(const naive_head *h, float *scores) {
    for (int64_t t = 0; t < h->n_tokens; t++)
        for (int32_t r = 0; r < h->n_rows; r++)
            scores[r * h->n_tokens + t] = h->scale * dot(h->q + r * h->dim, h->k + t * h->dim, h->dim);
    for (int32_t r = 0; r < h->n_rows; r++) softmax(scores + r * h->n_tokens, h->n_tokens);
    memset(h->out, 0, (size_t)h->n_rows * (size_t)h->dim * sizeof(float));
    for (int64_t t = 0; t < h->n_tokens; t++)
        for (int32_t r = 0; r < h->n_rows; r++) {
            const float p = scores[r * h->n_tokens + t], *v = h->v + t * h->dim;
            float *out = h->out + r * h->dim;
            for (int32_t i = 0; i < h->dim; i++) out[i] += p * v[i];
        }
}

/* ---- The method ---- */

typedef struct naive_method {
    method base;
    const shape *s;
    ca_pool *pool;
    size_t n_tokens; /* of a sequence */
    float *kv;       /* [n_layers][batch][K, V][kv_heads][n_tokens][head_dim] */
    float *scores;   /* scratch of each worker */
    size_t n_scores;
    int32_t layer; /* of the step that runs */
    const float *q;
    float *out;
} naive_method;

static float *head_at(const naive_method *m, int32_t layer, int v, int32_t seq, int32_t head) {
    const size_t row = method_row_size(m->s), place = ((size_t)layer * (size_t)m->s->batch + (size_t)seq) * 2 + (size_t)v;
    return m->kv + (place * row + (size_t)head * (size_t)m->s->head_dim) * m->n_tokens;
}

static void attend_head(void *arg, int32_t task, int32_t worker) {
    naive_method *m = arg;
    const shape *s = m->s;
    const int32_t seq = task / s->kv_heads, head = task % s->kv_heads, group = s->heads / s->kv_heads;
    const size_t row = ((size_t)seq * (size_t)s->heads + (size_t)head * (size_t)group) * (size_t)s->head_dim;
    const naive_head h = {
        .k = head_at(m, m->layer, 0, seq, head),
        .v = head_at(m, m->layer, 1, seq, head),
        .n_tokens = (int64_t)m->n_tokens,
        .n_rows = group,
        .dim = s->head_dim,
        .q = m->q + row,
        .out = m->out + row,
        .scale = 1 / sqrtf((float)s->head_dim),
    };
    naive_attend(&h, m->scores + (size_t)worker * m->n_scores);
}

static void attend(method *base, int32_t layer, const float *q, float *out) {
    naive_method *m = (naive_method *)base;
    m->layer = layer;
    m->q = q;
    m->out = out;
    ca_pool_run(m->pool, m->s->batch * m->s->kv_heads, attend_head, m);
}

static void destroy(method *base) {
    naive_method *m = (naive_method *)base;
    free(m->kv);
    free(m->scores);
    free(m);
}

static void fill_sequence(void *arg, int32_t seq, int32_t worker) {
    (void)worker;
    const naive_method *m = arg;
    const size_t dim = (size_t)m->s->head_dim;
    for (int32_t layer = 0; layer < m->base.n_layers; layer++)
        for (int v = 0; v < 2; v++)
            for (int64_t pos = 0; pos <= m->s->prefix; pos++) {
                const float *row = method_kv_row(m->s, layer, seq, pos, v);
                for (int32_t h = 0; h < m->s->kv_heads; h++)
                    memcpy(head_at(m, layer, v, seq, h) + (size_t)pos * dim, row + (size_t)h * dim, dim * sizeof(float));
            }
}

method *method_create_naive(const shape *s, ca_pool *pool) {
    naive_method *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    *m = (naive_method){.s = s, .pool = pool, .n_tokens = (size_t)s->prefix + 1};
    m->base = (method){.name = "naive", .level = "c", .attend = attend, .destroy = destroy};
    m->base.n_layers = method_n_layers(METHOD_NAIVE, s);
    m->n_scores = (size_t)(s->heads / s->kv_heads) * m->n_tokens;
    m->kv = malloc((size_t)(m->base.n_layers * s->batch) * 2 * m->n_tokens * method_row_size(s) * sizeof(float));
    m->scores = malloc((size_t)ca_pool_size(pool) * m->n_scores * sizeof(float));
    if (!m->kv || !m->scores) {
        fprintf(stderr, "naive: no memory for %.0f MiB\n", method_bytes(METHOD_NAIVE, s) / 0x1p20);
        destroy(&m->base);
        return NULL;
    }
    ca_pool_run(pool, s->batch, fill_sequence, m);
    return &m->base;
}
