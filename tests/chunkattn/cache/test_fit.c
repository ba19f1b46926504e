/* The metadata that a request is said to need are what its calls allocate, at most, and little more. */
#include "tests/support/testing.h"

#include "chunkattn/cache/tree_internal.h"
#include "small_layout.h"

#include <stdbool.h>

enum { MOST_SEQS = 17, MOST_TOKENS = 5000 };

typedef struct world {
    ca_chunk_layout layout;
    ca_alloc alloc;
    ca_chunk_pool *pool;
    ca_tree *tree;
} world;

static void setup(world *w, cattn_sharing sharing, int c) {
    *w = (world){.alloc = ca_alloc_default()};
    const ca_tree_config config = {.sharing = sharing, .retention = CATTN_RETAIN_NONE};
    small_layout(&w->layout, 1, 2, c);
    assert_int_equal(ca_chunk_pool_create(&w->pool, &w->alloc, w->layout.chunk_bytes, 16 << 20), CATTN_OK);
    assert_int_equal(ca_tree_create(&w->tree, &config, &w->layout, w->pool, &w->alloc), CATTN_OK);
}

static void teardown(world *w) {
    ca_tree_destroy(&w->tree);
    ca_chunk_pool_destroy(&w->pool);
    small_layout_free(&w->layout);
    assert_int_equal(w->alloc.bytes, 0);
}

static void append(world *w, cattn_seq seq, int64_t n) {
    static const int32_t tokens[MOST_TOKENS];
    if (n > 0) assert_int_equal(ca_tree_append(w->tree, ca_tree_find(w->tree, seq), tokens, n, NULL), CATTN_OK);
}

/*
 * Let the sequences join, fork, and append what they have reserved: one token at a time, all of it at once, or all but the last
 * token at once, for which arrays double then that are nearly large enough. Returns the bytes of the metadata then.
 */
enum { ONE_BY_ONE, AT_ONCE, LAST_ALONE, N_WAYS };
static size_t run(world *w, const ca_fit *fit, int way) {
    static const int32_t tokens[MOST_TOKENS];
    cattn_seq seqs[MOST_SEQS];
    const size_t before = w->alloc.bytes;
    assert_true(fit->n_seqs <= MOST_SEQS && fit->n_tokens + fit->reserve_tokens <= MOST_TOKENS);
    assert_int_equal(ca_tree_join(w->tree, tokens, fit->n_tokens, 0, fit->reserve_tokens, 0, seqs, NULL, NULL), CATTN_OK);
    for (int64_t i = 1; i < fit->n_seqs; i++)
        assert_int_equal(ca_tree_fork(w->tree, ca_tree_find(w->tree, seqs[0]), fit->reserve_tokens, &seqs[i], NULL), CATTN_OK);
    const int64_t n = fit->reserve_tokens;
    for (int64_t i = 0; i < fit->n_seqs; i++) {
        if (way == AT_ONCE || (way == LAST_ALONE && n < 3)) append(w, seqs[i], n);
        if (way != LAST_ALONE || n < 3) continue;
        append(w, seqs[i], 1); /* which makes the node */
        append(w, seqs[i], n - 2);
        append(w, seqs[i], 1);
    }
    for (int64_t k = 0; k < n && way == ONE_BY_ONE; k++)
        for (int64_t i = 0; i < fit->n_seqs; i++) append(w, seqs[i], 1);
    const size_t bytes = w->alloc.bytes - before;
    for (int64_t i = 0; i < fit->n_seqs; i++) ca_tree_leave(w->tree, ca_tree_find(w->tree, seqs[i]));
    return bytes;
}

/* The most that the request allocates in any way must have been counted. Where an array doubles at the end, it is also close.
 */
static void compare(cattn_sharing sharing, int c, const ca_fit *fit) {
    size_t counted = 0, most = 0;
    for (int way = 0; way < N_WAYS; way++) {
        world w;
        setup(&w, sharing, c);
        const size_t bytes = run(&w, fit, way);
        counted = ca_fit_metadata(w.tree, fit);
        most = bytes > most ? bytes : most;
        teardown(&w);
    }
    const bool doubles = fit->n_tokens <= 100 && fit->reserve_tokens > 2 * 16 * c;
    /* Each node may count a chunk's tokens, its ids of chunks once more, and a place among its siblings too many. */
    const size_t n_ids = (size_t)(fit->n_tokens + fit->reserve_tokens) / (size_t)c + 3;
    const size_t node = (size_t)c * sizeof(int32_t) + n_ids * sizeof(ca_chunk_id) + 2 * sizeof(ca_node *);
    const size_t slots = (size_t)fit->n_seqs * sizeof(ca_seq_ref), n_nodes = (size_t)fit->n_seqs + 1;
    const size_t limit = fit->reserve_tokens == 0 || doubles ? most + n_nodes * node + slots : SIZE_MAX;
    if (counted < most || counted > limit)
        fail_msg("sharing %d, c = %d, %d tokens, %d sequences of %d: %zu bytes counted for %zu", sharing, c, (int)fit->n_tokens,
                 (int)fit->n_seqs, (int)fit->reserve_tokens, counted, most);
}

static void metadata_are_those_of_the_calls(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 33, 100, 1001, 2000}, reserved[] = {0, 1, 2, 15, 63, 64, 200, 2500};
    static const int64_t n_seqs[] = {1, 2, 3, 8, MOST_SEQS};
    for (int sharing = CATTN_SHARED; sharing <= CATTN_PRIVATE; sharing++)
        for (int c = 16; c <= 64; c *= 2)
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                for (size_t j = 0; j < sizeof reserved / sizeof *reserved; j++)
                    for (size_t k = 0; k < sizeof n_seqs / sizeof *n_seqs; k++)
                        compare((cattn_sharing)sharing, c, &(ca_fit){lengths[i], n_seqs[k], reserved[j]});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(metadata_are_those_of_the_calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
