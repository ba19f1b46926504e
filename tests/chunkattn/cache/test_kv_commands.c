/*
 * K/V commands, from their recording to the slots that they fill: copies of copies, sequences that leave and chunks that are
 * evicted in between, aborted steps, a full list, and slot groups that open and close. The library's executor carries the
 * commands out.
 */
#include "tests/support/testing.h"

#include "check_tree.h"
#include "chunkattn/attn/kv_copy.h"
#include "chunkattn/cache/tree_internal.h"
#include "small_layout.h"

#include <string.h>

enum { D = 32, MAX_SEQS = 8, MAX_ROWS = 16384, N_LAYERS = 2 };

typedef struct world {
    ca_chunk_layout layout;
    ca_alloc alloc;
    ca_chunk_pool *pool;
    ca_tree *tree;
    ca_seq *seqs[MAX_SEQS];
    int n_seqs;
    size_t n_early; /* commands that could not wait for a step */
    ca_kv_command before_at[CA_KV_PENDING + MAX_ROWS], after_at[MAX_ROWS];
    ca_kv_commands before, after;
} world;

static void execute(world *w, const ca_kv_command *commands, size_t n) {
    for (int32_t layer = 0; layer < N_LAYERS; layer++) ca_kv_execute(&w->layout, w->pool, layer, 0, commands, n);
}

static void execute_early(void *ctx, const ca_kv_command *commands, size_t n) {
    world *w = ctx;
    w->n_early += n;
    execute(w, commands, n);
}

static void setup(world *w, int c, cattn_sharing sharing, cattn_retention retention, uint64_t n_chunks) {
    *w = (world){.alloc = ca_alloc_default()};
    w->before = (ca_kv_commands){w->before_at, 0, CA_KV_PENDING + MAX_ROWS};
    w->after = (ca_kv_commands){w->after_at, 0, MAX_ROWS};
    const ca_tree_config config = {.sharing = sharing, .retention = retention, .executor = {execute_early, w}};
    small_layout(&w->layout, N_LAYERS, D, c);
    const uint64_t metadata = 1 << 16;
    assert_int_equal(
        ca_chunk_pool_create(&w->pool, &w->alloc, w->layout.chunk_bytes, metadata + n_chunks * w->layout.chunk_bytes),
        CATTN_OK);
    assert_int_equal(ca_tree_create(&w->tree, &config, &w->layout, w->pool, &w->alloc), CATTN_OK);
}

static void teardown(world *w) {
    ca_tree_destroy(&w->tree);
    ca_chunk_pool_destroy(&w->pool);
    small_layout_free(&w->layout);
    assert_int_equal(w->alloc.bytes, 0);
}

static size_t n_pending(world *w) { return ca_tree_pending(w->tree)->n; }

/* Sequences are numbered from 0 in the order in which they start. */
static void join(world *w, const int32_t *tokens, int64_t n) {
    cattn_seq id;
    assert_int_equal(ca_tree_join(w->tree, tokens, n, 0, 0, 0, &id, NULL, NULL), CATTN_OK);
    w->seqs[w->n_seqs++] = ca_tree_find(w->tree, id);
}

/* Join with the n tokens first, first + 1, ... */
static void join_count(world *w, int32_t first, int64_t n) {
    static int32_t tokens[MAX_ROWS];
    for (int64_t i = 0; i < n; i++) tokens[i] = first + (int32_t)i;
    join(w, tokens, n);
}

static void fork_of(world *w, int i) {
    cattn_seq id;
    assert_int_equal(ca_tree_fork(w->tree, w->seqs[i], 0, &id, NULL), CATTN_OK);
    w->seqs[w->n_seqs++] = ca_tree_find(w->tree, id);
}

static void append(world *w, int i, int32_t token) {
    assert_int_equal(ca_tree_append(w->tree, w->seqs[i], &token, 1, NULL), CATTN_OK);
}

static void cut_to(world *w, int i, int64_t n) { assert_int_equal(ca_tree_truncate(w->tree, w->seqs[i], n, NULL), CATTN_OK); }

static void leave(world *w, int i) {
    ca_tree_leave(w->tree, w->seqs[i]);
    w->seqs[i] = NULL;
}

/* ---- Contents: a function of the position's token and the layer ---- */

static int32_t token_at(const ca_seq *seq, int64_t position) {
    const ca_node *node = seq->leaf;
    while (node->start > position) node = node->parent;
    return node->tokens[position - node->start];
}

static float k_of(int32_t token, int layer, int i) { return (float)(token * 100 + layer * 50 + i); }
static float v_of(int32_t token, int layer, int i) { return -k_of(token, layer, i) - 0.5f; }

static void write_row(world *w, ca_chunk_id chunk, int slot, int32_t token) {
    const ca_layout *l = &w->layout.shapes->tiles;
    for (int layer = 0; layer < N_LAYERS; layer++) {
        float k[D], v[D];
        for (int i = 0; i < D; i++) {
            k[i] = k_of(token, layer, i);
            v[i] = v_of(token, layer, i);
        }
        char *tile = small_tile(w->pool, &w->layout, chunk, layer);
        ca_layout_write(l, tile, tile + l->k_bytes, ca_chunk_open(w->pool, chunk), slot, k, v);
    }
}

static void check_slot(world *w, ca_chunk_id chunk, int slot, int32_t token) {
    const ca_layout *l = &w->layout.shapes->tiles;
    const uint32_t open = ca_chunk_open(w->pool, chunk);
    for (int layer = 0; layer < N_LAYERS; layer++) {
        const char *tile = small_tile(w->pool, &w->layout, chunk, layer);
        const float *k = (const float *)tile, *v = (const float *)(tile + l->k_bytes);
        for (int i = 0; i < D; i++) {
            assert_true(k[ca_layout_k_index(l, open, slot, i)] == k_of(token, layer, i));
            assert_true(v[ca_layout_v_index(l, slot, i)] == v_of(token, layer, i));
        }
    }
}

/* All ready tokens must be in the chunks of their nodes, and copied where a branch needs them. */
static void check_contents(world *w) {
    const int c = w->layout.c;
    check_tree(w->tree, w->pool, &w->layout);
    for (int n = 0; n < w->n_seqs; n++) {
        const ca_seq *seq = w->seqs[n];
        for (int64_t p = 0; seq && p < ca_path_n_ready(seq->leaf); p++)
            check_slot(w, ca_path_chunk(w->tree, seq->leaf, p), (int)(p % c), token_at(seq, p));
        for (const ca_node *node = seq ? seq->leaf : NULL; node && node->parent; node = node->parent)
            for (int slot = 0; slot < ca_chunk_at(w->pool, node->chunks[0])->n_copied; slot++)
                check_slot(w, node->chunks[0], slot, token_at(seq, node->start / c * c + slot));
    }
}

/* A step over all sequences with at most max_rows rows each, which ends or is aborted. */
static void step(world *w, int64_t max_rows, bool ends) {
    w->before.n = w->after.n = 0;
    ca_kv_take(ca_tree_pending(w->tree), &w->before);
    /* Sequence i's rows start at position first[i]; a sequence that has left has none. */
    int64_t first[MAX_SEQS] = {0}, n[MAX_SEQS] = {0};
    for (int i = 0; i < w->n_seqs; i++) {
        if (!w->seqs[i]) continue;
        ca_node *leaf = w->seqs[i]->leaf;
        first[i] = ca_path_n_claimed(leaf);
        n[i] = ca_path_claim(leaf, max_rows);
        for (int64_t p = first[i]; p < first[i] + n[i]; p++) {
            const int32_t slot = (int32_t)(p % w->layout.c);
            ca_kv_open_and_close(&w->layout, w->pool, ca_path_chunk(w->tree, leaf, p), slot, slot + 1, &w->before);
        }
    }
    for (int i = 0; i < w->n_seqs; i++) {
        if (n[i] == 0) continue;
        const int64_t last = first[i] + n[i] - 1;
        w->after.n += (size_t)ca_path_branch_copies(w->tree, w->seqs[i]->leaf, first[i], last, NULL);
        ca_path_branch_copies(w->tree, w->seqs[i]->leaf, first[i], last, w->after.at + w->after.n);
    }
    execute(w, w->before.at, w->before.n);
    for (int i = 0; ends && i < w->n_seqs; i++)
        for (int64_t p = first[i]; p < first[i] + n[i]; p++)
            write_row(w, ca_path_chunk(w->tree, w->seqs[i]->leaf, p), (int)(p % w->layout.c), token_at(w->seqs[i], p));
    if (ends)
        execute(w, w->after.at, w->after.n);
    else
        ca_path_undo_branch_copies(w->tree, &w->after);
    for (int i = 0; i < w->n_seqs; i++)
        if (w->seqs[i]) (ends ? ca_path_commit : ca_path_unclaim)(w->seqs[i]->leaf);
    if (ends) check_contents(w);
}

/* ---- Tests ---- */

/* Two copies of the same token before any step; the second copies from the target of the first. */
static void a_copy_of_a_copy(void **state) {
    (void)state;
    static world w;
    setup(&w, 16, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join_count(&w, 1, 7);
    step(&w, 7, true);
    fork_of(&w, 0);
    append(&w, 1, 50); /* 1 2 3 4 5 6 | 7 50: 7 is copied */
    assert_int_equal(n_pending(&w), 1);
    cut_to(&w, 1, 7);
    fork_of(&w, 1);
    append(&w, 2, 60); /* 7 is copied again, from the copy */
    assert_int_equal(n_pending(&w), 2);
    const ca_kv_command *at = ca_tree_pending(w.tree)->at;
    assert_int_equal(at[1].from, at[0].to);
    assert_int_equal(at[1].begin, 6);
    assert_int_equal(at[1].end, 7);
    assert_int_equal(ca_path_n_ready(w.seqs[2]->leaf), 7); /* ready, though the copy is pending */
    leave(&w, 0);
    leave(&w, 1);
    step(&w, 1, true);
    assert_int_equal(ca_path_n_ready(w.seqs[2]->leaf), 8);
    assert_int_equal(w.n_early, 0);
    teardown(&w);
}

/* Source and target are freed and reused, and filled by copies and by rows of the same step. */
static void leaving_before_the_copy_is_made(void **state) {
    (void)state;
    static world w;
    setup(&w, 16, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join_count(&w, 1, 7);
    step(&w, 7, true);
    fork_of(&w, 0);
    fork_of(&w, 0);
    append(&w, 1, 50);
    append(&w, 2, 60);
    const ca_chunk_id from = ca_tree_pending(w.tree)->at[0].from, to = ca_tree_pending(w.tree)->at[0].to;
    leave(&w, 1);            /* frees the first copy's target */
    leave(&w, 0);            /* frees the source of both copies */
    join_count(&w, 100, 40); /* reuses the target */
    assert_int_equal(n_pending(&w), 2);
    bool reused = false;
    for (size_t i = 0; i < w.seqs[3]->leaf->n_chunks; i++)
        reused = reused || w.seqs[3]->leaf->chunks[i] == to || w.seqs[3]->leaf->chunks[i] == from;
    assert_true(reused);
    step(&w, 40, true);
    assert_int_equal(ca_path_n_ready(w.seqs[2]->leaf), 8);
    assert_int_equal(ca_path_n_ready(w.seqs[3]->leaf), 40);
    teardown(&w);
}

/* A sequence is truncated to an odd length while another is longer, and the other is evicted before the copy is made. */
static void evicting_the_source(void **state) {
    (void)state;
    static world w;
    setup(&w, 16, CATTN_SHARED, CATTN_RETAIN_LRU, 512);
    join_count(&w, 1, 20);
    join_count(&w, 1000, 1000); /* more than a slab */
    step(&w, 1000, true);
    fork_of(&w, 0);
    cut_to(&w, 2, 9);
    assert_int_equal(n_pending(&w), 1);
    leave(&w, 1);
    leave(&w, 0);
    const size_t bytes = ca_chunk_pool_bytes(w.pool);
    assert_true(ca_tree_make_room(w.tree, ca_chunk_pool_slab_bytes(w.pool)));
    assert_true(ca_chunk_pool_bytes(w.pool) < bytes);
    assert_int_equal(w.n_early, 1); /* before memory returned to the system */
    assert_int_equal(n_pending(&w), 0);
    check_contents(&w);
    assert_int_equal(ca_path_n_ready(w.seqs[2]->leaf), 9);
    teardown(&w);
}

/* More copies than can be pending: earlier ones are carried out first. */
static void a_full_list(void **state) {
    (void)state;
    static world w;
    enum { C = 16, N_CHUNKS = CA_KV_PENDING + 6 };
    setup(&w, C, CATTN_PRIVATE, CATTN_RETAIN_NONE, 4 * N_CHUNKS);
    join_count(&w, 1, N_CHUNKS * C - 3);
    step(&w, N_CHUNKS * C - 5, true); /* two tokens are not ready, and not copied */
    fork_of(&w, 0);
    assert_int_equal(w.n_early, CA_KV_PENDING);
    assert_int_equal(n_pending(&w), 6);
    assert_int_equal(ca_tree_pending(w.tree)->at[5].end, C - 5);
    leave(&w, 0);
    step(&w, 2, true);
    assert_int_equal(ca_path_n_ready(w.seqs[1]->leaf), N_CHUNKS * C - 3);
    teardown(&w);
}

/* An aborted step undoes the copies for its branches, and carries out pending copies and transposes. */
static void aborting(void **state) {
    (void)state;
    static world w;
    setup(&w, 32, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join_count(&w, 1, 21);
    for (int i = 0; i < 21; i++) step(&w, 1, true);
    fork_of(&w, 0);
    append(&w, 1, 500); /* a copy of token 21 */
    int32_t prompt[24];
    for (int i = 0; i < 24; i++) prompt[i] = i < 10 ? i + 1 : 900 + i;
    join(&w, prompt, 24); /* a branch at 10: ten slots to copy */
    assert_int_equal(n_pending(&w), 1);
    for (int round = 0; round < 3; round++) {
        step(&w, 8, false);
        assert_int_equal(w.after.n, 2); /* the branches at 10 and at 20 */
        assert_int_equal(w.before.n, round == 0);
    }
    step(&w, 8, true);
    assert_int_equal(w.after.n, 2);
    step(&w, 8, true);
    assert_int_equal(w.after.n, 0);
    teardown(&w);
}

/* A slot group opens with its first slot and closes with its last; rows that fill all of it at once never open it. */
static void opening_and_closing(void **state) {
    (void)state;
    static world w;
    setup(&w, 64, CATTN_SHARED, CATTN_RETAIN_NONE, 8);
    join_count(&w, 1, 64);
    step(&w, 20, true);
    const ca_chunk_id chunk = w.seqs[0]->leaf->chunks[0];
    ca_kv_command at[4];
    ca_kv_commands list = {at, 0, 4};
    ca_chunk_at(w.pool, chunk)->open = 2; /* as drawn in the header */
    ca_kv_open_and_close(&w.layout, w.pool, chunk, 20, 38, &list);
    assert_int_equal(list.n, 1);
    assert_int_equal(at[0].kind, CA_KV_TRANSPOSE);
    assert_int_equal(at[0].begin, 16);
    assert_int_equal(at[0].end, 32);
    assert_int_equal(ca_chunk_open(w.pool, chunk), 4);
    ca_chunk_at(w.pool, chunk)->open = 0;
    list.n = 0;
    ca_kv_open_and_close(&w.layout, w.pool, chunk, 0, 32, &list);
    ca_kv_open_and_close(&w.layout, w.pool, chunk, 36, 40, &list);
    assert_int_equal(list.n, 0);
    assert_int_equal(ca_chunk_open(w.pool, chunk), 0);
    teardown(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_of_a_copy),
        cmocka_unit_test(leaving_before_the_copy_is_made),
        cmocka_unit_test(evicting_the_source),
        cmocka_unit_test(a_full_list),
        cmocka_unit_test(aborting),
        cmocka_unit_test(opening_and_closing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
