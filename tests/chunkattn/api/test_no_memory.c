/*
 * Every allocation of a cache's life fails once, alone or with those after it: the call reports CATTN_ERR_NOMEM and has changed
 * nothing, and once it is repeated all outputs have the bits that they have otherwise. Nothing remains allocated.
 */
#include "tests/support/testing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn_inspect.h"
#include "tests/support/failing_alloc.h"

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, DIM = 32, MAX_ROWS = 160, MAX_OUT = 1 << 19, MAX_EXPORT = 1 << 18, MAX_SEQS = 5 };

/* An allocator that fails and counts what remains. */
typedef struct memory {
    failing failing;
    int n_allocated;
} memory;

static void *allocate(void *ctx, size_t size, size_t align) {
    memory *m = ctx;
    void *p = failing_alloc(&m->failing, size, align);
    m->n_allocated += p != NULL;
    return p;
}

static void release(void *ctx, void *p, size_t size, size_t align) {
    memory *m = ctx;
    m->n_allocated--;
    failing_free(&m->failing, p, size, align);
}

typedef struct life {
    memory memory;
    cattn_cache *cache;
    cattn_seq seqs[MAX_SEQS];
    cattn_error error;
    cattn_stats before;
    int n_failures;
    float out[MAX_OUT]; /* [n_out] of all steps */
    size_t n_out;
    char exported[MAX_EXPORT]; /* [n_exported] */
    size_t n_exported;
} life;

static cattn_stats stats_of(const life *l) {
    cattn_stats s = {.struct_size = sizeof s};
    if (l->cache) assert_int_equal(cattn_cache_stats(l->cache, &s), CATTN_OK);
    s.bytes_in_use = s.bytes_peak = 0; /* of these, workspace and arrays that have grown may stay */
    return s;
}

/* Whether a call failed for lack of memory, and must be repeated. All other failures end the test. */
static bool failed(life *l, cattn_status status) {
    if (status == CATTN_OK) {
        l->before = stats_of(l);
        return false;
    }
    if (status != CATTN_ERR_NOMEM) fail_msg("%s: %s", cattn_status_name(status), l->error.message);
    assert_int_equal(l->error.code, CATTN_ERR_NOMEM);
    const cattn_stats now = stats_of(l);
    assert_memory_equal(&now, &l->before, sizeof now);
    assert_true(++l->n_failures < 100);
    return true;
}

#define REPEAT(call)                                                                                                           \
    while (failed(l, (call))) continue

static void create(life *l, cattn_type kv_type) {
    static const int32_t windows[LAYERS] = {0, 24};
    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = LAYERS;
    config.n_heads = HEADS;
    config.n_kv_heads = KV_HEADS;
    config.head_dim = DIM;
    config.chunk_size = 16;
    config.kv_type = kv_type;
    config.budget_bytes = 4 << 20;
    config.n_threads = 1;
    config.windows = windows;
    config.tier_fingerprint[0] = 1;
    config.allocator = (cattn_allocator){allocate, release, &l->memory};
    l->before = stats_of(l);
    do assert_null(l->cache);
    while (failed(l, cattn_cache_create(&config, &l->cache, &l->error)));
}

/* n tokens, the first `shared` of them those of all prompts. */
static void join(life *l, int i, int64_t shared, int64_t n) {
    int32_t tokens[256];
    for (int64_t p = 0; p < n; p++) tokens[p] = (int32_t)(p < shared ? p : 1000 * (i + 1) + p);
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.reserve_tokens = 5;
    do assert_int_equal(l->seqs[i], 0);
    while (failed(l, cattn_seq_join(l->cache, tokens, n, &options, &l->seqs[i], NULL, &l->error)));
}

static void append(life *l, int i, int64_t n) {
    static const int32_t tokens[64] = {1, 2, 3, 4, 5};
    REPEAT(cattn_seq_append(l->cache, l->seqs[i], tokens, n, &l->error));
}

static float element(int64_t i) { return (float)((uint64_t)i * 2654435761u >> 8 & 1023) / 512 - 1; }

/* A step of all sequences. K, V and Q depend on the row's position alone, so their values are the same in every run. */
static void step(life *l) {
    static float q[MAX_ROWS * HEADS * DIM], k[MAX_ROWS * KV_HEADS * DIM], v[MAX_ROWS * KV_HEADS * DIM];
    cattn_entry entries[MAX_SEQS];
    int n = 0;
    for (int i = 0; i < MAX_SEQS; i++)
        if (l->seqs[i]) entries[n++] = (cattn_entry){.seq = l->seqs[i], .max_rows = 100};
    REPEAT(cattn_step_begin(l->cache, entries, n, 0, &l->error));
    size_t n_rows = 0;
    for (int i = 0; i < n; i++)
        for (int64_t r = 0; r < entries[i].n_rows; r++, n_rows++) {
            const int64_t position = entries[i].first_pos + r;
            for (int64_t d = 0; d < HEADS * DIM; d++) q[n_rows * HEADS * DIM + (size_t)d] = element(position * 7919 + d);
            for (int64_t d = 0; d < KV_HEADS * DIM; d++) {
                k[n_rows * KV_HEADS * DIM + (size_t)d] = element(position * 104729 + d);
                v[n_rows * KV_HEADS * DIM + (size_t)d] = element(position * 15485863 + d);
            }
        }
    assert_true(n_rows <= MAX_ROWS && l->n_out + LAYERS * n_rows * HEADS * DIM <= MAX_OUT);
    const cattn_view k_view = {k, CATTN_F32, KV_HEADS * DIM, DIM}, v_view = {v, CATTN_F32, KV_HEADS * DIM, DIM};
    const cattn_view q_view = {q, CATTN_F32, HEADS * DIM, DIM};
    for (int32_t layer = 0; layer < LAYERS; layer++, l->n_out += n_rows * HEADS * DIM) {
        const cattn_view out = {l->out + l->n_out, CATTN_F32, HEADS * DIM, DIM};
        assert_int_equal(cattn_step_write(l->cache, layer, &k_view, &v_view, &l->error), CATTN_OK); /* allocates nothing */
        assert_int_equal(cattn_step_attend(l->cache, layer, &q_view, &out, NULL, &l->error), CATTN_OK);
    }
    assert_int_equal(cattn_step_end(l->cache, &l->error), CATTN_OK);
    l->before = stats_of(l);
}

static int add(void *ctx, const void *bytes, size_t n) {
    life *l = ctx;
    assert_true(l->n_exported + n <= sizeof l->exported);
    memcpy(l->exported + l->n_exported, bytes, n);
    l->n_exported += n;
    return 0;
}

/* Nothing is written before the memory is there, so there is nothing to forget when the call is repeated. */
static void export(life *l, int i, int64_t n) {
    l->n_exported = 0;
    do assert_int_equal(l->n_exported, 0);
    while (failed(l, cattn_seq_export(l->cache, l->seqs[i], n, add, l, &l->error)));
}

static void import(life *l, int i) {
    do assert_int_equal(l->seqs[i], 0);
    while (failed(l, cattn_seq_import(l->cache, l->exported, l->n_exported, NULL, &l->seqs[i], NULL, &l->error)));
}

/* All calls of a cache that allocate, some of them where nodes are cut or grow. */
static void live(life *l, cattn_type kv_type) {
    cattn_seq pin = 0;
    create(l, kv_type);
    join(l, 0, 70, 100);
    step(l);
    join(l, 1, 70, 93);
    REPEAT(cattn_seq_fork(l->cache, l->seqs[0], 40, &l->seqs[2], &l->error));
    REPEAT(cattn_seq_pin(l->cache, l->seqs[0], 50, &pin, &l->error));
    append(l, 0, 1);
    append(l, 2, 1);
    step(l);
    REPEAT(cattn_seq_reserve(l->cache, l->seqs[0], 64, &l->error));
    REPEAT(cattn_seq_truncate(l->cache, l->seqs[1], 81, &l->error));
    append(l, 1, 40);
    append(l, 2, 30);
    step(l);
    for (int i = 0; i < 2; i++) assert_int_equal(cattn_seq_leave(l->cache, &l->seqs[i], &l->error), CATTN_OK);
    l->before = stats_of(l);
    join(l, 3, 70, 120);
    join(l, 4, 30, 60);
    step(l);
    export(l, 3, 110);
    for (int i = 3; i < 5; i++) assert_int_equal(cattn_seq_leave(l->cache, &l->seqs[i], &l->error), CATTN_OK);
    assert_int_equal(cattn_cache_drop_retained(l->cache, &l->error), CATTN_OK);
    l->before = stats_of(l);
    import(l, 3);
    append(l, 3, 7);
    step(l);
    assert_int_equal(cattn_cache_unpin(l->cache, &pin, &l->error), CATTN_OK);
    cattn_cache_destroy(&l->cache);
    assert_int_equal(l->memory.n_allocated, 0);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const cattn_type types[] = {CATTN_F32, CATTN_BF16, CATTN_I8};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        life *undisturbed = calloc(1, sizeof *undisturbed), *l = calloc(1, sizeof *l);
        assert_true(undisturbed && l);
        live(undisturbed, types[t]);
        for (int times = 1; times <= 4; times++) {
            int n = 0;
            do {
                memset(l, 0, sizeof *l);
                l->memory.failing = (failing){.left = n, .times = times};
                live(l, types[t]);
                assert_int_equal(l->n_out, undisturbed->n_out);
                assert_memory_equal(l->out, undisturbed->out, l->n_out * sizeof *l->out);
                assert_int_equal(l->n_exported, undisturbed->n_exported);
                assert_memory_equal(l->exported, undisturbed->exported, l->n_exported);
                n++;
            } while (l->memory.failing.left <= 0);
            assert_true(n > 50);
        }
        free(undisturbed);
        free(l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
