/* Queries, which change nothing: a sequence's tokens, and how much of a prompt would match. And dropping what is retained. */
#include "tests/support/testing.h"

#include <string.h>

#include "cache.h"
#include "tests/support/rng.h"

enum { N_PROMPTS = 60, MAX_TOKENS = 200 };

static cattn_config small(cattn_sharing sharing) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = c.n_heads = c.n_kv_heads = 1;
    c.head_dim = 64;
    c.chunk_size = 16;
    c.sharing = sharing;
    c.n_threads = 1;
    c.budget_bytes = (uint64_t)32 << 20;
    return c;
}

typedef struct prompt {
    int32_t tokens[MAX_TOKENS];
    int64_t n;
    cattn_seq seq;
} prompt;

/* Few different tokens, so that prompts have common prefixes of all lengths. */
static void draw(rng *r, const prompt *before, int n_before, prompt *p) {
    p->n = rng_range(r, 1, MAX_TOKENS);
    const prompt *like = n_before > 0 ? &before[rng_below(r, n_before)] : NULL;
    const int64_t n_same = like ? rng_range(r, 0, like->n) : 0;
    for (int64_t i = 0; i < p->n; i++) p->tokens[i] = i < n_same ? like->tokens[i] : rng_below(r, 3);
}

static void compute(cattn_cache *cache, cattn_seq seq, int64_t max_rows) {
    cattn_entry entry = {.seq = seq, .max_rows = max_rows};
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
}

static void tokens_are_those_that_joined(void **state) {
    (void)state;
    static prompt prompts[N_PROMPTS];
    for (int sharing = CATTN_SHARED; sharing <= CATTN_PRIVATE; sharing++) {
        const cattn_config config = small((cattn_sharing)sharing);
        cattn_cache *cache = create(&config);
        rng r = {(uint64_t)sharing};
        int32_t got[MAX_TOKENS];
        for (int i = 0; i < N_PROMPTS; i++) {
            prompt *p = &prompts[i];
            draw(&r, prompts, i, p);
            const int64_t n_joined = rng_range(&r, 1, p->n);
            assert_int_equal(cattn_seq_join(cache, p->tokens, n_joined, NULL, &p->seq, NULL, NULL), CATTN_OK);
            if (n_joined < p->n)
                assert_int_equal(cattn_seq_append(cache, p->seq, p->tokens + n_joined, p->n - n_joined, NULL), CATTN_OK);
        }
        for (int i = 0; i < N_PROMPTS; i++) {
            const prompt *p = &prompts[i];
            const int64_t first = rng_range(&r, 0, p->n), n = rng_range(&r, 0, p->n - first);
            memset(got, -1, sizeof got);
            tokens_of(cache, p->seq, 0, p->n, got);
            assert_memory_equal(got, p->tokens, (size_t)p->n * sizeof *got);
            memset(got, -1, sizeof got);
            tokens_of(cache, p->seq, first, n, got);
            assert_memory_equal(got, p->tokens + first, (size_t)n * sizeof *got);
            if (n < MAX_TOKENS) assert_int_equal(got[n], -1);
        }
        cattn_cache_destroy(&cache);
    }
}

static void a_match_is_checked(void **state) {
    (void)state;
    static const int32_t tokens[] = {1, 2, 3, 4, 5};
    const cattn_config config = small(CATTN_SHARED);
    cattn_cache *cache = create(&config);
    cattn_error error;
    assert_int_equal(cattn_cache_match(cache, tokens, 0, NULL, &(cattn_join_result){0}, &error), CATTN_ERR_ARG);
    assert_int_equal(cattn_cache_match(cache, tokens, 5, NULL, NULL, &error), CATTN_ERR_ARG);
    cattn_cache_destroy(&cache);
}

/* cattn_cache_match returns what a join then reports, and changes nothing. */
static void a_match_is_what_join_reports(void **state) {
    (void)state;
    static prompt prompts[N_PROMPTS];
    for (int sharing = CATTN_SHARED; sharing <= CATTN_PRIVATE; sharing++) {
        const cattn_config config = small((cattn_sharing)sharing);
        cattn_cache *cache = create(&config);
        rng r = {(uint64_t)sharing + 10};
        int64_t n_matched = 0, n_ready = 0;
        for (int i = 0; i < N_PROMPTS; i++) {
            prompt *p = &prompts[i];
            draw(&r, prompts, i, p);
            cattn_join_options options;
            cattn_join_options_init(&options);
            options.domain = (uint32_t)rng_below(&r, 2);
            cattn_join_result would, did;
            const cattn_stats before = stats_of(cache);
            assert_int_equal(cattn_cache_match(cache, p->tokens, p->n, &options, &would, NULL), CATTN_OK);
            const cattn_stats after = stats_of(cache);
            assert_memory_equal(&before, &after, sizeof before);
            assert_int_equal(cattn_seq_join(cache, p->tokens, p->n, &options, &p->seq, &did, NULL), CATTN_OK);
            assert_int_equal(would.n_matched, did.n_matched);
            assert_int_equal(would.n_ready, did.n_ready);
            n_matched += did.n_matched;
            n_ready += did.n_ready;
            compute(cache, p->seq, rng_range(&r, 1, p->n));
            if (rng_chance(&r, 2)) assert_int_equal(cattn_seq_leave(cache, &p->seq, NULL), CATTN_OK);
        }
        assert_int_equal(n_matched > 0, sharing != CATTN_PRIVATE);
        assert_int_equal(n_ready > 0, sharing != CATTN_PRIVATE);
        cattn_cache_destroy(&cache);
    }
}

static void all_that_is_retained_can_be_dropped(void **state) {
    (void)state;
    static int32_t tokens[4000];
    cattn_config config = small(CATTN_SHARED);
    config.budget_bytes = (uint64_t)4 << 20; /* slabs of 64 chunks */
    cattn_cache *cache = create(&config);
    cattn_seq stays, leaves;
    assert_int_equal(cattn_seq_join(cache, tokens, 1000, NULL, &stays, NULL, NULL), CATTN_OK);
    compute(cache, stays, 1000);
    for (int i = 1000; i < 4000; i++) tokens[i] = 7;
    assert_int_equal(cattn_seq_join(cache, tokens, 4000, NULL, &leaves, NULL, NULL), CATTN_OK);
    compute(cache, leaves, 4000);
    assert_int_equal(cattn_seq_reserve(cache, stays, 100, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_leave(cache, &leaves, NULL), CATTN_OK);
    const cattn_stats before = stats_of(cache);
    assert_int_equal(before.tokens_stored, 4000);
    assert_int_equal(before.tokens_retained, 3000);
    assert_int_equal(before.slots_padding, 16); /* 8 are unused behind the 1000 tokens, 8 are copies before the 3000 */
    assert_int_equal(cattn_cache_drop_retained(cache, NULL), CATTN_OK);
    const cattn_stats after = stats_of(cache);
    assert_int_equal(after.chunks_retained, 0);
    assert_int_equal(after.tokens_stored, 1000);
    assert_int_equal(after.tokens_retained, 0);
    assert_int_equal(after.slots_padding, 8);
    assert_int_equal(after.chunks_live, before.chunks_live);
    assert_int_equal(after.chunks_reserved, before.chunks_reserved);
    assert_true(after.bytes_in_use + 128 * before.chunk_bytes <= before.bytes_in_use); /* 187 chunks were retained */
    const int32_t more[100] = {1};
    assert_int_equal(cattn_seq_append(cache, stays, more, 100, NULL), CATTN_OK); /* reserved */
    cattn_entry entry = {.seq = stays, .max_rows = 1};
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    assert_int_equal(cattn_cache_drop_retained(cache, NULL), CATTN_ERR_STATE);
    assert_int_equal(cattn_cache_drop_retained(NULL, NULL), CATTN_ERR_ARG);
    cattn_cache_destroy(&cache);
}

/* A fork's K/V copies may still be pending when their source chunks are free and about to be returned to the system. */
static void copies_are_made_before_their_source_goes(void **state) {
    (void)state;
    enum { N = 8192, DIM = 64 }; /* a slab of 512 chunks */
    static int32_t tokens[N];
    static float ones[N][DIM], q[DIM], out[DIM];
    const cattn_config config = small(CATTN_PRIVATE);
    cattn_cache *cache = create(&config);
    const cattn_view kv = {ones, CATTN_F32, DIM, DIM}, q_view = {q, CATTN_F32, DIM, DIM}, out_view = {out, CATTN_F32, DIM, DIM};
    for (int i = 0; i < N; i++)
        for (int k = 0; k < DIM; k++) ones[i][k] = 1;
    cattn_entry entry = {.max_rows = N};
    cattn_seq fork;
    assert_int_equal(cattn_seq_join(cache, tokens, N, NULL, &entry.seq, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    assert_int_equal(cattn_step_write(cache, 0, &kv, &kv, NULL), CATTN_OK);
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_fork(cache, entry.seq, 0, &fork, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_leave(cache, &entry.seq, NULL), CATTN_OK);
    const uint64_t before = stats_of(cache).bytes_in_use;
    assert_int_equal(cattn_cache_drop_retained(cache, NULL), CATTN_OK);
    assert_true(stats_of(cache).bytes_in_use < before);
    assert_int_equal(cattn_seq_append(cache, fork, tokens, 1, NULL), CATTN_OK);
    entry = (cattn_entry){.seq = fork, .max_rows = 1};
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    assert_int_equal(entry.first_pos, N);
    assert_int_equal(cattn_step_write(cache, 0, &kv, &kv, NULL), CATTN_OK);
    assert_int_equal(cattn_step_attend(cache, 0, &q_view, &out_view, NULL, NULL), CATTN_OK);
    for (int k = 0; k < DIM; k++) assert_true(out[k] > 0.99f && out[k] < 1.01f); /* a mean of ones */
    cattn_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_that_joined),
        cmocka_unit_test(a_match_is_checked),
        cmocka_unit_test(a_match_is_what_join_reports),
        cmocka_unit_test(all_that_is_retained_can_be_dropped),
        cmocka_unit_test(copies_are_made_before_their_source_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
