/* See small_cache.h. */
#include "small_cache.h"

#include <string.h>

#include "chunkattn/api/cache_handle.h"
#include "tests/support/rng.h"

static const cattn_cuda_config device_0 = {.device = 0};

cattn_config config_of(uint64_t megabytes) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = LAYERS;
    c.n_heads = HEADS;
    c.n_kv_heads = KV_HEADS;
    c.head_dim = DIM;
    c.budget_bytes = megabytes << 20;
    c.cuda = &device_0;
    return c;
}

cattn_cache *create(const cattn_config *config) {
    cattn_cache *cache;
    cattn_error error = {0};
    if (cattn_cache_create(config, &cache, &error)) fail_msg("%s", error.message);
    return cache;
}

cattn_seq join(cattn_cache *cache, int n_shared, int n_own, int which) {
    int32_t tokens[MAX_ROWS];
    for (int i = 0; i < n_shared + n_own; i++) tokens[i] = i < n_shared ? i : 1000 * (which + 1) + i;
    cattn_seq seq;
    cattn_error error = {0};
    check(cattn_seq_join(cache, tokens, n_shared + n_own, NULL, &seq, NULL, &error), &error);
    return seq;
}

void append(cattn_cache *cache, cattn_seq seq, int32_t token) {
    assert_int_equal(cattn_seq_append(cache, seq, &token, 1, NULL), CATTN_OK);
}

tensors new_tensors(void) {
    return (tensors){
        dev_alloc(sizeof(float) * MAX_ROWS * HEADS * DIM, "q"), dev_alloc(sizeof(float) * MAX_ROWS * KV_HEADS * DIM, "k"),
        dev_alloc(sizeof(float) * MAX_ROWS * KV_HEADS * DIM, "v"), dev_alloc(sizeof(float) * MAX_ROWS * HEADS * DIM, "out"),
        dev_alloc(sizeof(float) * MAX_ROWS * HEADS, "lse")};
}

void free_tensors(tensors *t) {
    dev_finish();
    float *all[] = {t->q, t->k, t->v, t->out, t->lse};
    for (int i = 0; i < 5; i++) dev_free(all[i]);
}

static void fill(float *to, int n, uint64_t seed) {
    rng r = {seed};
    for (int i = 0; i < n; i++) to[i] = rng_float(&r);
}

void fill_tensors(const cattn_cache *cache, tensors *t, const cattn_entry *entries, int n) {
    int row = 0;
    dev_finish();
    memset(t->out, 0xff, sizeof(float) * MAX_ROWS * HEADS * DIM); /* NaN: no result of an earlier step counts */
    memset(t->lse, 0xff, sizeof(float) * MAX_ROWS * HEADS);
    for (int i = 0; i < n; i++)
        for (int64_t p = entries[i].first_pos; p < entries[i].first_pos + entries[i].n_rows; p++, row++) {
            int32_t token;
            ca_seq_tokens(ca_tree_find(cache->tree, entries[i].seq), p, 1, &token);
            const uint64_t seed = (uint64_t)token * 5000 + (uint64_t)p * 3;
            fill(t->q + row * HEADS * DIM, HEADS * DIM, seed);
            fill(t->k + row * KV_HEADS * DIM, KV_HEADS * DIM, seed + 1);
            fill(t->v + row * KV_HEADS * DIM, KV_HEADS * DIM, seed + 2);
        }
}

void write_layer(cattn_cache *cache, int layer, tensors *t) {
    const cattn_view k = view_of(K_VIEW, t->k), v = view_of(K_VIEW, t->v);
    cattn_error error = {0};
    check(cattn_cuda_step_write(cache, layer, &k, &v, dev_stream(0), &error), &error);
}

void run_layer(cattn_cache *cache, int layer, tensors *t) {
    const cattn_view q = view_of(Q_VIEW, t->q), out = view_of(Q_VIEW, t->out);
    cattn_error error = {0};
    write_layer(cache, layer, t);
    check(cattn_cuda_step_attend(cache, layer, &q, &out, t->lse, dev_stream(0), &error), &error);
}

void run_layers(cattn_cache *cache, tensors *t) {
    for (int layer = 0; layer < LAYERS; layer++) run_layer(cache, layer, t);
}

uint64_t step(cattn_cache *cache, tensors *t, cattn_entry *entries, int n) {
    cattn_error error = {0};
    uint64_t graph = 0;
    check(cattn_cuda_step_begin(cache, entries, n, 0, dev_stream(0), &graph, &error), &error);
    fill_tensors(cache, t, entries, n);
    run_layers(cache, t);
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    return graph;
}

void write_prompt(cattn_cache *cache, tensors *t, cattn_entry *entry) {
    cattn_error error = {0};
    check(cattn_cuda_step_begin(cache, entry, 1, 0, dev_stream(0), NULL, &error), &error);
    fill_tensors(cache, t, entry, 1);
    for (int layer = 0; layer < LAYERS; layer++) write_layer(cache, layer, t);
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
}

cattn_cache *start_decoding(tensors *t, cattn_entry *entries) {
    const cattn_config config = config_of(8);
    cattn_cache *cache = create(&config);
    for (int i = 0; i < 4; i++) entries[i] = (cattn_entry){.seq = join(cache, 100, 5, i), .max_rows = 200};
    step(cache, t, entries, 4);
    for (int i = 0; i < 4; i++) entries[i].max_rows = 1;
    return cache;
}
