/* Tokens with extra hashes: what is shared, what is shown, and what is refused. */
#include "tests/support/testing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "chunkattn/cache/extras.h"
#include "tests/support/blob.h"
#include "tests/support/rng.h"
#include "tests/support/status.h"

enum { N = 60 };

static cattn_config small(void) {
    cattn_config c = small_config(1, 1, 1, 64, 8 << 20);
    c.tier_fingerprint[0] = 1;
    return c;
}

/* A prompt in which an image stands for the tokens [20, 36), all of which are 7. */
static const int32_t *prompt(void) {
    static int32_t tokens[N];
    for (int i = 0; i < N; i++) tokens[i] = i >= 20 && i < 36 ? 7 : i;
    return tokens;
}

typedef struct extras {
    uint64_t whole;
    int n;
    cattn_extra at[3];
} extras;

static cattn_join_options options_of(const extras *x) {
    cattn_join_options o;
    cattn_join_options_init(&o);
    o.extra_hash = x->whole;
    o.extras = x->at;
    o.n_extras = x->n;
    return o;
}

static int64_t matched(const cattn_cache *cache, const extras *x) {
    const cattn_join_options o = options_of(x);
    cattn_join_result result;
    cattn_error error;
    check(cattn_cache_match(cache, prompt(), N, &o, &result, &error), &error);
    assert_int_equal(result.n_ready, result.n_matched);
    return result.n_matched;
}

/* A sequence that has been computed. */
static cattn_seq run(cattn_cache *cache, const extras *x) {
    const cattn_join_options o = options_of(x);
    cattn_error error;
    cattn_entry e = {.max_rows = N};
    check(cattn_seq_join(cache, prompt(), N, &o, &e.seq, NULL, &error), &error);
    check(cattn_step_begin(cache, &e, 1, 0, &error), &error);
    end_step(cache);
    return e.seq;
}

static void equal_tokens_with_other_hashes_are_not_shared(void **state) {
    (void)state;
    static const extras none = {0}, image = {0, 1, {{20, 16, 5}}}, other = {0, 1, {{20, 16, 6}}},
                        longer = {0, 1, {{20, 18, 5}}}, shorter = {0, 1, {{20, 10, 5}}},
                        two = {0, 2, {{20, 10, 5}, {30, 6, 8}}}, adapter = {9, 0, {{0}}}, both = {9, 1, {{20, 16, 5}}},
                        first = {0, 1, {{0, 1, 9}}}, mixed = {9, 1, {{0, 3, 4}}}, late = {0, 1, {{21, 15, 5}}};
    static const struct {
        const extras *cached, *joins;
        int64_t n;
    } cases[] = {
        {&none, &none, 58},    {&image, &image, 58},   {&image, &other, 20}, {&image, &none, 20},      {&none, &image, 20},
        {&image, &longer, 36}, {&image, &shorter, 30}, {&image, &two, 30},   {&two, &image, 30},       {&two, &two, 58},
        {&image, &late, 20},   {&adapter, &none, 0},   {&none, &adapter, 0}, {&adapter, &adapter, 58}, {&both, &both, 58},
        {&both, &image, 0},    {&both, &adapter, 20},  {&first, &none, 0},   {&mixed, &adapter, 0},    {&mixed, &mixed, 58},
        {&mixed, &first, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cattn_config c = small();
        cattn_cache *cache = create(&c);
        cattn_seq seq = run(cache, cases[i].cached);
        if (matched(cache, cases[i].joins) != cases[i].n)
            fail_msg("case %zu: %d tokens match", i, (int)matched(cache, cases[i].joins));
        assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK);
        assert_int_equal(matched(cache, cases[i].joins), cases[i].n); /* retained */
        cattn_cache_destroy(&cache);
    }
}

static int show(void *shown, const cattn_node_info *node) {
    memcpy((int32_t *)shown + node->first_pos, node->tokens, (size_t)node->n_tokens * sizeof(int32_t));
    return 0;
}

static void tokens_are_shown_as_they_were_given(void **state) {
    (void)state;
    static const extras image = {3, 1, {{20, 16, 5}}}, other = {3, 1, {{20, 16, 6}}};
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    cattn_seq seq = run(cache, &image);
    int32_t tokens[N], more[2] = {11, 12};
    const cattn_append append = {seq, more, 2, 77};
    assert_int_equal(cattn_seqs_append(cache, &append, 1, NULL, NULL), CATTN_OK);
    cattn_entry e = {.seq = seq, .max_rows = 1};
    int32_t row = 0;
    assert_int_equal(cattn_step_begin(cache, &e, 1, 0, NULL), CATTN_OK);
    cattn_rows rows = {.struct_size = sizeof rows, .capacity = 1, .tokens = &row};
    assert_int_equal(cattn_step_rows(cache, &rows, NULL), CATTN_OK);
    assert_int_equal(row, 11);
    assert_int_equal(cattn_step_abort(cache, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_truncate(cache, seq, N, NULL), CATTN_OK);
    uint64_t cursor = 0;
    assert_int_equal(cattn_cache_walk(cache, NULL, &cursor, show, tokens, NULL), CATTN_OK);
    assert_memory_equal(tokens, prompt(), sizeof tokens);
    const cattn_join_options o = options_of(&other);
    cattn_explanation x = {.struct_size = sizeof x};
    assert_int_equal(cattn_cache_explain(cache, prompt(), N, &o, &x, NULL), CATTN_OK);
    assert_int_equal(x.n_matched, 20);
    assert_int_equal(x.end, CATTN_MATCH_DIFFERS);
    assert_int_equal(x.difference, 20); /* the token is the same, its hash another */
    assert_int_equal(x.next[0], 7);
    assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK);
    cattn_cache_destroy(&cache);
}

static void exports_have_their_hashes(void **state) {
    (void)state;
    static const extras image = {3, 1, {{20, 16, 5}}}, none = {0};
    const cattn_config c = small();
    cattn_cache *from = create(&c), *to = create(&c);
    cattn_error error;
    blob b = {0}, again = {0};
    cattn_seq seq = run(from, &image), imported;
    check(cattn_seq_export(from, seq, N, blob_add, &b, &error), &error);
    cattn_join_options o = options_of(&image);
    expect(cattn_seq_import(to, b.bytes, b.n, &o, &imported, NULL, &error), CATTN_ERR_ARG, &error, "extra_hash is set");
    o.extra_hash = 0;
    expect(cattn_seq_import(to, b.bytes, b.n, &o, &imported, NULL, &error), CATTN_ERR_ARG, &error, "n_extras is set");
    check(cattn_seq_import(to, b.bytes, b.n, NULL, &imported, NULL, &error), &error);
    assert_int_equal(matched(to, &image), 58);
    assert_int_equal(matched(to, &none), 0);
    check(cattn_seq_export(to, imported, N, blob_add, &again, &error), &error);
    assert_int_equal(again.n, b.n);
    assert_memory_equal(again.bytes, b.bytes, b.n);
    blob_free(&b), blob_free(&again);
    cattn_cache_destroy(&from);
    cattn_cache_destroy(&to);
}

static void wrong_ranges_are_refused(void **state) {
    (void)state;
    static const struct {
        extras x;
        int32_t entry;
        const char *text;
    } cases[] = {
        {{0, 1, {{-1, 1, 5}}}, 0, "extras[0].first_pos is -1; it must be at least 0"},
        {{0, 1, {{0, 0, 5}}}, 0, "extras[0].n_tokens is 0"},
        {{0, 1, {{N, 1, 5}}}, 0, "extras[0].n_tokens is 1"},
        {{0, 1, {{1, N, 5}}}, 0, "from position 1 on, end within the 60 tokens"},
        {{0, 1, {{1, INT64_MAX, 5}}}, 0, "extras[0].n_tokens"},
        {{0, 1, {{INT64_MAX, 1, 5}}}, 0, "extras[0].n_tokens"},
        {{0, 2, {{0, 4, 5}, {3, 1, 5}}}, 1, "extras[1].first_pos is 3; it must be at least 4"},
        {{0, 3, {{0, 4, 5}, {4, 1, 5}, {5, 1, 0}}}, 2, "extras[2].hash is 0"},
        {{0, -1, {{0}}}, -1, "n_extras is -1"},
    };
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cattn_join_options o = options_of(&cases[i].x);
        cattn_join_result result;
        cattn_error error;
        cattn_seq seq;
        expect(cattn_seq_join(cache, prompt(), N, &o, &seq, NULL, &error), CATTN_ERR_ARG, &error, cases[i].text);
        assert_int_equal(error.entry, cases[i].entry);
        expect(cattn_cache_match(cache, prompt(), N, &o, &result, &error), CATTN_ERR_ARG, &error, cases[i].text);
    }
    cattn_join_options missing = options_of(&(extras){0, 1, {{0}}});
    missing.extras = NULL;
    cattn_error error;
    expect(cattn_seq_join(cache, prompt(), N, &missing, &(cattn_seq){0}, NULL, &error), CATTN_ERR_ARG, &error,
           "extras is NULL");
    missing = (cattn_join_options){.struct_size = sizeof missing, .max_step_rows = -2};
    expect(cattn_seq_join(cache, prompt(), N, &missing, &(cattn_seq){0}, NULL, &error), CATTN_ERR_ARG, &error,
           "max_step_rows is -2");
    assert_int_equal(stats_of(cache).n_seqs, 0);
    cattn_cache_destroy(&cache);
}

/* The table against a plain list: ids are unique, stay while they are held, and give the pairs back. */
static void ids_belong_to_pairs(void **state) {
    (void)state;
    enum { PAIRS = 300, STEPS = 20000 };
    static int32_t ids[PAIRS];
    static int held[PAIRS];
    ca_alloc alloc = ca_alloc_default();
    ca_extras x = {0};
    rng r = {4};
    for (int step = 0; step < STEPS; step++) {
        const int i = rng_below(&r, PAIRS);
        const uint64_t hash = 1 + (uint64_t)i % 7;
        int32_t id = i / 7;
        if (held[i] > 0 && rng_chance(&r, 2)) {
            ca_extras_end_hold(&x, &ids[i], 1);
            held[i]--;
            continue;
        }
        int32_t found = id;
        if (held[i] > 0) ca_extras_find(&x, &found, 1, hash);
        assert_true(held[i] == 0 || found == ids[i]);
        while (ca_extras_hold(&x, &id, 1, hash) == 0) assert_int_equal(ca_extras_grow(&x, &alloc), 0);
        assert_true(id < 0 && (held[i] == 0 || id == ids[i]));
        for (int k = 0; k < PAIRS && held[i] == 0; k++) assert_true(k == i || held[k] == 0 || ids[k] != id);
        ids[i] = id;
        held[i]++;
        uint64_t shown;
        ca_extras_show(&x, &id, &shown, 1);
        assert_true(id == i / 7 && shown == hash);
    }
    for (int i = 0; i < PAIRS; i++)
        for (; held[i] > 0; held[i]--) ca_extras_end_hold(&x, &ids[i], 1);
    assert_int_equal(x.n, 0);
    ca_extras_free(&x, &alloc);
    assert_int_equal(alloc.bytes, 0);
}

/* ---- Memory ---- */

/* An extra hash, and the first id that token 7 may have with it. */
typedef struct numbered {
    int32_t id;
    uint64_t hash;
} numbered;

static int by_id(const void *a, const void *b) {
    const int32_t x = ((const numbered *)a)->id, y = ((const numbered *)b)->id;
    return (x > y) - (x < y);
}

/* Two hashes with which token 7 has the same first id. */
static void find_collision(uint64_t hashes[2]) {
    enum { N_TRIED = 200000 };
    const ca_extras none = {0};
    numbered *all = malloc(N_TRIED * sizeof *all);
    for (int i = 0; i < N_TRIED; i++) {
        all[i] = (numbered){7, (uint64_t)i + 1000};
        ca_extras_find(&none, &all[i].id, 1, all[i].hash);
    }
    qsort(all, N_TRIED, sizeof *all, by_id);
    int i = 1;
    while (all[i].id != all[i - 1].id) i++;
    for (int k = 0; k < 2; k++) hashes[k] = all[i - k].hash;
    free(all);
}

static size_t refused_size; /* of allocations; 0: none */

static void *alloc_unless(void *ctx, size_t size, size_t align) {
    (void)ctx;
    return size == refused_size ? NULL : aligned_alloc(align, (size + align - 1) / align * align);
}

static void free_any(void *ctx, void *p, size_t size, size_t align) {
    (void)ctx, (void)size, (void)align;
    free(p);
}

static cattn_seq join_with(cattn_cache *cache, uint64_t hash) {
    const extras x = {.n = 1, .at = {{N - 1, 1, hash}}};
    const cattn_join_options o = options_of(&x);
    int32_t tokens[N];
    cattn_error error;
    cattn_seq seq;
    memcpy(tokens, prompt(), sizeof tokens);
    tokens[N - 1] = 7;
    check(cattn_seq_join(cache, tokens, N, &o, &seq, NULL, &error), &error);
    return seq;
}

/* A token whose id has collided may get another one when it is computed once more. Without memory for it, it stays. */
static void a_token_keeps_its_hash_without_memory(void **state) {
    (void)state;
    enum { FIRST_SIZE = 16, N_OTHERS = FIRST_SIZE / 2 - 2 };
    uint64_t hashes[2];
    cattn_config c = small();
    cattn_cache *cache;
    cattn_error error;
    find_collision(hashes);
    c.retention = CATTN_RETAIN_NONE;
    c.allocator = (cattn_allocator){.alloc = alloc_unless, .free = free_any};
    check(cattn_cache_create(&c, &cache, &error), &error);
    cattn_seq first = join_with(cache, hashes[0]), seq = join_with(cache, hashes[1]);
    for (uint64_t i = 1; i <= N_OTHERS; i++) join_with(cache, i);
    check(cattn_seq_leave(cache, &first, &error), &error);
    first = join_with(cache, 999); /* the table is full now */
    refused_size = 2 * FIRST_SIZE * sizeof(ca_extra);
    assert_int_equal(cattn_seq_recompute_last(cache, seq, &error), CATTN_ERR_NOMEM);
    assert_non_null(strstr(error.message, "for the extra hash of the last token"));
    refused_size = 0;
    check(cattn_seq_recompute_last(cache, seq, &error), &error);
    cattn_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_tokens_with_other_hashes_are_not_shared),
        cmocka_unit_test(tokens_are_shown_as_they_were_given),
        cmocka_unit_test(exports_have_their_hashes),
        cmocka_unit_test(wrong_ranges_are_refused),
        cmocka_unit_test(ids_belong_to_pairs),
        cmocka_unit_test(a_token_keeps_its_hash_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
