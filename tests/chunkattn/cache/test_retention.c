/* Which leaf is evicted: by least recent use, or by what is learnt from uses; the same for equal calls. */
#include "tests/support/testing.h"

#include "small_tree.h"

enum { PROMPT = 32, N_CHUNKS = 64 };

/* A request for prompt number i of PROMPT tokens and one more, all of which become ready. Returns the tokens found ready. */
static int64_t request(world *w, int32_t i) {
    int32_t tokens[PROMPT + 1];
    cattn_join_result result;
    cattn_seq id;
    for (int32_t k = 0; k <= PROMPT; k++) tokens[k] = i * 64 + k;
    assert_int_equal(ca_tree_join(w->tree, tokens, PROMPT + 1, 0, 0, 0, &id, &result, NULL), CATTN_OK);
    ca_seq *seq = ca_tree_find(w->tree, id);
    ca_path_claim(seq->leaf, PROMPT + 1);
    ca_path_commit(seq->leaf);
    ca_tree_leave(w->tree, seq);
    return result.n_ready;
}

static int64_t found(const world *w, int32_t i) {
    int32_t tokens[PROMPT + 1];
    for (int32_t k = 0; k <= PROMPT; k++) tokens[k] = i * 64 + k;
    return ca_tree_find_prefix(w->tree, tokens, PROMPT + 1, 0).n_ready;
}

static void the_least_recently_used_leaf_is_evicted_first(void **state) {
    (void)state;
    const cattn_retention both[] = {CATTN_RETAIN_LRU, CATTN_RETAIN_LEARNED}; /* the latter before it has learnt anything */
    for (int r = 0; r < 2; r++) {
        world w;
        setup(&w, CATTN_SHARED, both[r], N_CHUNKS);
        for (int32_t i = 1; i <= 3; i++) request(&w, i);
        request(&w, 1);
        assert_true(ca_budget_evict_one(w.tree));
        assert_int_equal(found(&w, 2), PROMPT - C); /* a chunk at a time, the last first */
        for (int i = 1; i < PROMPT / C; i++) assert_true(ca_budget_evict_one(w.tree));
        assert_int_equal(found(&w, 2), 0);
        for (int i = 0; i < PROMPT / C; i++) assert_true(ca_budget_evict_one(w.tree));
        assert_int_equal(found(&w, 3), 0);
        assert_int_equal(found(&w, 1), PROMPT);
        assert_int_equal(ca_tree_get_counts(w.tree)->tokens_evicted, 2 * PROMPT);
        check_tree(w.tree, w.pool, &w.layout);
        teardown(&w);
    }
}

/* Tokens that are found, of `rounds` times the prompts [0, n) one after the other. */
static int64_t cycle(world *w, int32_t n, int rounds) {
    int64_t sum = 0;
    for (int r = 0; r < rounds; r++)
        for (int32_t i = 0; i < n; i++) sum += request(w, i);
    return sum;
}

static int32_t prompts_that_fit(const world *w) { return (int32_t)ca_chunk_pool_n_free(w->pool, 0) / (PROMPT / C) - 1; }

static void a_part_of_cyclic_prompts_stays(void **state) {
    (void)state;
    enum { ROUNDS = 50 };
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 4 * N_CHUNKS);
    const int32_t n = prompts_that_fit(&w) + 4;
    assert_int_equal(cycle(&w, n, ROUNDS), 0);
    teardown(&w);
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LEARNED, 4 * N_CHUNKS);
    assert_true(cycle(&w, n, ROUNDS) > (int64_t)ROUNDS * n * PROMPT / 2);
    check_tree(w.tree, w.pool, &w.layout);
    teardown(&w);
}

/* Tokens of one prompt that are found when it comes back after more others than fit, which are used once. */
static int64_t washed(cattn_retention retention) {
    enum { ROUNDS = 40 };
    world w;
    setup(&w, CATTN_SHARED, retention, 4 * N_CHUNKS);
    const int32_t n_others = prompts_that_fit(&w) + 4;
    int64_t sum = 0;
    for (int32_t r = 0; r < ROUNDS; r++) {
        sum += request(&w, 0);
        for (int32_t i = 0; i < n_others; i++) request(&w, 1 + r * n_others + i);
    }
    teardown(&w);
    return sum / ROUNDS;
}

static void one_time_prompts_do_not_displace_a_hot_one(void **state) {
    (void)state;
    assert_int_equal(washed(CATTN_RETAIN_LRU), 0);
    assert_in_range(washed(CATTN_RETAIN_LEARNED), PROMPT / 2, PROMPT);
}

/* Ask with the first n tokens of conversation number i, and leave. Returns the tokens found ready. */
static int64_t turn(world *w, int32_t i, int64_t n) {
    int32_t tokens[1024];
    cattn_join_result result;
    cattn_seq id;
    for (int32_t k = 0; k < n; k++) tokens[k] = 1000 * i + k;
    assert_int_equal(ca_tree_join(w->tree, tokens, n, 0, 0, 0, &id, &result, NULL), CATTN_OK);
    ca_seq *seq = ca_tree_find(w->tree, id);
    ca_path_claim(seq->leaf, n);
    ca_path_commit(seq->leaf);
    ca_tree_leave(w->tree, seq);
    return result.n_ready;
}

/* A conversation of a few turns stays when a batch of prompts that are used once goes through the cache, however early. */
static void a_conversation_survives_a_sweep(void **state) {
    (void)state;
    enum { FIRST = 8 * C, TURN = 2 * C };
    for (int i = 0; i < 10; i++) {
        const int n_turns = 2 + i / 2, n_others = i % 2 ? 24 : 240; /* 24: three times what the cache holds */
        world w;
        setup(&w, CATTN_SHARED, CATTN_RETAIN_LEARNED, N_CHUNKS);
        for (int t = 0; t < n_turns; t++) turn(&w, 1, FIRST + t * TURN + 1);
        for (int32_t k = 0; k < n_others; k++) turn(&w, 2 + k, 8 * C + 1);
        const int64_t n = FIRST + (n_turns - 1) * TURN, found = turn(&w, 1, n + TURN + 1);
        assert_in_range(found, n - 2 * TURN, n);
        check_tree(w.tree, w.pool, &w.layout);
        teardown(&w);
    }
}

static void sequences_that_run_at_once_count_as_one_use(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LEARNED, N_CHUNKS);
    join(&w, "abcdefghi");
    compute(&w, 1, 9);
    join(&w, "abcdefghj");
    fork_of(&w, 2);
    const ca_chunk_id first = ca_path_chunk(w.tree, at(&w, 1)->leaf, 0);
    for (int i = 1; i <= 3; i++) leave(&w, i);
    assert_int_equal(ca_chunk_at(w.pool, first)->n_uses, 1);
    assert_int_equal(join(&w, "abcdefghk"), 8);
    leave(&w, 4);
    assert_int_equal(ca_chunk_at(w.pool, first)->n_uses, 2);
    teardown(&w);
}

/* The history knows a prompt's uses after its chunks have been evicted. */
static void evicted_chunks_are_remembered(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LEARNED, 4 * N_CHUNKS);
    for (int use = 1; use <= 3; use++) {
        assert_int_equal(request(&w, 7), 0);
        int32_t tokens[PROMPT + 1];
        for (int32_t k = 0; k <= PROMPT; k++) tokens[k] = 7 * 64 + k;
        const ca_match match = ca_tree_match(w.tree, tokens, PROMPT, 0);
        assert_int_equal(ca_chunk_at(w.pool, match.node->chunks[0])->n_uses, use);
        ca_tree_drop_retained(w.tree);
    }
    teardown(&w);
}

static void the_same_calls_evict_the_same(void **state) {
    (void)state;
    uint64_t hashes[2];
    for (int i = 0; i < 2; i++) {
        world w;
        setup(&w, CATTN_SHARED, CATTN_RETAIN_LEARNED, 4 * N_CHUNKS);
        cycle(&w, 40, 10);
        for (int32_t k = 0; k < 500; k++) request(&w, k * k % 97);
        hashes[i] = hash_tree(w.tree, w.pool);
        teardown(&w);
    }
    assert_true(hashes[0] == hashes[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_leaf_is_evicted_first),
        cmocka_unit_test(a_part_of_cyclic_prompts_stays),
        cmocka_unit_test(one_time_prompts_do_not_displace_a_hot_one),
        cmocka_unit_test(a_conversation_survives_a_sweep),
        cmocka_unit_test(sequences_that_run_at_once_count_as_one_use),
        cmocka_unit_test(evicted_chunks_are_remembered),
        cmocka_unit_test(the_same_calls_evict_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
