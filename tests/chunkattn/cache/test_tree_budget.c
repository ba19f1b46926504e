/*
 * The tree and its budget: reservations that use all of it, prompts that need more chunks than it has left, and metadata that
 * meets its limit.
 */
#include "tests/support/testing.h"

#include <string.h>

#include "small_tree.h"

/* ---- Reservations ---- */

/* All that the budget has left is reserved for sequence 1, which can use and free it; no other call gets any of it. */
static void a_reservation_of_the_whole_budget(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 16);
    join(&w, "abcd");
    join(&w, "mnop");
    compute(&w, 2, 4);
    leave(&w, 2);
    const int64_t n_chunks = (int64_t)ca_chunk_pool_n_free(w.pool, 0) + 1; /* with the retained chunk */
    assert_int_equal(ca_tree_reserve(w.tree, at(&w, 1), 4 * n_chunks, NULL), CATTN_OK);
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_reserved, n_chunks);

    cattn_error error = {0};
    const uint64_t hash = hash_tree(w.tree, w.pool);
    const int32_t other[2] = {20, 21};
    cattn_seq id;
    assert_int_equal(ca_tree_join(w.tree, other, 2, 0, 0, 0, &id, NULL, &error), CATTN_ERR_BUDGET);
    assert_int_equal(error.code, CATTN_ERR_BUDGET);
    assert_non_null(strstr(error.message, "needs 1 chunks, but 0 are available"));
    const int32_t again[5] = {12, 13, 14, 15, 16}; /* matches what is retained, which backs the reservation */
    assert_int_equal(ca_tree_join(w.tree, again, 5, 0, 0, 0, &id, NULL, NULL), CATTN_ERR_BUDGET);
    assert_int_equal(ca_tree_fork(w.tree, at(&w, 1), 1, &id, NULL), CATTN_ERR_BUDGET);
    assert_false(ca_tree_make_room(w.tree, 1));
    assert_true(hash_tree(w.tree, w.pool) == hash);

    for (int round = 0; round < 3; round++) {
        for (int64_t i = 0; i < n_chunks; i++) append(&w, 1, "efgh");
        assert_int_equal(ca_tree_get_counts(w.tree)->chunks_reserved, 0);
        assert_int_equal(ca_tree_append(w.tree, at(&w, 1), other, 1, NULL), CATTN_ERR_BUDGET);
        cut_to(&w, 1, 3); /* the chunks are reserved again */
        append(&w, 1, "d");
        assert_int_equal(ca_tree_get_counts(w.tree)->chunks_reserved, n_chunks);
        check_tree(w.tree, w.pool, &w.layout);
    }
    teardown(&w);
}

/* Prompts that come again and again, all of which the budget holds: only what a match leaves out is computed again. */
static void repeated_prompts_stay(void **state) {
    (void)state;
    enum { N = 10, LENGTH = 12, ROUNDS = 20 };
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 64);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < N; i++) {
            int32_t prompt[LENGTH];
            for (int j = 0; j < LENGTH; j++) prompt[j] = j < 5 ? j : i + j;
            cattn_seq id;
            cattn_join_result result;
            assert_int_equal(ca_tree_join(w.tree, prompt, LENGTH, 0, 0, 0, &id, &result, NULL), CATTN_OK);
            assert_int_equal(result.n_ready, round > 0 ? LENGTH - 2 : i > 0 ? 4 : 0);
            ca_seq *seq = ca_tree_find(w.tree, id);
            ca_path_claim(seq->leaf, LENGTH);
            ca_path_commit(seq->leaf);
            ca_tree_leave(w.tree, seq);
            check_tree(w.tree, w.pool, &w.layout);
        }
    assert_int_equal(ca_tree_get_counts(w.tree)->tokens_evicted, 0);
    teardown(&w);
}

/* A prompt that is retained in several nodes holds more chunks than it would alone; if these are too many, less is shared. */
static void a_path_of_many_nodes_is_shared_as_far_as_the_budget_allows(void **state) {
    (void)state;
    enum { LONGEST = 2000 };
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 16);
    int32_t prompt[LONGEST], turn[LONGEST];
    for (int i = 0; i < LONGEST; i++) prompt[i] = i;
    cattn_seq id;
    const int64_t room = (int64_t)ca_chunk_pool_n_free(w.pool, 0);
    /* Each turn leaves the prompt inside a chunk, and holds a copy of the slots before. */
    for (int64_t shared = 6; 3 * shared < 8 * room; shared += 8) {
        memcpy(turn, prompt, (size_t)shared * sizeof *turn);
        turn[shared] = turn[shared + 1] = LONGEST;
        assert_int_equal(ca_tree_join(w.tree, turn, shared + 2, 0, 0, 0, &id, NULL, NULL), CATTN_OK);
        ca_seq *seq = ca_tree_find(w.tree, id);
        assert_true(ca_path_claim(seq->leaf, shared + 2) > 0);
        ca_path_commit(seq->leaf);
        ca_tree_leave(w.tree, seq);
    }
    const int64_t available = (int64_t)ca_chunk_pool_n_free(w.pool, 0) + (int64_t)ca_tree_get_counts(w.tree)->chunks_retained;
    assert_in_range(4 * available, 1, LONGEST);
    cattn_join_result result;
    cattn_error error = {.code = CATTN_ERR_STATE}; /* unchanged if the call succeeds in the end */
    assert_int_equal(ca_tree_join(w.tree, prompt, 4 * (available * 5 / 6), 0, 4, 0, &id, &result, &error), CATTN_OK);
    assert_int_equal(error.code, CATTN_ERR_STATE);
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_reserved, 1);
    assert_in_range(result.n_matched, 6, 4 * available / 2);
    check_tree(w.tree, w.pool, &w.layout);
    ca_tree_leave(w.tree, ca_tree_find(w.tree, id));
    teardown(&w);
}

/* ---- Metadata and the budget ---- */

/* Two slabs of four chunks, in each of which the first chunk is live and the others are retained. The budget is used up. */
static void *use_up_the_budget(world *w, size_t *n_bytes) {
    setup(w, CATTN_SHARED, CATTN_RETAIN_LRU, 16);
    assert_int_equal(ca_chunk_pool_slab_chunks(w->pool), 4);
    const char *prompts[] = {"abcd", "bcde", "cdef", "defg", "efgh", "fghi", "ghij", "hijk"};
    for (int i = 0; i < 8; i++) {
        join(w, prompts[i]);
        compute(w, i + 1, 4);
        if (i % 4 != 0) leave(w, i + 1);
    }
    const uint64_t budget = (1 << 16) + 16 * w->layout.chunk_bytes;
    *n_bytes = budget - ca_chunk_pool_bytes(w->pool) - w->alloc.bytes;
    return ca_new(&w->alloc, *n_bytes, 1);
}

static void nothing_is_evicted_if_no_slab_can_be_emptied(void **state) {
    (void)state;
    world w;
    size_t n_other;
    void *other = use_up_the_budget(&w, &n_other);
    const ca_tree_counts *counts = ca_tree_get_counts(w.tree);
    assert_int_equal(counts->chunks_retained, 6);
    assert_false(ca_tree_may_have_room(w.tree, 1));
    assert_false(ca_tree_make_room(w.tree, 1));
    assert_int_equal(counts->chunks_retained, 6);
    leave(&w, 1);
    assert_true(ca_tree_may_have_room(w.tree, ca_chunk_pool_slab_bytes(w.pool)));
    assert_false(ca_tree_may_have_room(w.tree, ca_chunk_pool_slab_bytes(w.pool) + 1));
    assert_true(ca_tree_make_room(w.tree, 1));
    assert_int_equal(ca_chunk_pool_bytes(w.pool), ca_chunk_pool_slab_bytes(w.pool));
    check_tree(w.tree, w.pool, &w.layout);
    ca_delete(&w.alloc, other, n_other, 1);
    teardown(&w);
}

/* A slab that has a live chunk cannot be returned, but its other chunks make up for metadata, up to the size of a slab here. */
static void spare_chunks_make_up_for_metadata(void **state) {
    (void)state;
    enum { MOST = 1000 };
    world w;
    size_t n_other;
    void *other = use_up_the_budget(&w, &n_other);
    cattn_seq forks[MOST];
    cattn_error error;
    cattn_status status = CATTN_OK;
    int n = 0;
    while (n < MOST && (status = ca_tree_fork(w.tree, at(&w, 1), 0, &forks[n], &error)) == CATTN_OK) {
        assert_in_range(ca_chunk_pool_excess(w.pool, 0), 1, ca_chunk_pool_slab_bytes(w.pool));
        n++;
    }
    assert_int_equal(status, CATTN_ERR_BUDGET);
    assert_non_null(strstr(error.message, "fork: metadata exceeds budget_bytes by "));
    assert_in_range(n, 1, MOST - 1);
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_retained, 6);
    for (int i = 0; i < n; i++) ca_tree_leave(w.tree, ca_tree_find(w.tree, forks[i]));
    ca_delete(&w.alloc, other, n_other, 1);
    teardown(&w);
}

static void a_merge_allocates_no_more_than_it_frees(void **state) {
    (void)state;
    enum { LONG = 1000 };
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 300);
    int32_t prompt[LONG];
    for (int i = 0; i < LONG; i++) prompt[i] = i;
    assert_int_equal(ca_tree_join(w.tree, prompt, LONG, 0, 0, 0, &w.seqs[w.n_seqs++], NULL, NULL), CATTN_OK);
    assert_int_equal(ca_tree_fork(w.tree, at(&w, 1), 0, &w.seqs[w.n_seqs++], NULL), CATTN_OK);
    append(&w, 1, "abcdefgh"); /* more than the node has room for */
    append(&w, 2, "b");
    const size_t before = w.alloc.bytes;
    leave(&w, 2);
    assert_int_equal(ca_tree_get_counts(w.tree)->n_nodes, 1);
    assert_in_range(w.alloc.bytes, 1, before);
    teardown(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reservation_of_the_whole_budget),
        cmocka_unit_test(repeated_prompts_stay),
        cmocka_unit_test(a_path_of_many_nodes_is_shared_as_far_as_the_budget_allows),
        cmocka_unit_test(a_merge_allocates_no_more_than_it_frees),
        cmocka_unit_test(nothing_is_evicted_if_no_slab_can_be_emptied),
        cmocka_unit_test(spare_chunks_make_up_for_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
