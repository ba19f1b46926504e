/*
 * Tiled and fused attention over each sequence's own contiguous K and V, as FlashAttention does it, with the library's kernels.
 *
 * The tiles of a sequence and KV head are stored one after the other, so a pass over them reads one stream. Segments and merges
 * are those of the library, so the results have the same bits.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "chunkattn/base/fp.h"
#include "library_internals.h"
#include "method.h"

enum { MAX_SEGMENTS = 1024, MAX_TILE_ROWS = 96 /* of any kernel */ };

/* The memory of one thread; each part is 64-byte aligned. */
typedef struct flash_scratch {
    void *queries, *states, *kernel;
} flash_scratch;

typedef struct flash_method {
    method base;
    const shape *s;
    ca_pool *pool;
    const ca_kernel *kernel;
    ca_layout layout; /* of one head */
    int64_t n_chunks; /* of a sequence */
    char *kv;         /* [n_layers][batch][kv_heads][n_chunks] chunks */
    size_t scratch_bytes, states_bytes, query_bytes;
    char *scratch; /* for each worker: queries, states, the kernel's scratch */
    int32_t layer; /* of the step that runs */
    const float *q;
    float *out;
} flash_method;

static char *head_at(const flash_method *m, int32_t layer, int32_t seq, int32_t head) {
    const int64_t place = ((int64_t)layer * m->s->batch + seq) * m->s->kv_heads + head;
    return m->kv + (size_t)(place * m->n_chunks) * m->layout.chunk_bytes;
}

static flash_scratch scratch_of(const flash_method *m, int32_t worker) {
    char *at = m->scratch + (size_t)worker * m->scratch_bytes;
    return (flash_scratch){at, at + m->query_bytes, at + m->query_bytes + m->states_bytes};
}

/* Pass the GQA group's rows over chunks [from, to) of a head, into fresh states. */
static void attend_segment(const flash_method *m, const char *tiles, int64_t from, int64_t to, int64_t length, void *state,
                           const flash_scratch *scratch) {
    const ca_layout *l = &m->layout;
    ca_tile tile = {.d_k = l->d_k,
                    .d_v = l->d_v,
                    .c = l->c,
                    .n_rows = m->s->heads / m->s->kv_heads,
                    .q = scratch->queries,
                    .state = state,
                    .scratch = scratch->kernel};
    m->kernel->init(state, tile.n_rows, l->d_v);
    for (int64_t i = from; i < to; i++) {
        const char *k = tiles + (size_t)i * l->chunk_bytes, *next = k + l->chunk_bytes;
        const int64_t left = length - i * l->c;
        int32_t n_seen[MAX_TILE_ROWS];
        for (int32_t r = 0; r < tile.n_rows; r++) n_seen[r] = (int32_t)(left < l->c ? left : l->c);
        tile.n_seen = left < l->c ? n_seen : NULL;
        tile.k = k;
        tile.v = k + l->k_bytes;
        tile.next_k = left > l->c ? next : NULL;
        tile.next_v = left > l->c ? next + l->k_bytes : NULL;
        m->kernel->attend(&tile);
    }
}

/* Computed as the library does, so that the bits are the same. */
static float scale_log2(const shape *s) {
    const double log2_e = 1.4426950408889634;
    return (float)((double)(float)(1 / sqrt((double)s->head_dim)) * log2_e);
}

static void attend_head(void *arg, int32_t task, int32_t worker) {
    const flash_method *m = arg;
    const shape *s = m->s;
    const ca_layout *l = &m->layout;
    const int32_t seq = task / s->kv_heads, head = task % s->kv_heads, group = s->heads / s->kv_heads;
    const flash_scratch scratch = scratch_of(m, worker);
    const size_t row = (size_t)seq * (size_t)s->heads + (size_t)head * (size_t)group, dim = (size_t)s->head_dim;
    const int64_t length = s->prefix + 1, n_chunks = m->n_chunks, per_segment = CA_SEGMENT / l->c;
    const char *tiles = head_at(m, m->layer, seq, head);
    const size_t segment_bytes = (size_t)group * m->kernel->state_bytes(l->d_v);
    const unsigned fp = ca_fp_enter();
    m->kernel->pack_query(m->q + row * dim, s->head_dim, group, s->head_dim, scale_log2(s), scratch.queries);
    int32_t n_segments = 0;
    for (int64_t from = 0; from < n_chunks; from += per_segment, n_segments++) {
        const int64_t to = from + per_segment < n_chunks ? from + per_segment : n_chunks;
        attend_segment(m, tiles, from, to, length, (char *)scratch.states + (size_t)n_segments * segment_bytes, &scratch);
    }
    for (int32_t g = 0; g < group; g++) {
        const void *states[MAX_SEGMENTS];
        for (int32_t i = 0; i < n_segments; i++)
            states[i] = (char *)scratch.states + (size_t)i * segment_bytes + (size_t)g * m->kernel->state_bytes(l->d_v);
        m->kernel->merge(states, n_segments, l->d_v, -INFINITY, m->out + (row + (size_t)g) * dim, NULL);
    }
    if (m->kernel->leave) m->kernel->leave();
    ca_fp_leave(fp);
}

static void attend(method *base, int32_t layer, const float *q, float *out) {
    flash_method *m = (flash_method *)base;
    m->layer = layer;
    m->q = q;
    m->out = out;
    ca_pool_run(m->pool, m->s->batch * m->s->kv_heads, attend_head, m);
}

static void destroy(method *base) {
    flash_method *m = (flash_method *)base;
    free(m->kv);
    free(m->scratch);
    free(m);
}

static void fill_sequence(void *arg, int32_t seq, int32_t worker) {
    (void)worker;
    const flash_method *m = arg;
    const ca_layout *l = &m->layout;
    const size_t dim = (size_t)m->s->head_dim;
    for (int32_t layer = 0; layer < m->base.n_layers; layer++)
        for (int64_t pos = 0; pos <= m->s->prefix; pos++) {
            const float *k = method_kv_row(m->s, layer, seq, pos, 0), *v = method_kv_row(m->s, layer, seq, pos, 1);
            for (int32_t h = 0; h < m->s->kv_heads; h++) {
                char *tile = head_at(m, layer, seq, h) + (size_t)(pos / l->c) * l->chunk_bytes;
                ca_layout_write(l, tile, tile + l->k_bytes, 0, (int)(pos % l->c), k + (size_t)h * dim, v + (size_t)h * dim);
            }
        }
}

static void *aligned(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    void *data = aligned_alloc(huge, (bytes + huge - 1) / huge * huge);
    if (data) madvise(data, bytes, MADV_HUGEPAGE); /* as the library's chunks */
    return data;
}

static bool allocate(flash_method *m) {
    const shape *s = m->s;
    const size_t group = (size_t)(s->heads / s->kv_heads), n_segments = (size_t)(s->prefix / CA_SEGMENT) + 1;
    const size_t n_chunks = (size_t)(m->base.n_layers * s->batch) * (size_t)(s->kv_heads * m->n_chunks);
    if (n_segments > MAX_SEGMENTS) return false;
    m->query_bytes = group * m->kernel->query_bytes(s->head_dim);
    m->states_bytes = n_segments * group * m->kernel->state_bytes(s->head_dim);
    m->scratch_bytes = m->query_bytes + m->states_bytes + m->kernel->scratch_bytes(s->head_dim, s->head_dim, s->chunk);
    m->kv = aligned(n_chunks * m->layout.chunk_bytes);
    m->scratch = aligned((size_t)ca_pool_size(m->pool) * m->scratch_bytes);
    return m->kv && m->scratch;
}

/* The level that the library chooses for the shape, which also depends on the environment. NULL with a message on stderr. */
static const char *level_of(const shape *s) {
    cattn_config c;
    cattn_cache *cache;
    cattn_error error;
    cattn_config_init(&c);
    c.n_layers = c.n_heads = c.n_kv_heads = c.n_threads = 1;
    c.head_dim = s->head_dim;
    c.kv_type = s->kv_type;
    c.level = s->level;
    if (cattn_cache_create(&c, &cache, &error) != CATTN_OK) {
        fprintf(stderr, "flash: %s\n", error.message);
        return NULL;
    }
    const char *level = cattn_cache_level(cache); /* outlives the cache */
    cattn_cache_destroy(&cache);
    return level;
}

method *method_create_flash(const shape *s, ca_pool *pool) {
    const char *level = level_of(s);
    const ca_kernel *kernel = level ? ca_kernel_find(ca_level_find(level), s->kv_type) : NULL;
    flash_method *m = kernel ? calloc(1, sizeof *m) : NULL;
    if (!m) return NULL;
    *m = (flash_method){.s = s, .pool = pool, .kernel = kernel, .n_chunks = s->prefix / s->chunk + 1};
    m->base = (method){.name = "flash", .level = kernel->level, .attend = attend, .destroy = destroy};
    m->base.n_layers = method_n_layers(METHOD_FLASH, s);
    ca_layout_init(&m->layout, s->kv_type, 1, 1, s->head_dim, s->head_dim, s->chunk);
    if (!allocate(m)) {
        fprintf(stderr, "flash: no memory for %.0f MiB\n", method_bytes(METHOD_FLASH, s) / 0x1p20);
        destroy(&m->base);
        return NULL;
    }
    ca_pool_run(pool, s->batch, fill_sequence, m);
    return &m->base;
}
