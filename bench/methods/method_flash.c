/*
 * Tiled and fused attention over each sequence's own contiguous K and V, as FlashAttention does it, with the library's kernels.
 *
 * The tiles of a sequence and KV head are stored one after the other, so a pass over them reads one stream. Segments and merges
 * are those of the library, so the results have the same bits.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "chunkattn/base/fp.h"
#include "library_internals.h"
#include "method_private.h"

enum { MAX_SEGMENTS = 1024, MAX_TILE_ROWS = 96 /* of any kernel */ };

typedef struct flash_method {
    private_method base;
    const ca_kernel *kernel;
    ca_layout layout; /* of one head */
    size_t states_bytes, query_bytes;
} flash_method;

/* Pass the GQA group's rows over chunks [from, to) of a head, into fresh states. */
static void attend_segment(const flash_method *m, const char *tiles, int64_t from, int64_t to, const char *queries, void *state,
                           char *scratch) {
    const ca_layout *l = &m->layout;
    ca_tile tile = {.d_k = l->d_k,
                    .d_v = l->d_v,
                    .c = l->c,
                    .n_rows = m->base.s->heads / m->base.s->kv_heads,
                    .q = queries,
                    .state = state,
                    .scratch = scratch};
    m->kernel->init(state, tile.n_rows, l->d_v);
    for (int64_t i = from; i < to; i++) {
        const char *k = tiles + (size_t)i * l->tile_bytes, *next = k + l->tile_bytes;
        const int64_t left = m->base.s->prefix + 1 - i * l->c;
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

/* scratch: queries, states, the kernel's scratch. */
static void attend_head(const private_method *base, const char *kv, const float *q, float *out, char *scratch) {
    const flash_method *m = (const flash_method *)base;
    const shape *s = base->s;
    const ca_layout *l = &m->layout;
    const int32_t group = s->heads / s->kv_heads;
    const int64_t n_chunks = s->prefix / l->c + 1, per_segment = CA_SEGMENT / l->c;
    const size_t state_bytes = m->kernel->state_bytes(l->d_v), segment_bytes = (size_t)group * state_bytes;
    char *states = scratch + m->query_bytes, *kernel_scratch = states + m->states_bytes;
    const unsigned fp = ca_fp_enter();
    m->kernel->pack_query(q, s->head_dim, group, s->head_dim, scale_log2(s), scratch);
    int32_t n_segments = 0;
    for (int64_t from = 0; from < n_chunks; from += per_segment, n_segments++) {
        const int64_t to = from + per_segment < n_chunks ? from + per_segment : n_chunks;
        attend_segment(m, kv, from, to, scratch, states + (size_t)n_segments * segment_bytes, kernel_scratch);
    }
    for (int32_t g = 0; g < group; g++) {
        const void *of_row[MAX_SEGMENTS];
        for (int32_t i = 0; i < n_segments; i++) of_row[i] = states + (size_t)i * segment_bytes + (size_t)g * state_bytes;
        m->kernel->merge(of_row, n_segments, l->d_v, -INFINITY, out + (size_t)g * (size_t)s->head_dim, NULL);
    }
    if (m->kernel->leave) m->kernel->leave();
    ca_fp_leave(fp);
}

static void write_token(const private_method *base, char *kv, int64_t position, const float *k, const float *v) {
    const ca_layout *l = &((const flash_method *)base)->layout;
    char *tile = kv + (size_t)(position / l->c) * l->tile_bytes;
    ca_layout_write(l, tile, tile + l->k_bytes, 0, (int)(position % l->c), k, v);
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
    const size_t group = (size_t)(s->heads / s->kv_heads), n_segments = (size_t)(s->prefix / CA_SEGMENT) + 1;
    flash_method *m = kernel && n_segments <= MAX_SEGMENTS ? calloc(1, sizeof *m) : NULL;
    if (!m) return NULL;
    *m = (flash_method){
        .base = {.base.level = kernel->level, .s = s, .pool = pool, .attend_head = attend_head, .write = write_token},
        .kernel = kernel};
    ca_layout_init(&m->layout, s->kv_type, s->head_dim, s->head_dim, s->chunk);
    m->query_bytes = group * kernel->query_bytes(s->head_dim);
    m->states_bytes = n_segments * group * kernel->state_bytes(s->head_dim);
    m->base.scratch_bytes = m->query_bytes + m->states_bytes + kernel->scratch_bytes(s->head_dim, s->head_dim, s->chunk);
    m->base.head_bytes = (size_t)(s->prefix / s->chunk + 1) * m->layout.tile_bytes;
    return private_method_start(&m->base, METHOD_FLASH);
}
