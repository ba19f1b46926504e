/* What queries refuse (tests/chunkattn/exact has what they answer), and dropping what is retained. */
#include "tests/support/testing.h"

#include <string.h>

#include "cache.h"

static cattn_config small(cattn_sharing sharing) {
    cattn_config c = small_config(1, 1, 1, 64, 32 << 20);
    c.sharing = sharing;
    return c;
}

static void compute(cattn_cache *cache, cattn_seq seq, int64_t max_rows) {
    cattn_entry entry = {.seq = seq, .max_rows = max_rows};
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    end_step(cache);
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
        cmocka_unit_test(a_match_is_checked),
        cmocka_unit_test(all_that_is_retained_can_be_dropped),
        cmocka_unit_test(copies_are_made_before_their_source_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
