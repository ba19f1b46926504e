/*
 * The tree against a model, an array of token lists, through random calls (tree_model.h). All invariants are checked after each
 * call. In some runs the tree has a file tier, whose requests are carried out at random times.
 *
 * usage: cache_tree_random_test [SEED [CALLS]], the first seed and the calls of a run
 */
#include "tests/support/testing.h"

#include "tree_model.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_BUDGETS = 3 };
static const uint64_t budgets[N_BUDGETS] = {1 << 16, 3 << 16, 1 << 20};

static uint64_t n_restored; /* tokens, in all runs */

static void run(uint64_t seed, int n_calls, int c, cattn_sharing sharing, cattn_retention retention, uint64_t budget,
                bool faulty) {
    const ca_tree_config config = {.sharing = sharing, .retention = retention};
    world w;
    world_create(&w, seed, c, &config, budget, faulty);
    printf("seed %d: %d calls, c = %d, sharing %d, retention %d, budget %d%s", (int)seed, n_calls, c, sharing, retention,
           (int)budget, faulty ? ", faults" : "");
    fflush(stdout);
    if (sharing == CATTN_SHARED && retention != CATTN_RETAIN_NONE && (faulty || world_below(&w, 2))) world_open_tier(&w);
    for (int i = 0; i < N_TEMPLATES; i++)
        for (int j = 0; j < MAX_TOKENS; j++) w.templates[i][j] = world_token(&w);

    for (int call = 0; call < n_calls; call++) {
        const int64_t kind = world_below(&w, 100);
        const int i = w.n_seqs > 0 ? (int)world_below(&w, w.n_seqs) : -1;
        const size_t excess = ca_chunk_pool_excess(w.pool, 0);
        w.unchecked = 0;
        if (w.tier && world_below(&w, 6) == 0)
            world_tier(&w);
        else if (kind < 25 || i < 0)
            world_join(&w);
        else if (kind < 50)
            world_append(&w, &w.seqs[i]);
        else if (kind < 65)
            world_step(&w);
        else if (kind < 70)
            world_fork(&w, &w.seqs[i]);
        else if (kind < 72)
            world_pin(&w, &w.seqs[i]);
        else if (kind < 80)
            world_truncate(&w, &w.seqs[i]);
        else if (kind < 85)
            world_reserve(&w, &w.seqs[i]);
        else if (kind < 98)
            world_leave(&w, i);
        else
            world_workspace(&w, budget);
        world_check(&w);
        world_check_budget(&w, excess);
        world_look(&w);
    }
    const ca_tree_counts *counts = ca_tree_get_counts(w.tree);
    printf(": %d refused, %d shortened, %d faults, %d of %d tokens matched, %d evicted, %d copies, %d early, "
           "%d restored\n",
           (int)w.n_refused, (int)w.n_shortened, (int)w.n_faults, (int)counts->tokens_matched, (int)counts->tokens_joined,
           (int)counts->tokens_evicted, (int)w.n_copies, (int)w.n_early_copies, (int)counts->tokens_restored);
    n_restored += counts->tokens_restored;
    if (budget == budgets[N_BUDGETS - 1]) assert_int_equal(w.n_shortened, 0); /* the budget is large enough */
    while (w.n_seqs > 0) {
        world_leave(&w, 0);
        world_check(&w);
    }
    assert_int_equal(counts->chunks_live, 0);
    world_close_tier(&w);
    ca_delete(&w.alloc, w.workspace, w.workspace_bytes, 1);
    /*
     * Without running sequences a new one gets all chunks that it needs, whatever is retained. Only metadata may prevent that:
     * it is half of the smallest budget if chunks are smaller than nodes.
     */
    const size_t slab_chunks = ca_chunk_pool_slab_chunks(w.pool), needed = (size_t)(800 / c);
    const bool fits = needed + slab_chunks <= ca_chunk_pool_capacity(w.pool);
    assert_true(fits || budget == budgets[0]);
    if (!faulty && fits) {
        model_set_tokens(w.seqs, 0, w.templates[0], 800);
        assert_int_equal(ca_tree_join(w.tree, w.seqs->tokens, 800, 0, 0, 0, &w.seqs->id, NULL, NULL), CATTN_OK);
        ca_tree_leave(w.tree, world_find(&w, w.seqs));
        world_check(&w);
    }
    assert_int_equal(counts->chunks_reserved, 0);
    assert_int_equal(counts->chunks_unshared, 0);
    if (retention == CATTN_RETAIN_NONE || sharing == CATTN_PRIVATE) assert_int_equal(counts->n_nodes, 0);
    world_destroy(&w);
}

static const int chunk_sizes[] = {4, 16, 32, 64};

static int calls_a_run = 4000;
static uint64_t first_seed = 1;

/* Runs with budgets[first] to budgets[last], each with every chunk size. Returns the seed after theirs. */
static uint64_t run_budgets(uint64_t seed, int first, int last) {
    const int n_calls = calls_a_run;
    for (int i = 4 * first; i < 4 * (last + 1); i++) {
        const int c = chunk_sizes[i % 4];
        const uint64_t budget = budgets[i / 4];
        run(seed++, n_calls, c, CATTN_SHARED, i % 2 ? CATTN_RETAIN_LRU : CATTN_RETAIN_LEARNED, budget, false);
        run(seed++, n_calls, c, CATTN_SHARED, CATTN_RETAIN_NONE, budget, false);
        if (i % 3 == 0) run(seed++, n_calls, c, CATTN_PRIVATE, CATTN_RETAIN_LRU, budget, false);
    }
    return seed;
}

static void random_calls(void **state) {
    (void)state;
    n_restored = 0;
    run_budgets(first_seed, 0, N_BUDGETS - 1);
    if (calls_a_run >= 4000) assert_true(n_restored > 200); /* fewer calls may restore nothing */
}

/* In the smallest budget metadata needs as much memory as chunks, so nearly every call meets the limit. */
static void random_calls_in_the_smallest_budget(void **state) {
    (void)state;
    for (uint64_t seed = first_seed + 1000; seed < first_seed + 1030;) seed = run_budgets(seed, 0, 0);
}

static void every_allocation_fails(void **state) {
    (void)state;
    const int n_calls = calls_a_run / 4;
    for (int i = 0; i < 4; i++) {
        run(first_seed + 100 + (uint64_t)i, n_calls, chunk_sizes[i], CATTN_SHARED, CATTN_RETAIN_LEARNED, budgets[i % 3], true);
        run(first_seed + 104 + (uint64_t)i, n_calls, chunk_sizes[i], i % 2 ? CATTN_PRIVATE : CATTN_SHARED, CATTN_RETAIN_NONE,
            budgets[2], true);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2) calls_a_run = atoi(argv[2]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_calls), cmocka_unit_test(random_calls_in_the_smallest_budget),
                                       cmocka_unit_test(every_allocation_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
