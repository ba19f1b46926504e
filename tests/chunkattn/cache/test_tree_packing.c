/*
 * Leaves that share chunks: where pieces go, what a match and an eviction do to them, what the budget counts, and how many
 * bytes retained tokens cost in the end.
 */
#include "tests/support/testing.h"

#include <stdio.h>

#include "small_tree.h"
#include "tests/support/rng.h"

/* A tree whose metadata do not count, so that exactly n_chunks chunks of c slots are there. */
static void setup_exactly(world *w, int c, int n_chunks) {
    *w = (world){.alloc = ca_alloc_default()};
    const ca_tree_config config = {.retention = CATTN_RETAIN_LRU, .packs = true};
    ca_layout_init(&w->layout, CATTN_F32, 1, 1, 32, 32, c);
    assert_int_equal(ca_chunk_pool_create_elsewhere(&w->pool, &w->alloc, w->layout.n_tiles, w->layout.tile_bytes,
                                                    (uint64_t)n_chunks * w->layout.chunk_bytes),
                     CATTN_OK);
    assert_int_equal(ca_chunk_pool_n_free(w->pool, 0), n_chunks);
    assert_int_equal(ca_tree_create(&w->tree, &config, &w->layout, w->pool, &w->alloc), CATTN_OK);
}

/* A prompt of n tokens, of which the first `shared` are 0, 1, ... and the others are `own`, which computes them and leaves. */
static int64_t request(world *w, int64_t n, int64_t shared, int32_t own) {
    int32_t tokens[512];
    for (int64_t i = 0; i < n; i++) tokens[i] = i < shared ? (int32_t)i : own;
    cattn_seq id;
    cattn_join_result result;
    assert_int_equal(ca_tree_join(w->tree, tokens, n, 0, 0, &id, &result, NULL), CATTN_OK);
    ca_seq *seq = ca_tree_find(w->tree, id);
    ca_path_claim(seq->leaf, n);
    ca_path_commit(seq->leaf);
    ca_tree_leave(w->tree, seq);
    ca_kv_carry_out(ca_tree_pending(w->tree));
    check_tree(w->tree, w->pool, &w->layout);
    return result.n_matched;
}

/* A running sequence that holds all chunks but n. Its tokens are 1000, 1001, ... */
static ca_seq *hold_all_but(world *w, int64_t n) {
    static int32_t tokens[4096];
    for (int i = 0; i < 4096; i++) tokens[i] = 1000 + i;
    const int64_t n_tokens = C * ((int64_t)ca_chunk_pool_n_free(w->pool, 0) - n);
    cattn_seq id;
    assert_int_equal(ca_tree_join(w->tree, tokens, n_tokens, 0, 0, &id, NULL, NULL), CATTN_OK);
    return ca_tree_find(w->tree, id);
}

/* Chunks of the retained leaves in which they are packed, by their order in the tree; -1: not packed. */
static int packing_chunks(const world *w, ca_chunk_id *ids) {
    int n = 0;
    int32_t depth = -1;
    for (const ca_node *node = ca_tree_root(w->tree); (node = ca_tree_next(node, &depth));)
        if (node->n_seqs == 0) ids[n++] = node->packed[0] ? node->chunks[0] : -1;
    return n;
}

/* Leaves of two tokens in chunks of four: nothing is packed while a chunk is free, then two leaves share one. */
static void leaves_share_a_chunk(void **state) {
    (void)state;
    world w;
    ca_chunk_id at_chunk[8] = {0};
    setup_exactly(&w, C, 16);
    hold_all_but(&w, 3);
    for (int i = 0; i < 3; i++) request(&w, 2, 0, i);
    assert_int_equal(packing_chunks(&w, at_chunk), 3);
    for (int i = 0; i < 3; i++) assert_int_equal(at_chunk[i], -1);
    request(&w, 2, 0, 3);
    request(&w, 2, 0, 4);
    assert_int_equal(packing_chunks(&w, at_chunk), 5);
    assert_int_equal(ca_tree_get_counts(w.tree)->tokens_evicted, 0);
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_retained, 3);
    assert_true(at_chunk[0] >= 0 && at_chunk[0] == at_chunk[1]);
    assert_true(at_chunk[2] >= 0 && at_chunk[2] == at_chunk[3]);
    /* From now on each takes the place of the least recently used one, so that a chunk is free for the next. */
    for (int i = 0; i < 21; i++) {
        request(&w, 2, 0, 5 + i);
        assert_int_equal(packing_chunks(&w, at_chunk), 5);
        assert_int_equal(ca_tree_get_counts(w.tree)->tokens_evicted, 2 * (i + 1));
    }
    for (int i = 0; i < 2; i++) assert_int_equal(request(&w, 3, 0, 24 + i), 2); /* a match of what is packed */
    ca_tree_drop_retained(w.tree);
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_retained, 0);
    check_tree(w.tree, w.pool, &w.layout);
    teardown(&w);
}

/* A match needs a chunk before the piece's slots are free: where only the piece's own chunk is left, nothing is shared. */
static void unpacking_without_a_free_chunk(void **state) {
    (void)state;
    world w;
    ca_chunk_id at_chunk[8] = {0};
    setup_exactly(&w, C, 16);
    ca_seq *holder = hold_all_but(&w, 2);
    for (int i = 0; i < 3; i++) request(&w, 2, 0, i);
    assert_int_equal(packing_chunks(&w, at_chunk), 3);
    assert_true(at_chunk[0] >= 0 && at_chunk[0] == at_chunk[1]);
    const int32_t more[C] = {1, 2, 3, 4};
    assert_int_equal(ca_tree_append(w.tree, holder, more, C, NULL), CATTN_OK); /* evicts or packs */
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_retained, 1);
    assert_int_equal(packing_chunks(&w, at_chunk), 2);
    check_tree(w.tree, w.pool, &w.layout);
    assert_int_equal(request(&w, 3, 0, 1), 0); /* of the leaves 1 and 2 */
    teardown(&w);
}

/* ---- What retained tokens cost ---- */

/* Requests that share a prefix and have some tokens of their own; of `repeat` in 8 the own tokens have come before. */
typedef struct traffic {
    const char *name;
    int64_t shared, least, most; /* tokens: shared, and own ones */
    int at_once, repeat;
    double bar; /* slots of retained chunks for each retained token, at most */
} traffic;

/* Let `at_once` requests join, compute their prompts in one step, and leave. */
static void serve(world *w, const traffic *t, rng *r) {
    enum { LONGEST = 512, AT_ONCE = 32, KNOWN = 600 };
    int32_t tokens[LONGEST];
    ca_seq *seqs[AT_ONCE];
    for (int i = 0; i < t->at_once; i++) {
        static int32_t n_ever;
        const bool again = rng_range(r, 0, 7) < t->repeat;
        const int32_t own = again ? (int32_t)rng_range(r, 0, KNOWN - 1) : KNOWN + n_ever++;
        rng own_rng = {(uint64_t)own + 1};
        const int64_t n = t->shared + rng_range(&own_rng, t->least, t->most);
        for (int64_t p = 0; p < n; p++) tokens[p] = p < t->shared ? 0 : own;
        cattn_seq id;
        assert_int_equal(ca_tree_join(w->tree, tokens, n, 0, 0, &id, NULL, NULL), CATTN_OK);
        seqs[i] = ca_tree_find(w->tree, id);
    }
    ca_kv_carry_out(ca_tree_pending(w->tree));
    for (int i = 0; i < t->at_once; i++) {
        ca_path_claim(seqs[i]->leaf, LONGEST);
        ca_path_commit(seqs[i]->leaf);
    }
    for (int i = 0; i < t->at_once; i++) ca_tree_leave(w->tree, seqs[i]);
}

static void retained_tokens_cost_what_they_hold(void **state) {
    (void)state;
    enum { SLOTS = 64, CHUNKS = 512, REQUESTS = 20000 };
    static const traffic all[] = {
        {"20 own tokens in two chunks", 237, 20, 20, 1, 0, 1.3},
        {"20 own tokens in one chunk", 192, 20, 20, 1, 0, 1.3},
        {"20 own tokens, 32 requests at once", 237, 20, 20, 32, 0, 1.3},
        {"20 own tokens, half of them again", 237, 20, 20, 4, 4, 1.3},
        {"2 to 40 own tokens", 237, 2, 40, 4, 0, 1.3},
        {"2 to 40 own tokens, half of them again", 200, 2, 40, 4, 4, 1.3},
        {"20 to 200 own tokens, half of them again", 201, 20, 200, 4, 4, 1.3},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const traffic *t = &all[i];
        world w;
        rng r = {i + 1};
        setup_exactly(&w, SLOTS, CHUNKS);
        const ca_tree_counts *n = ca_tree_get_counts(w.tree);
        double most = 0, sum = 0;
        int n_samples = 0;
        for (int served = 0; served < REQUESTS; served += t->at_once) {
            serve(&w, t, &r);
            if (served < REQUESTS / 2) continue;
            /* The chunks that the next requests will take count as retained until these come. */
            const double slots = (double)(SLOTS * (int64_t)n->chunks_retained), cost = slots / (double)n->tokens_retained;
            most = cost > most ? cost : most;
            sum += cost;
            n_samples++;
        }
        check_tree(w.tree, w.pool, &w.layout);
        printf("%s: %.3f slots a token, at most %.3f; %d tokens retained in %d chunks\n", t->name, sum / n_samples, most,
               (int)n->tokens_retained, (int)n->chunks_retained);
        assert_true(most <= t->bar);
        assert_true(n->chunks_retained >= CHUNKS / 2);
        teardown(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_share_a_chunk),
        cmocka_unit_test(unpacking_without_a_free_chunk),
        cmocka_unit_test(retained_tokens_cost_what_they_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
