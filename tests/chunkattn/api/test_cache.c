/* The public calls: a wrong argument gives a status and a message, and changes nothing. */
#include "tests/support/testing.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "tests/support/status.h"

enum { HEADS = 4, KV_HEADS = 2, DIM = 64 };

static cattn_config small(void) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = 2;
    c.n_heads = HEADS;
    c.n_kv_heads = KV_HEADS;
    c.head_dim = DIM;
    c.n_threads = 1;
    c.budget_bytes = (uint64_t)64 << 20;
    return c;
}

/* An allocator that counts, and fails on request. */
typedef struct counter {
    size_t bytes;
    long left; /* allocations before failure; < 0: no limit */
} counter;

static void *count_alloc(void *ctx, size_t size, size_t align) {
    counter *c = ctx;
    if (c->left == 0) return NULL;
    if (c->left > 0) c->left--;
    c->bytes += size;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void count_free(void *ctx, void *p, size_t size, size_t align) {
    (void)align;
    counter *c = ctx;
    c->bytes -= size;
    free(p);
}

/* Overwrite memory before it is freed, so that later use is noticed. */
static void poison_free(void *ctx, void *p, size_t size, size_t align) {
    memset(p, 0xdd, size);
    count_free(ctx, p, size, align);
}

static void *limited_alloc(void *ctx, size_t size, size_t align) {
    return size > 1 << 28 ? NULL : count_alloc(ctx, size, align);
}

static void config_is_checked(void **state) {
    (void)state;
    cattn_cache *cache;
    cattn_error error;
    const cattn_config good = small();
#define BAD(field, value, text)                                                                                                \
    do {                                                                                                                       \
        cattn_config c = good;                                                                                                 \
        c.field = value;                                                                                                       \
        cache = (cattn_cache *)&c;                                                                                             \
        expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error, text);                                           \
        assert_null(cache);                                                                                                    \
    } while (0)
    BAD(struct_size, 8, "struct_size of cattn_config is 8; set it to sizeof(cattn_config)");
    BAD(n_layers, 0, "n_layers is 0");
    BAD(n_heads, 0, "n_heads");
    BAD(n_heads, 3, "n_kv_heads, which is 2");
    BAD(n_heads, 258, "128 times");
    BAD(n_kv_heads, -1, "n_kv_heads is -1");
    BAD(head_dim, 65, "head_dim is 65");
    BAD(head_dim_v, 16, "head_dim_v is 16; it must be 32, 48, 64, 80, 96, 112, 128, 192, 256 or 512");
    BAD(chunk_size, 8, "chunk_size is 8");
    BAD(chunk_size, 48, "16, 32, 64, 128 or 256");
    BAD(chunk_size, 512, "chunk_size");
    BAD(kv_type, (cattn_type)5, "kv_type is 5; it must be from 0 to 4");
    BAD(sharing, (cattn_sharing)-1, "sharing");
    BAD(retention, (cattn_retention)3, "retention");
    BAD(scale, (float)(1e300 * 1e300), "scale");
    BAD(n_threads, -1, "n_threads");
    static const int32_t windows[] = {4, -1};
    static const float slopes[HEADS] = {0, 0, 0, INFINITY}, sinks[2 * HEADS] = {-INFINITY, 0, 0, 0, 0, 1e7f}, none[] = {NAN};
    BAD(windows, windows, "windows[1] is -1");
    BAD(n_sink_tokens, -1, "n_sink_tokens is -1");
    BAD(softcap, -1, "softcap, where it is not 0 for none, is -1; it must be from 0.001 to 1e+06");
    BAD(softcap, none[0], "softcap");
    BAD(alibi_slopes, slopes, "alibi_slopes[3] is inf; it must be from -1e+06 to 1e+06");
    BAD(alibi_slopes, none, "alibi_slopes[0] is nan");
    BAD(sink_logits, sinks, "sink_logits[1][1], where it is not -INFINITY for none, is 1e+07");
    BAD(sink_logits, none, "sink_logits[0][0]");
    static const int32_t heads[] = {4, 6}, odd_heads[] = {4, 3}, kv_heads[] = {2, 0}, dims[] = {64, 65}, dims_v[] = {0, 16};
    static const float scales[] = {0, NAN}, gentle[HEADS] = {0};
    BAD(layer_n_heads, odd_heads, "layer_n_heads[1] is 3; it must be 1 to 128 times n_kv_heads, which is 2");
    BAD(layer_n_kv_heads, kv_heads, "layer_n_kv_heads[1] is 0");
    BAD(layer_head_dim, dims, "layer_head_dim[1] is 65");
    BAD(layer_head_dim_v, dims_v, "layer_head_dim_v[1] is 16");
    BAD(layer_scale, scales, "layer_scale[1] is not a finite number");
    static const int32_t later[] = {1, 1}, negative[] = {0, -1}, unequal[] = {32, 64}, first[] = {0, 0};
    BAD(kv_source, later, "kv_source[0] is 1; it must be 0, or an earlier layer whose kv_source is that layer itself");
    BAD(kv_source, negative, "kv_source[1] is -1");
    BAD(level, "sse9", "sse9");
    BAD(allocator.alloc, (void *(*)(void *, size_t, size_t))(void *)malloc, "allocator");
#undef BAD
    cattn_config c = good;
    c.kv_source = first;
    c.layer_head_dim = unequal;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error,
           "kv_source[1] is 0, which has 2 KV heads of 32 and 32; layer 1 has 2 of 64 and 64, and they must agree");
    c = good;
    c.alibi_slopes = gentle;
    c.layer_n_heads = heads;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error,
           "alibi_slopes is set, but layer_n_heads[1] is 6 and that of layer 0 is 4; they must agree");
    c = good;
    c.kv_type = CATTN_E4M3;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_UNSUPPORTED, &error, "set cuda, or use CATTN_I8");
    c = good;
    c.budget_bytes = 1000;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_BUDGET, &error, "budget_bytes is 1000");
    counter memory = {.left = -1};
    c.budget_bytes = UINT64_MAX;
    c.allocator = (cattn_allocator){limited_alloc, count_free, &memory};
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_NOMEM, &error, "lower it");
    c.allocator = good.allocator;
    expect(cattn_cache_create(NULL, &cache, &error), CATTN_ERR_ARG, &error, "config is NULL");
    expect(cattn_cache_create(&good, NULL, &error), CATTN_ERR_ARG, &error, "cache is NULL");
}

static void every_level_of_this_cpu_can_be_chosen(void **state) {
    (void)state;
    unsetenv("CATTN_LEVEL"); /* a limit to levels that are chosen */
    cattn_config c = small();
    assert_string_equal(cattn_level_name(0), "ref");
    for (int i = 0; cattn_level_name(i); i++) {
        c.level = cattn_level_name(i);
        int n_own = 0; /* a level has kernels for some types, and uses those of a lower level for the others */
        for (int type = CATTN_F32; type <= CATTN_I8; type++) {
            c.kv_type = (cattn_type)type;
            cattn_cache *cache = create(&c);
            n_own += !strcmp(cattn_cache_level(cache), c.level);
            cattn_cache_destroy(&cache);
            assert_null(cache);
        }
        assert_true(n_own > 0);
    }
    c.level = NULL;
    c.kv_type = CATTN_BF16;
    setenv("CATTN_LEVEL", "ref", 1);
    cattn_cache *cache = create(&c);
    assert_string_equal(cattn_cache_level(cache), "ref");
    cattn_cache_destroy(&cache);
    setenv("CATTN_LEVEL", "nonsense", 1);
    cattn_error error;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error, "CATTN_LEVEL");
    unsetenv("CATTN_LEVEL");
}

static void sequence_calls_are_checked(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    cattn_error error;
    cattn_seq seq = 7, fork = 7;
    const int32_t tokens[] = {1, 2, -3, 4};
    expect(cattn_seq_join(cache, tokens, 0, NULL, &seq, NULL, &error), CATTN_ERR_ARG, &error, "n_tokens is 0");
    assert_int_equal(seq, 0);
    expect(cattn_seq_join(cache, NULL, 2, NULL, &seq, NULL, &error), CATTN_ERR_ARG, &error, "tokens is NULL");
    expect(cattn_seq_join(cache, tokens, 4, NULL, &seq, NULL, &error), CATTN_ERR_ARG, &error, "tokens[2] is -3");
    assert_int_equal(error.entry, 2);
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.reserve_tokens = -1;
    expect(cattn_seq_join(cache, tokens, 2, &options, &seq, NULL, &error), CATTN_ERR_ARG, &error, "reserve_tokens is -1");
    options.reserve_tokens = 1 << 30;
    expect(cattn_seq_join(cache, tokens, 2, &options, &seq, NULL, &error), CATTN_ERR_BUDGET, &error, "chunks");
    options.reserve_tokens = INT64_MAX;
    expect(cattn_seq_join(cache, tokens, 2, &options, &seq, NULL, &error), CATTN_ERR_BUDGET, &error, "chunks");
    cattn_join_options_init(&options);
    options.account = CATTN_MAX_ACCOUNTS;
    expect(cattn_seq_join(cache, tokens, 2, &options, &seq, NULL, &error), CATTN_ERR_ARG, &error, "account is 256; it must be");
    options.account = 0;
    static const float wrong[] = {-1, 1e-7F, 2e6F, INFINITY, NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.account_weight = wrong[i];
        expect(cattn_seq_join(cache, tokens, 2, &options, &seq, NULL, &error), CATTN_ERR_ARG, &error, "account_weight is ");
    }
    assert_int_equal(stats_of(cache).n_seqs, 0);
    assert_int_equal(stats_of(cache).n_nodes, 0);
    assert_int_equal(stats_of(cache).chunks_reserved, 0);

    assert_int_equal(cattn_seq_join(cache, tokens, 2, NULL, &seq, NULL, NULL), CATTN_OK);
    expect(cattn_seq_append(cache, seq + 1, tokens, 1, &error), CATTN_ERR_ARG, &error, "no running sequence");
    expect(cattn_seq_append(cache, seq, tokens, 0, &error), CATTN_ERR_ARG, &error, "n_tokens is 0");
    expect(cattn_seq_truncate(cache, seq, 0, &error), CATTN_ERR_ARG, &error, "1 to the sequence's length, 2");
    expect(cattn_seq_truncate(cache, seq, 3, &error), CATTN_ERR_ARG, &error, "n_tokens is 3");
    expect(cattn_seq_fork(cache, 0, 0, &fork, &error), CATTN_ERR_ARG, &error, "seq is 0");
    assert_int_equal(fork, 0);
    expect(cattn_seq_reserve(cache, seq, -5, &error), CATTN_ERR_ARG, &error, "-5");
    expect(cattn_seq_reserve(cache, seq, INT64_MAX, &error), CATTN_ERR_BUDGET, &error, "chunks");
    expect(cattn_seq_fork(cache, seq, INT64_MAX, &fork, &error), CATTN_ERR_BUDGET, &error, "chunks");
    const cattn_seq left = seq;
    assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK);
    assert_int_equal(seq, 0);
    cattn_seq again = left;
    expect(cattn_seq_leave(cache, &again, &error), CATTN_ERR_ARG, &error, "no running sequence");
    cattn_cache_destroy(&cache);
}

static void a_negative_token_is_found_anywhere(void **state) {
    (void)state;
    enum { N = 70 };
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    cattn_error error;
    cattn_seq seq;
    int32_t tokens[N] = {0};
    for (int i = 0; i < N; i++) {
        tokens[N - 1] = -1; /* the first one is reported */
        tokens[i] = INT32_MIN;
        expect(cattn_seq_join(cache, tokens, N, NULL, &seq, NULL, &error), CATTN_ERR_ARG, &error, "is -2147483648");
        assert_int_equal(error.entry, i);
        tokens[N - 1] = 0;
        tokens[i] = INT32_MAX;
    }
    assert_int_equal(cattn_seq_join(cache, tokens, N, NULL, &seq, NULL, NULL), CATTN_OK);
    cattn_cache_destroy(&cache);
}

static void steps_are_checked(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    cattn_error error;
    const int32_t tokens[] = {1, 2, 3, 4, 5};
    cattn_seq a, b;
    assert_int_equal(cattn_seq_join(cache, tokens, 5, NULL, &a, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_join(cache, tokens, 4, NULL, &b, NULL, NULL), CATTN_OK);
    float data[8 * HEADS * DIM] = {0};
    const cattn_view kv = {data, CATTN_F32, KV_HEADS * DIM, DIM}, bytes = {data, CATTN_I8, KV_HEADS * DIM, DIM};
    float out_data[8 * HEADS * DIM];
    const cattn_view q = {data, CATTN_F32, HEADS * DIM, DIM}, nothing = {NULL, CATTN_F32, 0, 0};
    const cattn_view out = {out_data, CATTN_F32, HEADS * DIM, DIM};

    expect(cattn_step_end(cache, &error), CATTN_ERR_STATE, &error, "no step is open");
    expect(cattn_step_write(cache, 0, &kv, &kv, &error), CATTN_ERR_STATE, &error, "no step is open");
    cattn_entry twice[] = {{.seq = a, .max_rows = 1}, {.seq = a, .max_rows = 1}};
    expect(cattn_step_begin(cache, twice, 2, 0, &error), CATTN_ERR_ARG, &error, "entry 0 too");
    assert_int_equal(error.entry, 1);
    cattn_entry foreign[] = {{.seq = a, .max_rows = 1}, {.seq = 999, .max_rows = 1}};
    expect(cattn_step_begin(cache, foreign, 2, 0, &error), CATTN_ERR_ARG, &error, "999");
    cattn_entry none[] = {{.seq = a, .max_rows = 0}};
    expect(cattn_step_begin(cache, none, 1, 0, &error), CATTN_ERR_ARG, &error, "max_rows is 0");
    expect(cattn_step_begin(cache, none, 0, 0, &error), CATTN_ERR_ARG, &error, "n_entries is 0");

    /* The first entry computes the common prefix; the second computes only its own tokens, up to the limit. */
    cattn_entry both[] = {{.seq = a, .max_rows = 100}, {.seq = b, .max_rows = 100}};
    assert_int_equal(cattn_step_begin(cache, both, 2, 0, &error), CATTN_OK);
    assert_int_equal(both[0].first_pos, 0);
    assert_int_equal(both[0].n_rows, 5);
    assert_int_equal(both[1].first_pos, 2);
    assert_int_equal(both[1].n_rows, 2);
    cattn_seq other;
    expect(cattn_seq_join(cache, tokens, 2, NULL, &other, NULL, &error), CATTN_ERR_STATE, &error, "a step is open");
    expect(cattn_seq_leave(cache, &a, &error), CATTN_ERR_STATE, &error, "a step is open");
    expect(cattn_step_begin(cache, both, 2, 0, &error), CATTN_ERR_STATE, &error, "a step is open");
    expect(cattn_step_write(cache, 2, &kv, &kv, &error), CATTN_ERR_ARG, &error, "from 0 to 1");
    expect(cattn_step_write(cache, 0, &bytes, &kv, &error), CATTN_ERR_UNSUPPORTED, &error, "k->type");
    expect(cattn_step_attend(cache, 0, &q, &out, NULL, &error), CATTN_ERR_STATE, &error, "layer 0 was not written");
    assert_int_equal(cattn_step_write(cache, 0, &kv, &kv, &error), CATTN_OK);
    expect(cattn_step_attend(cache, 0, &nothing, &q, NULL, &error), CATTN_ERR_ARG, &error, "q is NULL");
    const cattn_view overlapping = {data, CATTN_F32, HEADS * DIM, DIM - 1}, flat = {data, CATTN_F32, 0, DIM};
    expect(cattn_step_attend(cache, 0, &q, &overlapping, NULL, &error), CATTN_ERR_ARG, &error, "out->head_stride is 63");
    expect(cattn_step_write(cache, 0, &kv, &flat, &error), CATTN_ERR_ARG, &error, "v->row_stride is 0");
    assert_int_equal(cattn_step_abort(cache, NULL), CATTN_OK);

    /* After an abort the other entry may claim all tokens. */
    cattn_entry limited[] = {{.seq = b, .max_rows = 100}, {.seq = a, .max_rows = 100}};
    assert_int_equal(cattn_step_begin(cache, limited, 2, 5, &error), CATTN_OK);
    assert_int_equal(limited[0].first_pos, 0);
    assert_int_equal(limited[0].n_rows, 4);
    assert_int_equal(limited[1].n_rows, 1);
    for (int layer = 0; layer < 2; layer++) {
        assert_int_equal(cattn_step_write(cache, layer, &kv, &kv, NULL), CATTN_OK);
        assert_int_equal(cattn_step_attend(cache, layer, &q, &out, NULL, NULL), CATTN_OK);
        if (layer == 0) expect(cattn_step_end(cache, &error), CATTN_ERR_STATE, &error, "layer 1 was not written");
    }
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    cattn_seq_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_seq_get_info(cache, b, &info, NULL), CATTN_OK);
    assert_int_equal(info.n_ready, 4);
    cattn_cache_destroy(&cache);
}

/* A step that writes and attends. Returns its number of rows, or -1 if begin failed with *error. */
static int64_t step_of(cattn_cache *cache, cattn_seq seq, int64_t max_rows, cattn_error *error) {
    static float data[4096 * 16 * DIM], out_data[4096 * 16 * DIM];
    const cattn_view kv = {data, CATTN_F32, DIM, DIM}, q = {data, CATTN_F32, 16 * DIM, DIM},
                     out = {out_data, CATTN_F32, 16 * DIM, DIM};
    cattn_entry entry = {.seq = seq, .max_rows = max_rows};
    if (cattn_step_begin(cache, &entry, 1, 0, error) != CATTN_OK) return -1;
    assert_int_equal(cattn_step_write(cache, 0, &kv, &kv, NULL), CATTN_OK);
    assert_int_equal(cattn_step_attend(cache, 0, &q, &out, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    return entry.n_rows;
}

/* max_rows may have any value, also if some rows have been computed before. */
static void rows_without_limit(void **state) {
    (void)state;
    cattn_config c = small();
    c.n_layers = c.n_kv_heads = 1;
    c.n_heads = 16;
    cattn_cache *cache = create(&c);
    static const int32_t tokens[40];
    cattn_seq seq;
    assert_int_equal(cattn_seq_join(cache, tokens, 40, NULL, &seq, NULL, NULL), CATTN_OK);
    assert_int_equal(step_of(cache, seq, 10, NULL), 10);
    assert_int_equal(step_of(cache, seq, INT64_MAX, NULL), 30);
    assert_int_equal(step_of(cache, seq, INT64_MAX, NULL), 0);
    cattn_cache_destroy(&cache);
}

/* Fill the cache with retained tokens, the first of which are in a sibling of seq's node. */
static void retain_all(cattn_cache *cache, int64_t n_common) {
    for (int32_t i = 0;; i++) {
        const cattn_stats stats = stats_of(cache);
        if (stats.chunks_live + stats.chunks_retained + 5 > stats.chunks_capacity) return;
        int32_t tokens[64];
        for (int32_t k = 0; k < 64; k++) tokens[k] = i == 0 && k < n_common ? k : 100000 + 100 * i + k;
        cattn_seq seq;
        assert_int_equal(cattn_seq_join(cache, tokens, 64, NULL, &seq, NULL, NULL), CATTN_OK);
        while (step_of(cache, seq, 1, NULL) > 0) {
        }
        assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK);
    }
}

/*
 * Retained chunks are evicted for a step's workspace, even those of the sibling of a node that the step computes, which is then
 * merged with its parent. Nothing is evicted for a workspace that would not fit in any case.
 */
static void workspace_is_had_by_evicting(void **state) {
    (void)state;
    for (int too_large = 0; too_large < 2; too_large++) {
        counter memory = {.left = -1};
        cattn_config c;
        cattn_config_init(&c);
        c.n_layers = 1;
        c.n_heads = 16;
        c.n_kv_heads = 1;
        c.head_dim = DIM;
        c.chunk_size = 16;
        c.kv_type = CATTN_F32;
        c.n_threads = too_large ? 8 : 2;
        c.budget_bytes = 4 << 20;
        c.allocator = (cattn_allocator){count_alloc, poison_free, &memory};
        cattn_cache *cache = create(&c);
        static int32_t tokens[4000];
        for (int i = 0; i < 4000; i++) tokens[i] = i;
        const int64_t n = too_large ? 4000 : 3000;
        cattn_seq seq;
        cattn_error error = {.code = CATTN_OK};
        assert_int_equal(cattn_seq_join(cache, tokens, n, NULL, &seq, NULL, NULL), CATTN_OK);
        for (int i = 0; i < 64; i++) assert_int_equal(step_of(cache, seq, 1, NULL), 1);
        retain_all(cache, 48);
        const cattn_stats before = stats_of(cache);
        const int64_t n_rows = step_of(cache, seq, 4000, &error);
        const cattn_stats after = stats_of(cache);
        if (too_large) {
            assert_int_equal(n_rows, -1);
            assert_int_equal(error.code, CATTN_ERR_BUDGET);
            assert_int_equal(after.tokens_evicted, before.tokens_evicted);
            assert_true(step_of(cache, seq, 100, NULL) > 0); /* a smaller step succeeds */
        } else {
            assert_int_equal(n_rows, n - 64);
            assert_true(after.tokens_evicted > before.tokens_evicted);
            cattn_seq_info info = {.struct_size = sizeof info};
            assert_int_equal(cattn_seq_get_info(cache, seq, &info, NULL), CATTN_OK);
            assert_int_equal(info.n_ready, n);
        }
        cattn_cache_destroy(&cache);
        assert_int_equal(memory.bytes, 0);
    }
}

static void names_are_told(void **state) {
    (void)state;
    assert_string_equal(cattn_version(), "0.1.0");
    assert_string_equal(cattn_status_name(CATTN_ERR_BUDGET), "CATTN_ERR_BUDGET");
    assert_string_equal(cattn_status_name((cattn_status)5), "unknown status");
    assert_null(cattn_cache_level(NULL));
    bool more;
    assert_int_equal(cattn_cache_prefault(NULL, 1, &more, NULL), CATTN_ERR_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_checked),
        cmocka_unit_test(every_level_of_this_cpu_can_be_chosen),
        cmocka_unit_test(sequence_calls_are_checked),
        cmocka_unit_test(a_negative_token_is_found_anywhere),
        cmocka_unit_test(steps_are_checked),
        cmocka_unit_test(rows_without_limit),
        cmocka_unit_test(workspace_is_had_by_evicting),
        cmocka_unit_test(names_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
