/* What is known about a method before it is created: its name, its memory, and the random rows that all methods store as K and
 * V. */
#include "method.h"

#include <stdio.h>

enum { WORKSPACE_BYTES = 1 << 30 }; /* address space beside the K/V, of which little is used */

static const char *const names[N_METHODS] = {"naive", "flash", "paged", "paged_shared", "chunk"};

const char *method_name(method_id id) { return names[id]; }

bool method_shares(method_id id) { return id >= METHOD_PAGED_SHARED; }
static cattn_sharing sharing_of(method_id id) {
    if (id == METHOD_PAGED) return CATTN_PRIVATE;
    return id == METHOD_PAGED_SHARED ? CATTN_SHARED_STORAGE : CATTN_SHARED;
}
bool method_is_exact(method_id id) { return id != METHOD_NAIVE; }

cattn_config method_config(method_id id, const shape *s, ca_pool *pool) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = 1;
    c.n_heads = s->heads;
    c.n_kv_heads = s->kv_heads;
    c.head_dim = s->head_dim;
    c.chunk_size = s->chunk;
    c.kv_type = s->kv_type;
    c.sharing = sharing_of(id);
    c.level = s->level;
    c.budget_bytes = (uint64_t)method_bytes(id, s) + WORKSPACE_BYTES;
    c.n_threads = ca_pool_size(pool);
    c.parallel = (cattn_parallel){.run = ca_pool_run, .ctx = pool};
    return c;
}

const char *method_level(const shape *s) {
    cattn_config c;
    cattn_cache *cache;
    cattn_error error;
    cattn_config_init(&c);
    c.n_layers = c.n_heads = c.n_kv_heads = c.n_threads = 1;
    c.head_dim = s->head_dim;
    c.kv_type = s->kv_type;
    c.level = s->level;
    if (cattn_cache_create(&c, &cache, &error) != CATTN_OK) {
        fprintf(stderr, "cattn-bench: %s\n", error.message);
        return NULL;
    }
    const char *level = cattn_cache_level(cache); /* outlives the cache */
    cattn_cache_destroy(&cache);
    return level;
}

method *method_create(method_id id, const shape *s, ca_pool *pool) {
    switch (id) {
    case METHOD_NAIVE: return method_create_naive(s, pool);
    case METHOD_FLASH: return method_create_flash(s, pool);
    default: return method_create_cached(id, s, pool);
    }
}

size_t method_token_bytes(method_id id, const shape *s) {
    const bool wide = id == METHOD_NAIVE || s->kv_type == CATTN_F32;
    if (s->kv_type == CATTN_I8 && !wide) return 2 * (method_row_size(s) + (size_t)s->kv_heads * sizeof(float)); /* scales */
    return 2 * method_row_size(s) * (wide ? 4 : 2);
}

double method_layer_bytes(method_id id, const shape *s) {
    return (double)(method_shares(id) ? token_tree_distinct(s->tree) : token_tree_total(s->tree)) *
           (double)method_token_bytes(id, s);
}

int32_t method_n_layers(method_id id, const shape *s) {
    return 1 + (int32_t)((double)s->cold_bytes / method_layer_bytes(id, s));
}

/* Besides whole chunks, each run may fill parts of two, where it begins and where it ends, and so may each sequence's own
 * token. */
double method_bytes(method_id id, const shape *s) {
    const double ends = id == METHOD_NAIVE ? 0 : 2.0 * (s->tree->n_runs + s->tree->n_seqs) * s->chunk;
    return (method_layer_bytes(id, s) + ends * (double)method_token_bytes(id, s)) * method_n_layers(id, s);
}

/* ---- Random rows ---- */

/* Rows are windows of one random table, so filling gigabytes costs little more than copying them. */
enum { TABLE_BITS = 16 };

static float table[(1 << TABLE_BITS) + METHOD_MAX_ROW];

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void method_rows_init(void) {
    for (int i = 0; i < (1 << TABLE_BITS) + METHOD_MAX_ROW; i++) table[i] = 0x1p-31f * (float)(int32_t)mix((uint64_t)i + 1);
}

const float *method_kv_row(int32_t layer, int32_t run, int64_t position, int v) {
    const uint64_t row = mix(mix(mix((uint64_t)run) + (uint64_t)position) + (uint64_t)layer * 2 + (uint64_t)v);
    return table + (row & ((1 << TABLE_BITS) - 1));
}
