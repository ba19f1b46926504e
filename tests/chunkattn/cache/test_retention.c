/* Which leaf is evicted: by least recent use, or by what is learnt from uses; the same for equal calls. */
#include "tests/support/testing.h"

#include "small_tree.h"

enum { PROMPT = 32, N_CHUNKS = 64 };

/*
 * A request of an account for prompt number i of PROMPT tokens and one more, all of which become ready. Returns the tokens
 * found ready.
 */
static int64_t request_of(world *w, uint16_t account, int32_t i) {
    int32_t tokens[PROMPT + 1];
    cattn_join_result result;
    cattn_seq id;
    for (int32_t k = 0; k <= PROMPT; k++) tokens[k] = i * 64 + k;
    assert_int_equal(ca_tree_open_account(w->tree, account, 0, NULL), CATTN_OK);
    assert_int_equal(ca_tree_join(w->tree, tokens, PROMPT + 1, 0, 0, 0, &id, &result, NULL), CATTN_OK);
    ca_seq *seq = ca_tree_find(w->tree, id);
    seq->account = account;
    ca_path_claim(seq->leaf, PROMPT + 1);
    ca_path_commit(seq->leaf);
    ca_tree_leave(w->tree, seq);
    return result.n_ready;
}

static int64_t request(world *w, int32_t i) { return request_of(w, 0, i); }

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

/* ---- Accounts ---- */

/*
 * Account 0 sends its prompts once, then account 1 sends its prompts `rounds` times: which of them loses the first chunk. With
 * one account, account 1 sends them, too.
 */
typedef struct rivals {
    int n[2], rounds;
    double weights[2];
    bool one_account;
    int loser;
} rivals;

static const rivals rivalries[] = {
    {{1, 4}, 1, {1, 1}, true, 0},      /* the oldest */
    {{1, 4}, 1, {1, 1}, false, 1},     /* it has four times as much, and its oldest chunk is nearly as old */
    {{4, 1}, 1, {1, 1}, false, 0},     /* both older and more */
    {{2, 2}, 1, {1, 1}, false, 0},     /* as much */
    {{1, 4}, 1, {0.125, 1}, false, 0}, /* an eighth of the weight */
    {{2, 2}, 1, {16, 1}, false, 1},    /* much more weight */
    {{1, 4}, 20, {1, 1}, false, 0},    /* idle for so long that its chunk is worth less in spite of its part */
};

static int loser_of(const rivals *r, cattn_retention retention) {
    world w;
    setup(&w, CATTN_SHARED, retention, 4 * N_CHUNKS);
    for (uint32_t a = 0; a < 2; a++) assert_int_equal(ca_tree_open_account(w.tree, a, r->weights[a], NULL), CATTN_OK);
    for (int32_t i = 0; i < r->n[0]; i++) request_of(&w, 0, i);
    for (int k = 0; k < r->rounds; k++)
        for (int32_t i = 0; i < r->n[1]; i++) request_of(&w, !r->one_account, 100 + i);
    assert_true(ca_budget_evict_one(w.tree));
    check_tree(w.tree, w.pool, &w.layout);
    int64_t n_left = 0;
    for (int32_t i = 0; i < r->n[0]; i++) n_left += found(&w, i);
    teardown(&w);
    return n_left == (int64_t)r->n[0] * PROMPT;
}

/* Learned worth falls with the age, too, before anything is learnt. */
static void who_has_more_than_its_part_loses_first(void **state) {
    (void)state;
    const cattn_retention both[] = {CATTN_RETAIN_LRU, CATTN_RETAIN_LEARNED};
    for (size_t k = 0; k < sizeof rivalries / sizeof *rivalries; k++)
        for (int r = 0; r < 2; r++)
            if (loser_of(&rivalries[k], both[r]) != rivalries[k].loser)
                fail_msg("case %zu, retention %d: account %d loses nothing", k, r, rivalries[k].loser);
}

/* One account evicts the same, whichever it is. */
static void an_account_that_is_alone_changes_nothing(void **state) {
    (void)state;
    uint64_t sums[2] = {0};
    for (int i = 0; i < 2; i++) {
        world w;
        setup(&w, CATTN_SHARED, CATTN_RETAIN_LEARNED, 4 * N_CHUNKS);
        if (i == 1) assert_int_equal(ca_tree_open_account(w.tree, 9, 0.01, NULL), CATTN_OK);
        for (int32_t k = 0; k < 2000; k++)
            sums[i] = sums[i] * 31 + (uint64_t)request_of(&w, i == 1 ? 9 : 0, k * k % 97 + k / 500);
        check_tree(w.tree, w.pool, &w.layout);
        teardown(&w);
    }
    assert_true(sums[0] == sums[1]);
}

/* What one account has found useful survives another's sweep, of prompts that come back, too; its rest is lost in the end. */
static void a_sweep_takes_what_is_stale_alone(void **state) {
    (void)state;
    enum { KEPT = 2, SWEEP = 40 };
    const cattn_retention both[] = {CATTN_RETAIN_LRU, CATTN_RETAIN_LEARNED};
    for (int r = 0; r < 2; r++) {
        world w;
        setup(&w, CATTN_SHARED, both[r], 4 * N_CHUNKS);
        for (int32_t i = 0; i < KEPT; i++) request_of(&w, 1, i);
        for (int32_t i = 0; i < SWEEP; i++) request_of(&w, 2, 100 + i / 2);
        for (int32_t i = 0; i < SWEEP; i++) request_of(&w, 2, 200 + i);
        assert_true((int64_t)w.tree->accounts.at[2].n_retained > 4 * KEPT * PROMPT / C);
        for (int32_t i = 0; i < KEPT; i++) assert_int_equal(found(&w, i), PROMPT);
        for (int32_t i = 0; i < 250 * SWEEP; i++) request_of(&w, 2, 1000 + i);
        assert_int_equal(w.tree->accounts.at[1].n_retained, 0);
        check_tree(w.tree, w.pool, &w.layout);
        teardown(&w);
    }
}

static void join_of(world *w, uint16_t account, const char *letters) {
    assert_int_equal(ca_tree_open_account(w->tree, account, 0, NULL), CATTN_OK);
    join(w, letters);
    at(w, w->n_seqs)->account = account;
}

static void expect_retained(world *w, int n_1, int n_2, int n_3) {
    const int expected[] = {0, n_1, n_2, n_3};
    check_tree(w->tree, w->pool, &w->layout);
    for (size_t a = 0; a < 4; a++) assert_int_equal(w->tree->accounts.at[a].n_retained, expected[a]);
}

/* Chunks count for who left with them last, however nodes are cut, merged, forked, pinned, repeated and truncated. */
static void chunks_count_for_who_left_last(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, N_CHUNKS);
    assert_int_equal(ca_tree_open_account(w.tree, 3, 0, NULL), CATTN_OK);
    join_of(&w, 1, "abcdefghijkl5");
    compute(&w, 1, 13);
    leave(&w, 1);
    expect_retained(&w, 3, 0, 0);
    join_of(&w, 2, "abcdefXY5");  /* cuts the node within its second chunk */
    expect_retained(&w, 1, 0, 0); /* the second one is live, too, since the path leads through it */
    compute(&w, 2, 3);
    leave(&w, 2);
    expect_retained(&w, 2, 2, 0);   /* the second one is still that of the child that ends in it */
    join_of(&w, 3, "abcdefghijkl"); /* repeated: the copy of its last tokens is dropped, and what stays is its */
    compute(&w, 3, 2);
    leave(&w, 3);
    expect_retained(&w, 0, 1, 3);
    join_of(&w, 1, "abcdefghi5");
    compute(&w, 4, 2);
    fork_of(&w, 4);
    leave(&w, 4);
    expect_retained(&w, 0, 1, 1);
    leave(&w, 5); /* a fork has the account of its sequence */
    expect_retained(&w, 3, 1, 1);
    teardown(&w);
}

static void pins_and_truncation_count(void **state) {
    (void)state;
    world w;
    cattn_seq pin;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, N_CHUNKS);
    assert_int_equal(ca_tree_open_account(w.tree, 3, 0, NULL), CATTN_OK);
    join_of(&w, 1, "abcdefgh5");
    compute(&w, 1, 9);
    assert_int_equal(ca_tree_pin(w.tree, at(&w, 1), 4, &pin, NULL), CATTN_OK);
    at(&w, 1)->account = 2;
    leave(&w, 1);
    expect_retained(&w, 0, 1, 0);
    ca_tree_leave(w.tree, ca_tree_find(w.tree, pin)); /* it has the account that its sequence had */
    expect_retained(&w, 1, 1, 0);
    join_of(&w, 3, "abcdefghijk");
    cut_to(&w, 2, 2); /* what it found stays */
    expect_retained(&w, 0, 0, 1);
    leave(&w, 2);
    expect_retained(&w, 0, 0, 2);
    teardown(&w);
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
        cmocka_unit_test(who_has_more_than_its_part_loses_first),
        cmocka_unit_test(an_account_that_is_alone_changes_nothing),
        cmocka_unit_test(a_sweep_takes_what_is_stale_alone),
        cmocka_unit_test(chunks_count_for_who_left_last),
        cmocka_unit_test(pins_and_truncation_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
