/*
 * Exports and imports: K/V are stored once; and bytes that are damaged, cut off or of another kind of cache are refused, with
 * nothing changed. That K/V arrive with the same bits, wherever they lie in both trees, is in tests/chunkattn/exact.
 */
#include "tests/support/testing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../cache/check_tree.h"
#include "../tier/disk.h"
#include "cache.h"
#include "chunkattn/api/file_tier.h"
#include "chunkattn/cache/tree_internal.h"
#include "tests/support/blob.h"
#include "tests/support/status.h"

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, DIM = 32, MAX_TOKENS = 288, HEADER = 256 };

static cattn_config small(void) {
    cattn_config c = small_config(LAYERS, HEADS, KV_HEADS, DIM, 4 << 20);
    c.tier_fingerprint[0] = 7;
    return c;
}

static int64_t n_tokens_of(const cattn_cache *cache, cattn_seq seq, int64_t *n_ready) {
    cattn_seq_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_seq_get_info(cache, seq, &info, NULL), CATTN_OK);
    if (n_ready) *n_ready = info.n_ready;
    return info.n_tokens;
}

/* ---- Computing: K, V and Q of a position are functions of the tokens up to it, so equal prefixes have equal K/V ---- */

static uint64_t model = 1; /* what it makes of tokens */

static float element(uint64_t hash, int i) {
    return (float)((hash + (uint64_t)i) * UINT64_C(0x9e3779b97f4a7c15) >> 40) / (1 << 23) - 1;
}

static void fill(float *to, uint64_t hash, int layer, int what, int n) {
    for (int i = 0; i < n; i++) to[i] = element(hash + (uint64_t)(layer * 3 + what) * 977, i);
}

/* Outputs and log-sum-exps of the last step's rows. */
typedef struct result {
    int64_t n_rows;
    float out[LAYERS][MAX_TOKENS * HEADS * DIM], lse[LAYERS][MAX_TOKENS * HEADS];
} result;

/* One step of a sequence with at most max_rows rows. */
static void step(cattn_cache *cache, cattn_seq seq, int64_t max_rows, result *r) {
    static float q[MAX_TOKENS * HEADS * DIM], k[MAX_TOKENS * KV_HEADS * DIM], v[MAX_TOKENS * KV_HEADS * DIM];
    static result unused;
    if (!r) r = &unused;
    int32_t tokens[MAX_TOKENS];
    const int64_t n = n_tokens_of(cache, seq, NULL);
    tokens_of(cache, seq, 0, n, tokens);
    cattn_entry entry = {.seq = seq, .max_rows = max_rows};
    cattn_error error;
    check(cattn_step_begin(cache, &entry, 1, 0, &error), &error);
    for (int layer = 0; layer < LAYERS; layer++) {
        uint64_t hash = model;
        for (int64_t p = 0; p < entry.first_pos + entry.n_rows; p++) {
            hash = (hash ^ (uint64_t)tokens[p]) * UINT64_C(0xbf58476d1ce4e5b9);
            hash ^= hash >> 29;
            const int64_t row = p - entry.first_pos;
            if (row < 0) continue;
            fill(q + row * HEADS * DIM, hash, layer, 0, HEADS * DIM);
            fill(k + row * KV_HEADS * DIM, hash, layer, 1, KV_HEADS * DIM);
            fill(v + row * KV_HEADS * DIM, hash, layer, 2, KV_HEADS * DIM);
        }
        const cattn_view q_view = {q, CATTN_F32, HEADS * DIM, DIM}, out = {r->out[layer], CATTN_F32, HEADS * DIM, DIM};
        const cattn_view k_view = {k, CATTN_F32, KV_HEADS * DIM, DIM}, v_view = {v, CATTN_F32, KV_HEADS * DIM, DIM};
        check(cattn_step_write(cache, layer, &k_view, &v_view, &error), &error);
        check(cattn_step_attend(cache, layer, &q_view, &out, r->lse[layer], &error), &error);
    }
    check(cattn_step_end(cache, &error), &error);
    r->n_rows = entry.n_rows;
}

static void compute(cattn_cache *cache, cattn_seq seq, int64_t max_rows) {
    for (int64_t n_ready = 0; n_tokens_of(cache, seq, &n_ready) > n_ready;) step(cache, seq, max_rows, NULL);
}

static cattn_seq join(cattn_cache *cache, const int32_t *tokens, int64_t n) {
    cattn_seq seq;
    cattn_error error;
    check(cattn_seq_join(cache, tokens, n, NULL, &seq, NULL, &error), &error);
    return seq;
}

static cattn_seq join_and_compute(cattn_cache *cache, const int32_t *tokens, int64_t n) {
    const cattn_seq seq = join(cache, tokens, n);
    compute(cache, seq, MAX_TOKENS);
    return seq;
}

static void leave(cattn_cache *cache, cattn_seq seq) { assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK); }

static void append(cattn_cache *cache, cattn_seq seq, int32_t token) {
    cattn_error error;
    check(cattn_seq_append(cache, seq, &token, 1, &error), &error);
}

/* Tokens 0, 1, 2, ... with those from `from` on changed. */
static const int32_t *tokens_from(int64_t from, int32_t change) {
    static int32_t tokens[MAX_TOKENS];
    for (int32_t i = 0; i < MAX_TOKENS; i++) tokens[i] = i < from ? i : i + 1000 * change;
    return tokens;
}

/* ---- Exports as bytes ---- */

static blob export_of(cattn_cache *cache, cattn_seq seq, int64_t n_tokens) {
    blob b = {0};
    cattn_error error;
    check(cattn_seq_export(cache, seq, n_tokens, blob_add, &b, &error), &error);
    assert_int_equal(b.n, cattn_cache_export_bytes(cache, n_tokens));
    return b;
}

static cattn_seq import(cattn_cache *cache, const blob *b, cattn_join_result *r) {
    cattn_seq seq;
    cattn_error error;
    check(cattn_seq_import(cache, b->bytes, b->n, NULL, &seq, r, &error), &error);
    check_tree(cache->tree, cache->pool, &cache->layout);
    return seq;
}

/* Both sequences, which have equal tokens, export the same bytes and continue with the same bits. */
static void assert_same(cattn_cache *a, cattn_seq in_a, cattn_cache *b, cattn_seq in_b) {
    static result results[2];
    const int64_t n = n_tokens_of(a, in_a, NULL);
    blob x = export_of(a, in_a, n), y = export_of(b, in_b, n);
    assert_memory_equal(x.bytes, y.bytes, x.n);
    blob_free(&x);
    blob_free(&y);
    for (int i = 0; i < 3; i++) {
        append(a, in_a, 5 + i);
        append(b, in_b, 5 + i);
        step(a, in_a, 1, &results[0]);
        step(b, in_b, 1, &results[1]);
        assert_int_equal(results[0].n_rows, 1);
        assert_int_equal(results[1].n_rows, 1);
        for (int layer = 0; layer < LAYERS; layer++) {
            assert_memory_equal(results[0].out[layer], results[1].out[layer], HEADS * DIM * sizeof(float));
            assert_memory_equal(results[0].lse[layer], results[1].lse[layer], HEADS * sizeof(float));
        }
    }
}

/* ---- What arrives ---- */

/* After an append at an odd length the last token's K/V are to be copied by the next step. */
static void copies_that_wait_for_a_step_are_made(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        cattn_config config = small();
        if (i == 2) config.sharing = CATTN_PRIVATE; /* where a fork copies everything */
        cattn_cache *a = create(&config);
        const cattn_seq seq = join_and_compute(a, tokens_from(0, 0), 21);
        blob x = export_of(a, seq, 21);
        cattn_seq fork;
        assert_int_equal(cattn_seq_fork(a, seq, 0, &fork, NULL), CATTN_OK);
        if (i < 2) append(a, i == 0 ? seq : fork, 9);
        blob y = export_of(a, fork, 21), z = export_of(a, seq, 21);
        assert_memory_equal(x.bytes, y.bytes, x.n);
        assert_memory_equal(x.bytes, z.bytes, x.n);
        blob_free(&x), blob_free(&y), blob_free(&z);
        cattn_cache_destroy(&a);
    }
}

/* ---- What is shared ---- */

static void imported_tokens_are_stored_once(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *a = create(&config), *b = create(&config);
    blob x = export_of(a, join_and_compute(a, tokens_from(40, 1), 80), 80);
    blob y = export_of(a, join_and_compute(a, tokens_from(40, 2), 80), 80);
    join_and_compute(b, tokens_from(0, 0), 32);
    cattn_join_result r;
    const cattn_seq first = import(b, &x, &r);
    assert_int_equal(r.n_matched, 32);
    assert_int_equal(r.n_ready, 32);
    import(b, &y, &r);
    assert_int_equal(r.n_matched, 40);
    assert_int_equal(r.n_ready, 40);
    assert_int_equal(stats_of(b).tokens_imported, 48 + 40);
    leave(b, first);
    cattn_seq again;
    assert_int_equal(cattn_seq_join(b, tokens_from(40, 1), 81, NULL, &again, &r, NULL), CATTN_OK);
    assert_int_equal(r.n_matched, 80); /* the imported tokens stay for later joins */
    assert_int_equal(r.n_ready, 80);
    blob_free(&x);
    blob_free(&y);
    cattn_cache_destroy(&a);
    cattn_cache_destroy(&b);
}

/* The K/V that are ready stay as they are. Those of the export differ here, which tier_fingerprint must rule out otherwise. */
static void ready_tokens_keep_their_kv(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *a = create(&config), *b = create(&config);
    model = 2;
    blob x = export_of(a, join_and_compute(a, tokens_from(0, 0), 60), 60);
    model = 1;
    const cattn_seq seq = join_and_compute(b, tokens_from(22, 1), 22);
    blob before = export_of(b, seq, 22);
    leave(b, seq); /* so that the import continues in its chunk */
    cattn_join_result r;
    const cattn_seq to = import(b, &x, &r);
    assert_int_equal(r.n_ready, 22);
    blob after = export_of(b, to, 22);
    assert_memory_equal(before.bytes, after.bytes, before.n);
    blob_free(&x), blob_free(&before), blob_free(&after);
    cattn_cache_destroy(&a);
    cattn_cache_destroy(&b);
}

/* A sequence that waits to be computed gets the K/V, too. */
static void who_waits_for_tokens_gets_them(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *a = create(&config), *b = create(&config);
    const cattn_seq from = join_and_compute(a, tokens_from(0, 0), 60), waits = join(b, tokens_from(0, 0), 80);
    step(b, waits, 21, NULL);
    blob x = export_of(a, from, 60);
    cattn_join_result r;
    const cattn_seq to = import(b, &x, &r);
    assert_int_equal(r.n_matched, 58);
    assert_int_equal(r.n_ready, 21);
    int64_t n_ready;
    n_tokens_of(b, waits, &n_ready);
    assert_int_equal(n_ready, 58);
    const cattn_seq reference = join_and_compute(a, tokens_from(0, 0), 80);
    compute(b, waits, 100);
    assert_same(a, reference, b, waits);
    assert_same(a, from, b, to);
    blob_free(&x);
    cattn_cache_destroy(&a);
    cattn_cache_destroy(&b);
}

static void a_domain_of_its_own_shares_nothing(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *a = create(&config);
    const cattn_seq from = join_and_compute(a, tokens_from(0, 0), 60);
    blob x = export_of(a, from, 60);
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = 3;
    options.reserve_tokens = 100;
    cattn_seq to;
    cattn_join_result r;
    assert_int_equal(cattn_seq_import(a, x.bytes, x.n, &options, &to, &r, NULL), CATTN_OK);
    assert_int_equal(r.n_matched, 0);
    cattn_seq_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_seq_get_info(a, to, &info, NULL), CATTN_OK);
    assert_int_equal(info.domain, 3);
    assert_int_equal(info.n_reserved, 100);
    assert_same(a, from, a, to);
    blob_free(&x);
    cattn_cache_destroy(&a);
}

static uint64_t retained_of(const cattn_cache *cache, size_t account) {
    return cache->tree->accounts.n > account ? cache->tree->accounts.at[account].n_retained : 0;
}

/* What an import brings counts for the account of its options, as what a join computes does. */
static void imports_have_accounts(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *a = create(&config), *b = create(&config);
    const cattn_seq from = join_and_compute(a, tokens_from(0, 0), 64);
    blob x = export_of(a, from, 64);
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.account = CATTN_MAX_ACCOUNTS - 1;
    options.account_weight = 3;
    cattn_seq to;
    assert_int_equal(cattn_seq_import(b, x.bytes, x.n, &options, &to, NULL, NULL), CATTN_OK);
    leave(b, to);
    const uint64_t n = stats_of(b).chunks_retained;
    assert_true(n > 1 && retained_of(b, options.account) == n);
    options = (cattn_join_options){.struct_size = sizeof options, .account = 2}; /* joins with a part, which it takes over */
    assert_int_equal(cattn_seq_join(b, tokens_from(0, 0), 33, &options, &to, NULL, NULL), CATTN_OK);
    leave(b, to);
    assert_int_equal(retained_of(b, 2) + retained_of(b, CATTN_MAX_ACCOUNTS - 1), n);
    assert_true(retained_of(b, 2) > 0);
    assert_true(b->tree->accounts.at[CATTN_MAX_ACCOUNTS - 1].weight == 3);
    blob_free(&x);
    cattn_cache_destroy(&a);
    cattn_cache_destroy(&b);
}

/* ---- With a file tier ---- */

/* A cache whose reads and writes of the tier are carried out by ca_tier_work only, and when it ends. */
static cattn_cache *create_with_tier(disk *d) {
    cattn_config config = small();
    config.tier_dir = "anywhere";
    config.tier_bytes = 1 << 20;
    const ca_file_tier_hooks hooks = {&d->files, true};
    cattn_cache *cache;
    cattn_error error;
    check(ca_cache_create(&config, &hooks, &cache, &error), &error);
    return cache;
}

/* Tokens on the way come from the import, and their reads stop. n_reads of 6: chunks that are read before. */
static void import_while_tokens_are_on_the_way(int n_reads) {
    disk d;
    disk_init(&d);
    cattn_cache *cache = create_with_tier(&d);
    const cattn_seq seq = join_and_compute(cache, tokens_from(0, 0), 100);
    blob x = export_of(cache, seq, 100);
    leave(cache, seq);
    cattn_cache_destroy(&cache);

    cache = create_with_tier(&d);
    const cattn_seq waits = join(cache, tokens_from(0, 0), 100);
    cattn_seq_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_seq_get_info(cache, waits, &info, NULL), CATTN_OK);
    assert_int_equal(info.n_coming, 96);
    for (int i = 0; i < n_reads; i++) assert_true(ca_tier_work(cache->tier));
    cattn_join_result r;
    const cattn_seq to = import(cache, &x, &r);
    assert_int_equal(r.n_matched, 98);
    assert_int_equal(r.n_ready, 16 * n_reads);
    assert_int_equal(stats_of(cache).tokens_imported, 100 - 16 * n_reads);
    assert_int_equal(stats_of(cache).tokens_restored, 16 * n_reads);
    assert_int_equal(stats_of(cache).tier_queued, 0);
    assert_int_equal(cattn_seq_get_info(cache, waits, &info, NULL), CATTN_OK);
    assert_int_equal(info.n_coming, 0);
    assert_int_equal(info.n_ready, 98);
    compute(cache, waits, 2);
    assert_same(cache, waits, cache, to);
    blob_free(&x);
    cattn_cache_destroy(&cache);
    disk_free(&d);
}

static void tokens_on_the_way_come_from_the_import(void **state) {
    (void)state;
    import_while_tokens_are_on_the_way(0);
    import_while_tokens_are_on_the_way(2);
    import_while_tokens_are_on_the_way(6);
}

static void imported_chunks_are_written(void **state) {
    (void)state;
    disk d;
    disk_init(&d);
    const cattn_config config = small();
    cattn_cache *a = create(&config), *b = create_with_tier(&d);
    blob x = export_of(a, join_and_compute(a, tokens_from(0, 0), 60), 60);
    leave(b, import(b, &x, NULL));
    cattn_cache_destroy(&b);
    b = create_with_tier(&d);
    assert_int_equal(stats_of(b).tier_chunks, 3);
    const cattn_seq seq = join(b, tokens_from(0, 0), 60);
    for (bool ended = true; ended;) assert_int_equal(cattn_cache_wait(b, 1, &ended, NULL), CATTN_OK);
    compute(b, seq, MAX_TOKENS);
    blob y = export_of(b, seq, 60);
    assert_memory_equal(x.bytes, y.bytes, x.n);
    assert_int_equal(stats_of(b).tokens_restored, 48);
    blob_free(&x), blob_free(&y);
    cattn_cache_destroy(&a);
    cattn_cache_destroy(&b);
    disk_free(&d);
}

/* ---- What is refused, with nothing changed ---- */

/* The import must fail with this status and message, and leave the cache as it was. */
static void refuse(cattn_cache *cache, const void *at, size_t n, cattn_status status, const char *text) {
    const uint64_t before = hash_tree(cache->tree, cache->pool);
    cattn_seq seq = 1;
    cattn_error error;
    expect(cattn_seq_import(cache, at, n, NULL, &seq, NULL, &error), status, &error, text);
    assert_int_equal(seq, 0);
    assert_true(hash_tree(cache->tree, cache->pool) == before);
}

static void every_damage_is_refused(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *a = create(&config), *b = create(&config);
    blob x = export_of(a, join_and_compute(a, tokens_from(0, 0), 20), 20);
    join_and_compute(b, tokens_from(10, 1), 30);
    const size_t record = (x.n - HEADER) / 2;
    for (size_t i = 0; i < x.n; i += i < HEADER ? 1 : 7) {
        x.bytes[i] = (char)(x.bytes[i] ^ 1 << i % 8);
        refuse(b, x.bytes, x.n, CATTN_ERR_DATA, i < 8 ? "do not begin as an export" : i < HEADER ? "header" : "record");
        x.bytes[i] = (char)(x.bytes[i] ^ 1 << i % 8);
    }
    for (size_t n = 0; n < x.n; n += n < 300 ? 1 : 1009)
        refuse(b, x.bytes, n, CATTN_ERR_DATA, n < HEADER ? "has 256" : "it is cut off");
    refuse(b, x.bytes, x.n - record, CATTN_ERR_DATA, "of 20 tokens: it is cut off");
    refuse(b, x.bytes, x.n - 1, CATTN_ERR_DATA, "of 20 tokens: it is cut off");
    char *longer = malloc(x.n + record);
    memcpy(longer, x.bytes, x.n);
    memcpy(longer + x.n, x.bytes + HEADER, record);
    refuse(b, longer, x.n + 1, CATTN_ERR_DATA, "more follows");
    refuse(b, longer, x.n + record, CATTN_ERR_DATA, "more follows");
    /* Records that are valid each, in another order. */
    memcpy(longer + HEADER, x.bytes + HEADER + record, record);
    memcpy(longer + HEADER + record, x.bytes + HEADER, record);
    cattn_error error;
    cattn_seq seq;
    expect(cattn_seq_import(b, longer, x.n, NULL, &seq, NULL, &error), CATTN_ERR_DATA, &error, "record 0 of the export");
    assert_int_equal(error.entry, 0);
    import(b, &x, NULL); /* undamaged again */
    free(longer);
    blob_free(&x);
    cattn_cache_destroy(&a);
    cattn_cache_destroy(&b);
}

static void other_kinds_of_cache_are_refused(void **state) {
    (void)state;
    static const int32_t windows[LAYERS] = {0, 10};
    static const float numbers[LAYERS * HEADS] = {1};
    cattn_config config = small();
    config.level = "avx2";
    cattn_cache *a;
    if (cattn_cache_create(&config, &a, NULL)) config.level = "ref", a = create(&config);
    blob x = export_of(a, join_and_compute(a, tokens_from(0, 0), 20), 20);
    cattn_cache_destroy(&a);
    static const char *const texts[] = {"kv_type 2, the cache 1",
                                        "chunk_size 16, the cache 32",
                                        "n_layers 2, the cache 3",
                                        "n_heads 4, the cache 8",
                                        "n_kv_heads 2, the cache 4",
                                        "head_dim 32, the cache 64",
                                        "head_dim_v 32, the cache 64",
                                        "tier_fingerprint",
                                        "tier_fingerprint",
                                        "windows",
                                        "n_sink_tokens",
                                        "scale",
                                        "softcap",
                                        "sink_logits",
                                        "alibi_slopes",
                                        "shape of its layers",
                                        "kv_source",
                                        "kernel level"};
    static const int32_t other_dims[] = {32, 64}, one_source[] = {0, 0};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cattn_config other = config;
        switch (i) {
        case 0: other.kv_type = CATTN_F16; break;
        case 1: other.chunk_size = 32; break;
        case 2: other.n_layers = 3; break;
        case 3: other.n_heads = 8; break;
        case 4: other.n_kv_heads = 4; break;
        case 5: other.head_dim = 64; break;
        case 6: other.head_dim_v = 64; break;
        case 7: other.tier_fingerprint[0] = 8; break;
        case 8: other.tier_fingerprint[1] = 1; break;
        case 9: other.windows = windows; break;
        case 10: other.n_sink_tokens = 1; break;
        case 11: other.scale = 1; break;
        case 12: other.softcap = 20; break;
        case 13: other.sink_logits = numbers; break;
        case 14: other.alibi_slopes = numbers; break;
        case 15: other.layer_head_dim = other_dims; break;
        case 16: other.kv_source = one_source; break;
        default: other.level = config.level[0] == 'r' ? "avx2" : "ref";
        }
        cattn_cache *b;
        if (cattn_cache_create(&other, &b, NULL)) continue; /* the CPU has one level only */
        refuse(b, x.bytes, x.n, CATTN_ERR_DATA, texts[i]);
        cattn_cache_destroy(&b);
    }
    blob_free(&x);
}

static void a_cache_without_room_is_left_alone(void **state) {
    (void)state;
    cattn_config config = small();
    cattn_cache *a = create(&config);
    blob x = export_of(a, join_and_compute(a, tokens_from(0, 1), 190), 190);
    config.budget_bytes = 200 << 10;
    cattn_cache *b = create(&config);
    const uint64_t capacity = stats_of(b).chunks_capacity;
    assert_in_range(capacity, 13, 24);
    const cattn_seq runs = join_and_compute(b, tokens_from(0, 2), (int64_t)(capacity - 6) * 16);
    refuse(b, x.bytes, x.n, CATTN_ERR_BUDGET, "chunks");
    leave(b, runs); /* what is retained makes room */
    import(b, &x, NULL);
    assert_true(stats_of(b).tokens_evicted > 0);
    blob_free(&x);
    cattn_cache_destroy(&a);
    cattn_cache_destroy(&b);
}

static void wrong_calls_are_refused(void **state) {
    (void)state;
    cattn_config config = small();
    cattn_cache *cache = create(&config);
    cattn_error error;
    cattn_seq seq = join(cache, tokens_from(0, 0), 40), imported;
    blob x = {0};
    assert_int_equal(cattn_cache_export_bytes(NULL, 5), 0);
    assert_int_equal(cattn_cache_export_bytes(cache, 0), 0);
    expect(cattn_seq_export(cache, seq, 1, blob_add, &x, &error), CATTN_ERR_ARG, &error,
           "from 1 to the 0 tokens that are ready");
    step(cache, seq, 30, NULL);
    expect(cattn_seq_export(cache, seq, 31, blob_add, &x, &error), CATTN_ERR_ARG, &error,
           "from 1 to the 30 tokens that are ready");
    expect(cattn_seq_export(cache, seq, 0, blob_add, &x, &error), CATTN_ERR_ARG, &error, "n_tokens is 0");
    expect(cattn_seq_export(cache, seq, 5, NULL, &x, &error), CATTN_ERR_ARG, &error, "write is NULL");
    expect(cattn_seq_export(cache, 99, 5, blob_add, &x, &error), CATTN_ERR_ARG, &error, "seq is 99");
    expect(cattn_seq_export(NULL, seq, 5, blob_add, &x, &error), CATTN_ERR_ARG, &error, "cache is NULL");
    expect(cattn_seq_import(cache, NULL, 5, NULL, &imported, NULL, &error), CATTN_ERR_ARG, &error, "bytes is NULL");
    expect(cattn_seq_import(cache, "", 1, NULL, NULL, NULL, &error), CATTN_ERR_ARG, &error, "seq is NULL");

    blob whole = export_of(cache, seq, 30), some = {0};
    const size_t most[] = {1, HEADER, whole.n - 1}; /* it stops at the first part, the second and the last */
    for (int n = 0; n < 3; n++) {
        some.n = 0;
        some.most = most[n];
        expect(cattn_seq_export(cache, seq, 30, blob_add, &some, &error), CATTN_ERR_WRITE, &error, "`write` has stopped it");
        assert_memory_equal(some.bytes ? some.bytes : "", whole.bytes, some.n);
    }
    cattn_entry entry = {.seq = seq, .max_rows = 1};
    check(cattn_step_begin(cache, &entry, 1, 0, &error), &error);
    expect(cattn_seq_export(cache, seq, 30, blob_add, &some, &error), CATTN_ERR_STATE, &error, "a step is open");
    refuse(cache, whole.bytes, whole.n, CATTN_ERR_STATE, "a step is open");
    check(cattn_step_abort(cache, &error), &error);
    cattn_cache_destroy(&cache);

    config.tier_fingerprint[0] = 0;
    cache = create(&config);
    seq = join_and_compute(cache, tokens_from(0, 0), 40);
    expect(cattn_seq_export(cache, seq, 30, blob_add, &some, &error), CATTN_ERR_ARG, &error, "tier_fingerprint");
    refuse(cache, whole.bytes, whole.n, CATTN_ERR_ARG, "tier_fingerprint");
    blob_free(&some);
    blob_free(&whole);
    cattn_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_that_wait_for_a_step_are_made),
        cmocka_unit_test(imported_tokens_are_stored_once),
        cmocka_unit_test(ready_tokens_keep_their_kv),
        cmocka_unit_test(who_waits_for_tokens_gets_them),
        cmocka_unit_test(a_domain_of_its_own_shares_nothing),
        cmocka_unit_test(imports_have_accounts),
        cmocka_unit_test(tokens_on_the_way_come_from_the_import),
        cmocka_unit_test(imported_chunks_are_written),
        cmocka_unit_test(every_damage_is_refused),
        cmocka_unit_test(other_kinds_of_cache_are_refused),
        cmocka_unit_test(a_cache_without_room_is_left_alone),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
