/* What methods with K/V of their own for each sequence have in common. */
#define _GNU_SOURCE
#include "method_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static char *head_at(const private_method *m, int32_t layer, int32_t seq, int32_t head) {
    const int64_t place = ((int64_t)layer * m->s->batch + seq) * m->s->kv_heads + head;
    return m->kv + (size_t)place * m->head_bytes;
}

static void attend_task(void *arg, int32_t task, int32_t worker) {
    const private_method *m = arg;
    const shape *s = m->s;
    const int32_t seq = task / s->kv_heads, head = task % s->kv_heads, group = s->heads / s->kv_heads;
    const size_t row = ((size_t)seq * (size_t)s->heads + (size_t)head * (size_t)group) * (size_t)s->head_dim;
    m->attend_head(m, head_at(m, m->layer, seq, head), m->q + row, m->out + row,
                   m->scratch + (size_t)worker * m->scratch_bytes);
}

static void attend(method *base, int32_t layer, const float *q, float *out) {
    private_method *m = (private_method *)base;
    m->layer = layer;
    m->q = q;
    m->out = out;
    ca_pool_run(m->pool, m->s->batch * m->s->kv_heads, attend_task, m);
}

static void destroy(method *base) {
    private_method *m = (private_method *)base;
    free(m->kv);
    free(m->scratch);
    free(m);
}

static void fill_sequence(void *arg, int32_t seq, int32_t worker) {
    (void)worker;
    const private_method *m = arg;
    const size_t dim = (size_t)m->s->head_dim;
    for (int32_t layer = 0; layer < m->base.n_layers; layer++)
        for (int64_t position = 0; position <= m->s->prefix; position++) {
            const float *k = method_kv_row(m->s, layer, seq, position, 0), *v = method_kv_row(m->s, layer, seq, position, 1);
            for (int32_t h = 0; h < m->s->kv_heads; h++)
                m->write(m, head_at(m, layer, seq, h), position, k + (size_t)h * dim, v + (size_t)h * dim);
        }
}

static void *aligned(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    void *data = aligned_alloc(huge, (bytes + huge - 1) / huge * huge);
    if (data) madvise(data, bytes, MADV_HUGEPAGE); /* as the library's chunks */
    return data;
}

method *private_method_start(private_method *m, method_id id) {
    const shape *s = m->s;
    m->base.name = method_name(id);
    m->base.n_layers = method_n_layers(id, s);
    m->base.attend = attend;
    m->base.destroy = destroy;
    m->kv = aligned((size_t)(m->base.n_layers * s->batch) * (size_t)s->kv_heads * m->head_bytes);
    m->scratch = aligned((size_t)ca_pool_size(m->pool) * m->scratch_bytes);
    if (!m->kv || !m->scratch) {
        fprintf(stderr, "%s: no memory for %.0f MiB\n", m->base.name, method_bytes(id, s) / 0x1p20);
        destroy(&m->base);
        return NULL;
    }
    ca_pool_run(m->pool, s->batch, fill_sequence, m);
    return &m->base;
}
