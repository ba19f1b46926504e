/* Dense attention over each sequence's own contiguous f32 K and V. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "method.h"
#include "naive.h"

typedef struct naive_method {
    method base;
    const shape *s;
    ca_pool *pool;
    float *kv;     /* [n_layers][2][batch][kv_heads][prefix + 1][head_dim] */
    float *scores; /* scratch of each worker */
    size_t n_scores;
    int32_t layer; /* of the step that runs */
    const float *q;
    float *out;
} naive_method;

static size_t row_size(const shape *s) { return (size_t)s->kv_heads * (size_t)s->head_dim; }
static size_t layer_size(const shape *s) { return 2 * (size_t)s->batch * ((size_t)s->prefix + 1) * row_size(s); }

static int32_t n_layers(const shape *s) { return 1 + (int32_t)(s->cold_bytes / (layer_size(s) * sizeof(float))); }

static float *head_at(const naive_method *m, int32_t layer, int v, int32_t seq, int32_t head) {
    const shape *s = m->s;
    const size_t index = ((size_t)v * (size_t)s->batch + (size_t)seq) * (size_t)s->kv_heads + (size_t)head;
    return m->kv + (size_t)layer * layer_size(s) + index * ((size_t)s->prefix + 1) * (size_t)s->head_dim;
}

static void attend_head(void *arg, int32_t task, int32_t worker) {
    naive_method *m = arg;
    const shape *s = m->s;
    const int32_t seq = task / s->kv_heads, head = task % s->kv_heads, group = s->heads / s->kv_heads;
    const size_t row = ((size_t)seq * (size_t)s->heads + (size_t)head * (size_t)group) * (size_t)s->head_dim;
    const naive_head h = {
        .k = head_at(m, m->layer, 0, seq, head),
        .v = head_at(m, m->layer, 1, seq, head),
        .n_tokens = s->prefix + 1,
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

double method_bytes_naive(const shape *s) { return (double)n_layers(s) * (double)layer_size(s) * sizeof(float); }

method *method_create_naive(const shape *s, ca_pool *pool) {
    naive_method *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    *m = (naive_method){.s = s, .pool = pool, .n_scores = (size_t)(s->heads / s->kv_heads) * ((size_t)s->prefix + 1)};
    m->base = (method){.name = "naive", .level = "c", .n_layers = n_layers(s), .attend = attend, .destroy = destroy};
    m->base.kv_bytes = (double)layer_size(s) * sizeof(float);
    m->kv = malloc((size_t)m->base.n_layers * layer_size(s) * sizeof(float));
    m->scores = malloc((size_t)ca_pool_size(pool) * m->n_scores * sizeof(float));
    if (!m->kv || !m->scores) {
        fprintf(stderr, "naive: no memory for %.0f MiB\n", method_bytes_naive(s) / 0x1p20);
        destroy(&m->base);
        return NULL;
    }
    ca_pool_run(pool, s->batch, fill_sequence, m);
    return &m->base;
}
