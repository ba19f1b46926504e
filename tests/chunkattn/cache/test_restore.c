/* The states of tokens that the file tier has: on the way, ready, failed, dropped; alone, shared, and at branches. */
#include "tests/support/testing.h"

#include <errno.h>
#include <string.h>

#include "../tier/disk.h"
#include "small_tree.h"
#include "tests/support/failing_alloc.h"

typedef struct tier_world {
    world w;
    disk disk;
    ca_tier *tier;
} tier_world;

static void gather(void *ctx, int32_t chunk, void *payload) {
    const world *w = ctx;
    memcpy(payload, small_tile(w->pool, &w->layout, chunk, 0), w->layout.chunk_bytes);
}

static void scatter(void *ctx, int32_t chunk, const void *payload) {
    const world *w = ctx;
    memcpy(small_tile(w->pool, &w->layout, chunk, 0), payload, w->layout.chunk_bytes);
}

/* A new tree with a tier on the disk as it is. Requests of the tier are carried out by work() only. */
static void open_tree(tier_world *t) {
    setup(&t->w, CATTN_SHARED, CATTN_RETAIN_LRU, 64);
    const ca_tier_config config = {.dir = "anywhere",
                                   .bytes = 1 << 20,
                                   .chunk_tokens = C,
                                   .payload_bytes = t->w.layout.chunk_bytes,
                                   .chunks = {gather, scatter, &t->w},
                                   .files = &t->disk.files,
                                   .no_thread = true};
    assert_int_equal(ca_tier_open(&t->tier, &config, &t->w.alloc, NULL), CATTN_OK);
    t->w.tree->config.tier = t->tier;
}

static void close_tree(tier_world *t) {
    ca_tree_detach_tier(t->w.tree);
    ca_tier_close(&t->tier);
    teardown(&t->w);
}

static void begin(tier_world *t) {
    disk_init(&t->disk);
    open_tree(t);
}

static void end(tier_world *t) {
    close_tree(t);
    disk_free(&t->disk);
}

static void check(tier_world *t) { check_tree(t->w.tree, t->w.pool, &t->w.layout); }

/* Join, and restore what the tier has. Returns the first tokens that are ready or on the way. */
static int64_t enter(tier_world *t, const char *letters, double row_seconds) {
    int32_t tokens[64];
    parse(letters, tokens);
    join(&t->w, letters);
    const int64_t n = ca_tree_restore(t->w.tree, at(&t->w, t->w.n_seqs), tokens, row_seconds);
    check(t);
    return n;
}

static int64_t n_ready(tier_world *t, int i) { return ca_path_n_ready(at(&t->w, i)->leaf); }
static int64_t n_coming(tier_world *t, int i) { return ca_path_n_coming(at(&t->w, i)->leaf); }

static void go(tier_world *t, int i) {
    ca_tree_write_behind(t->w.tree, at(&t->w, i));
    leave(&t->w, i);
    ca_tree_drop_orphans(t->w.tree);
    check(t);
}

/* Carry out n requests of the tier, then take their results. */
static void work(tier_world *t, int n) {
    while (n-- > 0) assert_true(ca_tier_work(t->tier));
    ca_tree_poll_tier(t->w.tree);
    check(t);
}

/* The byte that stands for the K/V of a prompt's token: it depends on all tokens up to it. */
static uint8_t mark(const char *letters, int position) {
    uint32_t h = 7;
    for (int i = 0; i <= position; i++) h = h * 31 + (uint32_t)letters[i];
    return (uint8_t)(h >> 3 | 1);
}

static uint8_t *slot(tier_world *t, int i, int position) {
    return (uint8_t *)small_tile(t->w.pool, &t->w.layout, ca_path_chunk(t->w.tree, at(&t->w, i)->leaf, position), 0) +
           position % C;
}

/* Compute all tokens of sequence i, write them, and let it leave; what is written is in the file then. */
static void record(tier_world *t, const char *letters) {
    enter(t, letters, 0);
    const int i = t->w.n_seqs, n = (int)strlen(letters);
    for (int p = 0; p < n; p++) *slot(t, i, p) = mark(letters, p);
    ca_seq *seq = at(&t->w, i);
    const ca_chunk_id first = seq->leaf->chunks[0];
    const int32_t copied = ca_slot_of(t->w.tree, seq->leaf->start);
    if (copied > 0 && !ca_node_shares_first_chunk(seq->leaf)) { /* as the step's branch copies do */
        ca_chunk_at(t->w.pool, first)->n_copied = copied;
        for (int32_t s = 0; s < copied; s++)
            *((uint8_t *)small_tile(t->w.pool, &t->w.layout, first, 0) + s) = mark(letters, (int)seq->leaf->start - copied + s);
    }
    compute(&t->w, i, n - n_ready(t, i));
    go(t, i);
    assert_true(ca_tier_flush(t->tier, 1));
}

static void holds(tier_world *t, int i, const char *letters, int n) {
    for (int p = 0; p < n; p++) assert_int_equal(*slot(t, i, p), mark(letters, p));
}

/* Begin with the records of a sequence in the file, and an empty tree. */
static void begin_with(tier_world *t, const char *letters) {
    begin(t);
    record(t, letters);
    close_tree(t);
    open_tree(t);
}

static void tokens_become_ready_in_order_after_a_restart(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghij");
    assert_int_equal(enter(&t, "abcdefghij", 0), 8);
    assert_int_equal(n_ready(&t, 1), 0);
    assert_int_equal(t.w.tree->counts.n_seqs, 1);
    work(&t, 1);
    assert_int_equal(n_ready(&t, 1), 4);
    assert_int_equal(n_coming(&t, 1), 8);
    work(&t, 1);
    assert_int_equal(n_ready(&t, 1), 8);
    assert_int_equal(t.w.tree->restores.n, 0);
    assert_int_equal(t.w.tree->counts.tokens_restored, 8);
    holds(&t, 1, "abcdefghij", 8);
    compute(&t.w, 1, 2);
    go(&t, 1);
    assert_int_equal(enter(&t, "abcdefghij", 0), 8); /* found in the tree */
    assert_int_equal(n_ready(&t, 2), 8);
    end(&t);
}

/* A restore ends after the sequence that waited for it, but what it has read counts for that one's account. */
static void what_is_restored_counts_for_who_waited(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghij");
    assert_int_equal(enter(&t, "abcdefghij", 0), 8);
    assert_int_equal(ca_tree_open_account(t.w.tree, 1, 0, NULL), CATTN_OK);
    at(&t.w, 1)->account = 1;
    work(&t, 1);
    go(&t, 1);
    assert_int_equal(t.w.tree->counts.chunks_retained, 1);
    assert_int_equal(t.w.tree->accounts.at[1].n_retained, 1);
    end(&t);
}

/* A prompt that ends with a chunk: its record is read, and its last two tokens are computed. */
static void the_last_token_is_always_computed(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefgh");
    assert_int_equal(enter(&t, "abcdefgh", 0), 6);
    assert_int_equal(enter(&t, "abc", 0), 2);      /* on the way for the first sequence */
    assert_int_equal(enter(&t, "abcdefgh", 0), 6); /* likewise; a record is not read for two tokens */
    assert_int_equal(t.w.tree->restores.n, 1);
    go(&t, 1); /* the third one still waits */
    assert_int_equal(t.w.tree->restores.n, 1);
    work(&t, 2);
    assert_int_equal(n_ready(&t, 3), 6);
    holds(&t, 3, "abcdefgh", 6);
    assert_int_equal(t.w.tree->restores.n, 0);
    assert_int_equal(t.w.tree->counts.tokens_restored, 6);
    compute(&t.w, 3, 2);
    check(&t);
    end(&t);
}

/* A prompt that goes on behind another one's last chunk, of which two tokens are computed, computes what follows, too. */
static void tokens_behind_the_last_ones_of_a_prompt(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghijklmnop");
    assert_int_equal(enter(&t, "abcdefgh", 0), 6);
    assert_int_equal(enter(&t, "abcdefghijklmnop", 0), 6);
    cut_to(&t.w, 1, 6);
    append(&t.w, 1, "xy");
    check(&t);
    work(&t, 2);
    assert_int_equal(n_ready(&t, 1), 6);
    assert_int_equal(n_ready(&t, 2), 6);
    holds(&t, 2, "abcdefghijklmnop", 6);
    compute(&t.w, 2, 2);
    compute(&t.w, 1, 2);
    assert_int_equal(n_ready(&t, 2), 8);
    end(&t);
}

static void a_branch_in_a_chunk_gets_the_whole_chunk(void **state) {
    (void)state;
    tier_world t;
    begin(&t);
    record(&t, "abcdefghij");
    record(&t, "abcdefXYZZ");
    close_tree(&t);
    open_tree(&t);
    assert_int_equal(enter(&t, "abcdefghij", 0), 8);
    assert_int_equal(enter(&t, "abcdefXYZZ", 0), 8);
    assert_int_equal(t.w.tree->restores.n, 2);
    work(&t, 2); /* the first sequence's chunks */
    assert_int_equal(n_ready(&t, 1), 8);
    assert_int_equal(n_ready(&t, 2), 6);
    assert_int_equal(n_coming(&t, 2), 8);
    work(&t, 1);
    assert_int_equal(n_ready(&t, 2), 8);
    const ca_node *leaf = at(&t.w, 2)->leaf;
    while (leaf->start > 6) leaf = leaf->parent;
    assert_int_equal(ca_chunk_at(t.w.pool, leaf->chunks[0])->n_copied, 2);
    holds(&t, 1, "abcdefghij", 8);
    holds(&t, 2, "abcdefXYZZ", 8);
    for (int s = 0; s < 2; s++)
        assert_int_equal(*((uint8_t *)small_tile(t.w.pool, &t.w.layout, leaf->chunks[0], 0) + s), mark("abcdefXYZZ", 4 + s));
    end(&t);
}

static void what_shares_its_chunk_with_ready_tokens_is_computed(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghijklm");
    join(&t.w, "abcdef");
    compute(&t.w, 1, 6);
    leave(&t.w, 1);
    assert_int_equal(enter(&t, "abcdefghijklm", 0), 6);
    assert_int_equal(t.w.tree->restores.n, 0);
    end(&t);
}

static void a_later_sequence_extends_what_is_on_the_way(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghijklmnopq");
    assert_int_equal(enter(&t, "abcdefghij", 0), 8);
    assert_int_equal(enter(&t, "abcdefghijklmnopq", 0), 8); /* its chunk at 8 is also the first sequence's */
    assert_int_equal(t.w.tree->restores.n, 1);
    go(&t, 1); /* the second one still waits */
    assert_int_equal(t.w.tree->restores.n, 1);
    assert_int_equal(enter(&t, "abcdefghijklmnopq", 0), 8);
    work(&t, 2);
    assert_int_equal(n_ready(&t, 2), 8);
    holds(&t, 3, "abcdefghijklmnopq", 8);
    end(&t);
}

static void a_failed_read_leaves_the_rest_to_steps(void **state) {
    (void)state;
    tier_world t;
    begin(&t);
    record(&t, "abcdefghijklmnopq");
    record(&t, "abcdefghijklmnXYZ");
    close_tree(&t);
    open_tree(&t);
    assert_int_equal(enter(&t, "abcdefghijklmnopq", 0), 16);
    assert_int_equal(enter(&t, "abcdefghijklmnXYZ", 0), 16);
    work(&t, 1);
    t.disk.read_error = -EIO;
    work(&t, 1);
    t.disk.read_error = 0;
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(n_ready(&t, i), 4);
        assert_int_equal(n_coming(&t, i), 4);
    }
    assert_int_equal(t.w.tree->restores.n, 0);
    assert_false(ca_tier_work(t.tier)); /* the other reads were dropped */
    compute(&t.w, 1, 13);
    compute(&t.w, 2, 3);
    check(&t);
    end(&t);
}

/* Copies the bytes that stand for K/V (see mark). */
static void execute(void *ctx, const ca_kv_command *commands, size_t n) {
    const world *w = ctx;
    for (const ca_kv_command *c = commands; c < commands + n; c++)
        for (int32_t s = c->begin; s < c->end; s++)
            *((uint8_t *)small_tile(w->pool, &w->layout, c->to, 0) + s) =
                *((uint8_t *)small_tile(w->pool, &w->layout, c->from, 0) + s);
}

static void a_read_does_not_overtake_commands_on_its_chunk(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghijklm");
    t.w.tree->commands.executor = (ca_kv_executor){execute, &t.w};
    join(&t.w, "xyxyx");
    compute(&t.w, 1, 5);
    fork_of(&t.w, 1);
    append(&t.w, 1, "z"); /* its odd token is copied, before the next step */
    leave(&t.w, 1);
    leave(&t.w, 2);
    while (ca_budget_evict_one(t.w.tree)) {
    }
    assert_int_equal(t.w.tree->commands.n, 1);
    const ca_chunk_id to = t.w.tree->commands.at[0].to;
    assert_int_equal(enter(&t, "abcdefghijklm", 0), 12);
    assert_int_equal(ca_path_chunk(t.w.tree, at(&t.w, 3)->leaf, 8), to); /* it has been freed and taken again */
    work(&t, 3);
    ca_kv_carry_out(&t.w.tree->commands);
    holds(&t, 3, "abcdefghijklm", 12);
    end(&t);
}

/* A step that is aborted leaves slot groups of its chunks open, and their tokens unready. In a record all are closed. */
static void a_restore_closes_what_an_aborted_step_has_opened(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghij");
    join(&t.w, "abcdefghij");
    ca_chunk *chunk = ca_chunk_at(t.w.pool, ca_path_chunk(t.w.tree, at(&t.w, 1)->leaf, 0));
    chunk->open = 1;
    assert_int_equal(enter(&t, "abcdefghij", 0), 8);
    work(&t, 2);
    assert_int_equal(n_ready(&t, 1), 8);
    assert_int_equal(chunk->open, 0);
    end(&t);
}

static void a_restore_ends_when_nobody_waits(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghijklmnopq");
    assert_int_equal(enter(&t, "abcdefghijklmnopq", 0), 16);
    work(&t, 1);
    go(&t, 1);
    assert_int_equal(t.w.tree->restores.n, 0);
    assert_false(ca_tier_work(t.tier));
    assert_int_equal(t.w.tree->counts.chunks_live, 0);
    assert_int_equal(t.w.tree->counts.tokens_retained, 4); /* what was ready stays */

    assert_int_equal(enter(&t, "abcdefghijklmnopq", 0), 16);
    fork_of(&t.w, 2);
    go(&t, 2);
    assert_int_equal(t.w.tree->restores.n, 1); /* the fork waits */
    cut_to(&t.w, 3, 7);
    ca_tree_drop_orphans(t.w.tree);
    check(&t);
    assert_int_equal(t.w.tree->restores.n, 0);
    assert_int_equal(n_coming(&t, 3), 4);
    end(&t);
}

static void tokens_on_the_way_are_not_claimed_after_appends_and_splits(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghijklmnopq");
    assert_int_equal(enter(&t, "abcdefghijklmnopq", 0), 16);
    append(&t.w, 1, "rst");
    check(&t);
    assert_int_equal(enter(&t, "abXYZ", 0), 2); /* cuts the node on the way */
    assert_int_equal(n_coming(&t, 1), 16);
    cut_to(&t.w, 1, 18);
    check(&t);
    work(&t, 4);
    assert_int_equal(n_ready(&t, 1), 16);
    assert_int_equal(n_ready(&t, 2), 2);
    leave(&t.w, 2); /* merges the parts */
    check(&t);
    holds(&t, 1, "abcdefghijklmnopq", 16);
    end(&t);
}

static void a_queued_write_is_dropped_when_its_chunk_changes(void **state) {
    (void)state;
    tier_world t;
    begin(&t);
    join(&t.w, "abcdefghij");
    compute(&t.w, 1, 10);
    ca_tree_write_behind(t.w.tree, at(&t.w, 1));
    cut_to(&t.w, 1, 6); /* the second chunk is not full any more */
    ca_tier_stats stats;
    ca_tier_get_stats(t.tier, &stats);
    assert_int_equal(stats.n_queued_writes, 1);
    leave(&t.w, 1);
    while (ca_budget_evict_one(t.w.tree)) {
    }
    ca_tier_get_stats(t.tier, &stats);
    assert_int_equal(stats.n_queued_writes, 0);
    assert_int_equal(stats.n_dropped_writes, 2);
    check(&t);
    end(&t);
}

static void reading_that_takes_longer_than_computing_is_not_done(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghijklmnopq");
    assert_int_equal(enter(&t, "abcdefghijklmnopq", 1e-9), 16); /* no read has been measured yet */
    t.disk.call_seconds = 1e-3;                                 /* from here on each takes time */
    work(&t, 4);
    go(&t, 1);
    while (ca_budget_evict_one(t.w.tree)) {
    }
    assert_int_equal(enter(&t, "abcdefghijklmnopq", 1e-9), 0);
    assert_int_equal(enter(&t, "abcdefghijklmnopq", 1e9), 16);
    end(&t);
}

static void nothing_is_restored_without_memory(void **state) {
    (void)state;
    tier_world t;
    begin_with(&t, "abcdefghijklmnopq");
    int32_t tokens[64];
    parse("abcdefghijklmnopq", tokens);
    join(&t.w, "abcdefghijklmnopq");
    void *(*alloc)(void *, size_t, size_t) = t.w.alloc.alloc;
    int n_faults = 0;
    for (bool restored = false; !restored && n_faults < 100; n_faults++) {
        failing faults = {.left = n_faults, .times = 1};
        t.w.alloc.alloc = failing_alloc;
        t.w.alloc.ctx = &faults;
        restored = ca_tree_restore(t.w.tree, at(&t.w, 1), tokens, 0) == 16;
        t.w.alloc.alloc = alloc;
        check(&t);
        if (!restored) assert_true(n_coming(&t, 1) < 16);
        if (!restored && t.w.tree->restores.n > 0) work(&t, (int)(n_coming(&t, 1) - n_ready(&t, 1)) / C);
    }
    assert_true(n_faults > 3);
    end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_become_ready_in_order_after_a_restart),
        cmocka_unit_test(what_is_restored_counts_for_who_waited),
        cmocka_unit_test(the_last_token_is_always_computed),
        cmocka_unit_test(tokens_behind_the_last_ones_of_a_prompt),
        cmocka_unit_test(a_branch_in_a_chunk_gets_the_whole_chunk),
        cmocka_unit_test(what_shares_its_chunk_with_ready_tokens_is_computed),
        cmocka_unit_test(a_later_sequence_extends_what_is_on_the_way),
        cmocka_unit_test(a_failed_read_leaves_the_rest_to_steps),
        cmocka_unit_test(a_read_does_not_overtake_commands_on_its_chunk),
        cmocka_unit_test(a_restore_closes_what_an_aborted_step_has_opened),
        cmocka_unit_test(a_restore_ends_when_nobody_waits),
        cmocka_unit_test(tokens_on_the_way_are_not_claimed_after_appends_and_splits),
        cmocka_unit_test(a_queued_write_is_dropped_when_its_chunk_changes),
        cmocka_unit_test(reading_that_takes_longer_than_computing_is_not_done),
        cmocka_unit_test(nothing_is_restored_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
