/* Looking at the tree: walks in parts, what they say of a node, and why a prompt does not match further. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "tests/support/rng.h"
#include "tests/support/status.h"

enum { MAX_NODES = 2000, MAX_TOKENS = 200 };

static cattn_config small(void) { return small_config(1, 1, 1, 64, 32 << 20); }

static cattn_seq join_in(cattn_cache *cache, uint32_t domain, const int32_t *tokens, int64_t n) {
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = domain;
    cattn_seq seq;
    assert_int_equal(cattn_seq_join(cache, tokens, n, &options, &seq, NULL, NULL), CATTN_OK);
    return seq;
}

/* A step of one sequence: its next tokens, at most max_rows, become ready. */
static void compute(cattn_cache *cache, cattn_seq seq, int64_t max_rows) {
    cattn_entry entry = {.seq = seq, .max_rows = max_rows};
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    end_step(cache);
}

static void leave(cattn_cache *cache, cattn_seq seq) { assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK); }

/* A sequence that comes, computes all of its tokens and leaves. */
static void request(cattn_cache *cache, uint32_t domain, const int32_t *tokens, int64_t n) {
    const cattn_seq seq = join_in(cache, domain, tokens, n);
    compute(cache, seq, n);
    leave(cache, seq);
}

static void fill(int32_t *tokens, int32_t first, int64_t n) {
    for (int32_t i = 0; i < n; i++) tokens[i] = first + i;
}

/* ---- Walks ---- */

typedef struct list {
    cattn_node_info nodes[MAX_NODES];
    int n, stop_at; /* stop_at: stop after this many nodes; 0: never */
} list;

static int add(void *ctx, const cattn_node_info *node) {
    list *l = ctx;
    assert_true(l->n < MAX_NODES);
    l->nodes[l->n++] = *node;
    return l->n == l->stop_at;
}

/* The next part of a walk. */
static void walk(const cattn_cache *cache, int64_t max_nodes, uint64_t *cursor, list *l) {
    cattn_walk_options options;
    cattn_walk_options_init(&options);
    options.max_nodes = max_nodes;
    cattn_error error;
    if (cattn_cache_walk(cache, &options, cursor, add, l, &error)) fail_msg("%s", error.message);
}

static void walk_all(const cattn_cache *cache, list *l) {
    uint64_t cursor = 0;
    l->n = 0;
    walk(cache, CATTN_MAX_WALK_NODES, &cursor, l);
    assert_int_equal(cursor, 0);
}

/* Prompts with common prefixes of all lengths; some stay, some leave. Returns the number of sequences that run. */
static int draw_tree(cattn_cache *cache, rng *r, int n, cattn_seq *seqs) {
    static int32_t before[64][MAX_TOKENS];
    int n_seqs = 0;
    for (int i = 0; i < n; i++) {
        int32_t *tokens = before[i % 64];
        memcpy(tokens, before[rng_below(r, 64)], sizeof before[0]);
        const int64_t length = rng_range(r, 2, MAX_TOKENS);
        for (int64_t k = rng_range(r, 0, length); k < length; k++) tokens[k] = rng_below(r, 9);
        const cattn_seq seq = join_in(cache, (uint32_t)rng_below(r, 2), tokens, length);
        compute(cache, seq, rng_range(r, 1, length));
        if (rng_chance(r, 2))
            leave(cache, seq);
        else
            seqs[n_seqs++] = seq;
    }
    return n_seqs;
}

/* Parts of any size are together what one call reports, in the same order. */
static void parts_are_the_whole(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *cache = create(&config);
    static cattn_seq seqs[200];
    static list whole, parts;
    rng r = {1};
    draw_tree(cache, &r, 150, seqs);
    walk_all(cache, &whole);
    assert_true(whole.n > 100);
    assert_int_equal(whole.n, stats_of(cache).n_nodes);
    const int64_t sizes[] = {1, 2, 7, 100, CATTN_MAX_WALK_NODES};
    for (int i = 0; i < 5; i++) {
        uint64_t cursor = 0;
        parts.n = 0;
        do {
            const int before = parts.n;
            walk(cache, sizes[i], &cursor, &parts);
            assert_int_equal(parts.n - before, cursor ? sizes[i] : parts.n - before);
        } while (cursor);
        assert_int_equal(parts.n, whole.n);
        for (int k = 0; k < whole.n; k++) {
            cattn_node_info expected = whole.nodes[k], got = parts.nodes[k];
            expected.idle_seconds = got.idle_seconds = 0;
            assert_memory_equal(&got, &expected, sizeof got);
        }
    }
    cattn_cache_destroy(&cache);
}

static void the_options_of_walks(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *cache = create(&config);
    static list l;
    cattn_walk_options options;
    cattn_error error;
    int32_t tokens[100];
    uint64_t cursor = 0, other = 0;
    l.n = 0;
    walk(cache, 5, &cursor, &l); /* of an empty tree */
    assert_int_equal(cursor, 0);
    assert_int_equal(l.n, 0);
    fill(tokens, 0, 100);
    request(cache, 0, tokens, 61);
    tokens[50] = 7;
    request(cache, 0, tokens, 100); /* 50 in common, then leaves of 10 and 50 */
    walk(cache, 1, &cursor, &l);
    assert_int_equal(l.nodes[0].n_tokens, 50);
    cattn_walk_options_init(&options);
    options.min_tokens = 11;
    l.n = 0;
    assert_int_equal(cattn_cache_walk(cache, &options, &other, add, &l, NULL), CATTN_OK);
    assert_int_equal(l.n, 2);
    assert_int_equal(other, 0);
    options.min_tokens = 51; /* a node with children is not left out, since they name it */
    l.n = 0;
    assert_int_equal(cattn_cache_walk(cache, &options, &other, add, &l, NULL), CATTN_OK);
    assert_int_equal(l.n, 1);
    l = (list){.stop_at = 2};
    options.min_tokens = 0;
    assert_int_equal(cattn_cache_walk(cache, &options, &other, add, &l, NULL), CATTN_OK);
    assert_int_equal(l.n, 2);
    l.stop_at = 0;
    assert_int_equal(cattn_cache_walk(cache, &options, &other, add, &l, NULL), CATTN_OK);
    assert_int_equal(l.n, 3);

    /* One node, with those below it; of another, whatever follows it. */
    const uint64_t trunk = l.nodes[0].id, first_leaf = l.nodes[1].id;
    for (int k = 0; k < 2; k++) {
        cattn_walk_options_init(&options);
        options.node_id = k == 0 ? trunk : first_leaf;
        l.n = 0;
        assert_int_equal(cattn_cache_walk(cache, &options, &other, add, &l, NULL), CATTN_OK);
        assert_int_equal(other, 0);
        assert_int_equal(l.n, k == 0 ? 3 : 1);
        assert_int_equal(l.nodes[0].id, options.node_id);
        assert_int_equal(l.nodes[0].depth, k);
    }
    options.node_id = trunk;
    options.max_nodes = 2;
    l.n = 0;
    assert_int_equal(cattn_cache_walk(cache, &options, &other, add, &l, NULL), CATTN_OK);
    assert_int_equal(l.n, 2);
    assert_int_equal(other, 0);
    expect(cattn_cache_walk(cache, &options, &cursor, add, &l, &error), CATTN_ERR_ARG, &error, "with a cursor");
    options.node_id = 12345;
    expect(cattn_cache_walk(cache, &options, &other, add, &l, &error), CATTN_ERR_ARG, &error, "node_id is 12345");
    options.node_id = 0;

    const struct {
        int64_t max_nodes, min_tokens;
        const char *text;
    } wrong[] = {
        {0, 0, "max_nodes is 0; it must be from 1 to 4096"}, {4097, 0, "max_nodes is 4097"}, {1, -1, "min_tokens is -1"}};
    for (int i = 0; i < 3; i++) {
        options.max_nodes = wrong[i].max_nodes;
        options.min_tokens = wrong[i].min_tokens;
        expect(cattn_cache_walk(cache, &options, &other, add, &l, &error), CATTN_ERR_ARG, &error, wrong[i].text);
    }
    expect(cattn_cache_walk(NULL, NULL, &other, add, &l, &error), CATTN_ERR_ARG, &error, "cache is NULL");
    expect(cattn_cache_walk(cache, NULL, NULL, add, &l, &error), CATTN_ERR_ARG, &error, "cursor is NULL");
    expect(cattn_cache_walk(cache, NULL, &other, NULL, &l, &error), CATTN_ERR_ARG, &error, "fn is NULL");
    /* A walk is remembered as long as no 16 others have been continued after it. A cursor can be used once. */
    other = cursor;
    for (int i = 0; i < CATTN_MAX_WALKS - 1; i++) {
        uint64_t another = 0;
        walk(cache, 1, &another, &l);
    }
    walk(cache, 1, &cursor, &l);
    assert_true(cursor != 0 && cursor != other);
    expect(cattn_cache_walk(cache, NULL, &other, add, &l, &error), CATTN_ERR_STATE, &error, "begin with 0");
    for (int i = 0; i < CATTN_MAX_WALKS; i++) {
        other = 0;
        walk(cache, 1, &other, &l);
    }
    expect(cattn_cache_walk(cache, NULL, &cursor, add, &l, &error), CATTN_ERR_STATE, &error, "begin with 0");
    cursor = UINT64_MAX;
    expect(cattn_cache_walk(cache, NULL, &cursor, add, &l, &error), CATTN_ERR_STATE, &error, "begin with 0");
    cattn_cache_destroy(&cache);
}

/* 16 sequences with a common prefix: what a walk says of the trunk and of the leaves. */
static void what_is_said_of_a_node(void **state) {
    (void)state;
    enum { N = 16, TRUNK = 64, LENGTH = 90 };
    const cattn_config config = small();
    cattn_cache *cache = create(&config);
    static list l;
    int32_t tokens[LENGTH];
    cattn_entry batch[N];
    cattn_seq pin;
    for (int i = 0; i < N; i++) {
        fill(tokens, 0, TRUNK);
        fill(tokens + TRUNK, 1000 * (i + 1), LENGTH - TRUNK);
        batch[i] = (cattn_entry){.seq = join_in(cache, 5, tokens, LENGTH), .max_rows = LENGTH};
    }
    assert_int_equal(cattn_step_begin(cache, batch, N, 0, NULL), CATTN_OK);
    end_step(cache);
    assert_int_equal(cattn_seq_pin(cache, batch[3].seq, 40, &pin, NULL), CATTN_OK);
    batch[0].max_rows = batch[1].max_rows = 1;
    for (int i = 0; i < 2; i++) assert_int_equal(cattn_seq_append(cache, batch[i].seq, tokens, 1, NULL), CATTN_OK);
    assert_int_equal(cattn_step_begin(cache, batch, 2, 0, NULL), CATTN_OK);
    uint64_t cursor = 0;
    l.n = 0;
    walk(cache, 100, &cursor, &l); /* while the step is open */
    assert_int_equal(l.n, 1 + 1 + N);
    const cattn_node_info *pinned = &l.nodes[0], *trunk = &l.nodes[1];
    assert_int_equal(pinned->n_tokens, 40);
    assert_int_equal(pinned->n_seqs, N + 1);
    assert_int_equal(pinned->n_pins, 1);
    assert_int_equal(trunk->parent_id, pinned->id);
    assert_int_equal(trunk->depth, 1);
    assert_int_equal(trunk->domain, 5);
    assert_int_equal(trunk->first_pos + trunk->n_tokens, TRUNK);
    assert_int_equal(trunk->n_ready, trunk->n_tokens);
    assert_int_equal(trunk->n_seqs, N);
    assert_int_equal(trunk->n_pins, 0);
    assert_int_equal(trunk->n_step_seqs, 2);
    assert_int_equal(trunk->n_hits, N - 1); /* the first join found nothing */
    assert_true(trunk->idle_seconds >= 0 && trunk->idle_seconds < 60);
    uint64_t own = pinned->own_bytes + trunk->own_bytes;
    int n_in_step = 0;
    for (int i = 2; i < l.n; i++) {
        const cattn_node_info *leaf = &l.nodes[i];
        assert_int_equal(leaf->parent_id, trunk->id);
        assert_int_equal(leaf->n_seqs, 1);
        assert_int_equal(leaf->n_hits, 0);
        assert_true(leaf->n_step_seqs == 0 || leaf->n_tokens == LENGTH - TRUNK + 1);
        n_in_step += (int)leaf->n_step_seqs;
        own += leaf->own_bytes;
    }
    assert_int_equal(n_in_step, 2);
    /* The chunk in which the pin ends is also the trunk's; all others are one node's. */
    const cattn_stats stats = stats_of(cache);
    assert_int_equal(own, (stats.chunks_live + stats.chunks_retained - 1) * stats.chunk_bytes);
    end_step(cache);
    leave(cache, batch[0].seq);
    l.n = 0;
    walk(cache, 100, &cursor, &l);
    assert_int_equal(l.nodes[1].n_step_seqs, 1); /* of the last step, the one that still runs */
    for (int i = 1; i < N; i++) leave(cache, batch[i].seq);
    l.n = 0;
    walk(cache, 100, &cursor, &l);
    assert_int_equal(l.nodes[0].n_seqs, 1);
    assert_int_equal(l.nodes[1].n_seqs + l.nodes[1].n_step_seqs, 0);
    cattn_cache_destroy(&cache);
}

/* ---- Explanations ---- */

static cattn_explanation explain(const cattn_cache *cache, uint32_t domain, const int32_t *tokens, int64_t n) {
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = domain;
    cattn_explanation e = {.struct_size = sizeof e};
    cattn_join_result match;
    cattn_error error;
    if (cattn_cache_explain(cache, tokens, n, &options, &e, &error)) fail_msg("%s", error.message);
    assert_int_equal(cattn_cache_match(cache, tokens, n, &options, &match, NULL), CATTN_OK);
    assert_int_equal(e.n_matched, match.n_matched);
    assert_int_equal(e.n_ready, match.n_ready);
    return e;
}

static void the_first_token_that_differs(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *cache = create(&config);
    int32_t tokens[MAX_TOKENS];
    fill(tokens, 100, MAX_TOKENS);
    cattn_explanation e = explain(cache, 0, tokens, 100); /* of an empty cache */
    assert_int_equal(e.end, CATTN_MATCH_ENDS);
    assert_int_equal(e.n_matched + e.n_next + (int64_t)e.node_id + e.n_other_matched, 0);
    assert_int_equal(e.difference, -1);
    request(cache, 0, tokens, 100);
    e = explain(cache, 0, tokens, 100);
    assert_int_equal(e.end, CATTN_MATCH_WHOLE);
    assert_int_equal(e.n_matched, 98);
    for (int at = 0; at < 90; at++) { /* inside a node, at even and odd positions */
        tokens[at] = 7;
        e = explain(cache, 0, tokens, 100);
        assert_int_equal(e.end, CATTN_MATCH_DIFFERS);
        assert_int_equal(e.n_matched, at / 2 * 2);
        assert_int_equal(e.difference, at);
        assert_int_equal(e.next[at - e.n_matched], 100 + at);
        assert_int_equal(e.n_next, 100 - e.n_matched < 64 ? 100 - e.n_matched : 64);
        tokens[at] = 100 + at;
    }
    e = explain(cache, 0, tokens, 150); /* which goes on where the tree ends */
    assert_int_equal(e.end, CATTN_MATCH_ENDS);
    assert_int_equal(e.n_matched, 100);
    assert_int_equal(e.difference, -1);
    assert_true(e.node_id > 0);

    /* At the end of a node the child is shown that has the next token, or the one that most sequences use. */
    tokens[51] = 1;
    request(cache, 0, tokens, 100); /* cut after 50 */
    tokens[50] = 2;
    cattn_seq seqs[2];
    for (int i = 0; i < 2; i++) seqs[i] = join_in(cache, 0, tokens, 80 + i);
    tokens[50] = 150;
    tokens[51] = 3;
    e = explain(cache, 0, tokens, 100);
    assert_int_equal(e.n_matched, 50);
    assert_int_equal(e.difference, 51);
    assert_int_equal(e.next[0], 150);
    tokens[50] = 5;
    e = explain(cache, 0, tokens, 100);
    assert_int_equal(e.difference, 50);
    assert_int_equal(e.next[0], 2);
    /* What is still to be computed matches, and is not ready. */
    tokens[50] = 2;
    tokens[51] = 1;
    e = explain(cache, 0, tokens, 81);
    assert_int_equal(e.end, CATTN_MATCH_WHOLE);
    assert_int_equal(e.n_matched, 80);
    assert_int_equal(e.n_ready, 50);
    assert_int_equal(e.n_coming, 0);
    for (int i = 0; i < 2; i++) leave(cache, seqs[i]);
    cattn_cache_destroy(&cache);
}

static void another_domain_has_it(void **state) {
    (void)state;
    const cattn_config config = small();
    cattn_cache *cache = create(&config);
    int32_t tokens[MAX_TOKENS];
    fill(tokens, 0, MAX_TOKENS);
    request(cache, 9, tokens, 50);
    request(cache, UINT32_MAX, tokens, 71);
    request(cache, 3, tokens + 1, 90);
    cattn_explanation e = explain(cache, 4, tokens, 100);
    assert_int_equal(e.end, CATTN_MATCH_ENDS);
    assert_int_equal(e.other_domain, UINT32_MAX);
    assert_int_equal(e.n_other_matched, 70);
    e = explain(cache, UINT32_MAX, tokens, 100);
    assert_int_equal(e.n_matched, 70);
    assert_int_equal(e.other_domain, 9);
    assert_int_equal(e.n_other_matched, 50);
    cattn_cache_destroy(&cache);
}

/* Tokens that made room are known to have been there, with the time since then. */
static void what_was_evicted(void **state) {
    (void)state;
    const cattn_retention both[] = {CATTN_RETAIN_LRU, CATTN_RETAIN_LEARNED};
    for (int r = 0; r < 2; r++) {
        cattn_config config = small();
        config.retention = both[r];
        cattn_cache *cache = create(&config);
        int32_t tokens[MAX_TOKENS];
        fill(tokens, 50, MAX_TOKENS);
        request(cache, 2, tokens, 150);
        request(cache, 3, tokens, 20);
        assert_int_equal(cattn_cache_drop_retained(cache, NULL), CATTN_OK);
        cattn_explanation e = explain(cache, 2, tokens, 200);
        assert_int_equal(e.end, CATTN_MATCH_EVICTED);
        assert_int_equal(e.n_matched, 0);
        assert_int_equal(e.n_evicted, 150);
        assert_true(e.evicted_seconds >= 0 && e.evicted_seconds < 60);
        e = explain(cache, 2, tokens, 120); /* it ends among the tokens that were evicted: known to a multiple of 16 */
        assert_int_equal(e.end, CATTN_MATCH_EVICTED);
        assert_int_equal(e.n_evicted, 112);
        e = explain(cache, 3, tokens, 120);
        assert_int_equal(e.n_evicted, 20);
        e = explain(cache, 4, tokens, 120); /* another domain's */
        assert_int_equal(e.end, CATTN_MATCH_ENDS);
        tokens[40] = 1; /* another prompt's */
        e = explain(cache, 2, tokens, 120);
        assert_int_equal(e.n_evicted, 32);
        tokens[0] = 1;
        e = explain(cache, 2, tokens, 120);
        assert_int_equal(e.end, CATTN_MATCH_ENDS);
        fill(tokens, 50, MAX_TOKENS);
        request(cache, 2, tokens, 60); /* a part of it is back */
        e = explain(cache, 2, tokens, 200);
        assert_int_equal(e.n_matched, 60);
        assert_int_equal(e.end, CATTN_MATCH_EVICTED);
        assert_int_equal(e.n_evicted, 150);
        cattn_cache_destroy(&cache);
    }
}

/* Evicted for room, chunk by chunk, where a branch begins within a chunk. */
static void what_made_room(void **state) {
    (void)state;
    enum { N = 80, TRUNK = 22, LENGTH = 75 };
    cattn_config config = small();
    config.head_dim = 256;
    config.n_layers = 4; /* a chunk has 64 KiB */
    config.budget_bytes = 8 << 20;
    cattn_cache *cache = create(&config);
    static int32_t prompts[N][LENGTH];
    int n_evicted = 0, n_there = 0;
    for (int i = 0; i < N; i++) {
        fill(prompts[i], 0, TRUNK);
        fill(prompts[i] + TRUNK, 1000 * (i + 1), LENGTH - TRUNK);
        request(cache, 0, prompts[i], LENGTH);
    }
    assert_true(stats_of(cache).tokens_evicted > 0);
    for (int i = 0; i < N; i++) {
        const cattn_explanation e = explain(cache, 0, prompts[i], LENGTH);
        n_there += e.end == CATTN_MATCH_WHOLE;
        if (e.end != CATTN_MATCH_EVICTED) continue;
        n_evicted++;
        assert_true(e.n_evicted > e.n_matched && e.n_evicted <= LENGTH);
    }
    assert_true(n_there > 10);
    assert_true(n_evicted > (N - n_there) * 3 / 4); /* of some others the place was needed again */
    cattn_cache_destroy(&cache);
}

static void what_is_not_shared(void **state) {
    (void)state;
    int32_t tokens[50] = {1, 2, 3};
    cattn_config config = small();
    config.sharing = CATTN_PRIVATE;
    cattn_cache *cache = create(&config);
    const cattn_seq seq = join_in(cache, 0, tokens, 50);
    assert_int_equal(explain(cache, 0, tokens, 50).end, CATTN_MATCH_PRIVATE);
    leave(cache, seq);
    cattn_cache_destroy(&cache);
    config = small();
    config.retention = CATTN_RETAIN_NONE; /* nothing is evicted, and nothing stays */
    cache = create(&config);
    request(cache, 0, tokens, 50);
    assert_int_equal(explain(cache, 0, tokens, 50).end, CATTN_MATCH_ENDS);

    cattn_explanation e = {.struct_size = sizeof e};
    cattn_error error;
    expect(cattn_cache_explain(NULL, tokens, 3, NULL, &e, &error), CATTN_ERR_ARG, &error, "cache is NULL");
    expect(cattn_cache_explain(cache, tokens, 3, NULL, NULL, &error), CATTN_ERR_ARG, &error, "explanation is NULL");
    expect(cattn_cache_explain(cache, NULL, 3, NULL, &e, &error), CATTN_ERR_ARG, &error, "tokens is NULL");
    expect(cattn_cache_explain(cache, tokens, 0, NULL, &e, &error), CATTN_ERR_ARG, &error, "n_tokens is 0");
    tokens[2] = -4;
    expect(cattn_cache_explain(cache, tokens, 3, NULL, &e, &error), CATTN_ERR_ARG, &error, "tokens[2] is -4");
    assert_int_equal(error.entry, 2);
    cattn_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_the_whole),    cmocka_unit_test(the_options_of_walks),
        cmocka_unit_test(what_is_said_of_a_node), cmocka_unit_test(the_first_token_that_differs),
        cmocka_unit_test(another_domain_has_it),  cmocka_unit_test(what_was_evicted),
        cmocka_unit_test(what_made_room),         cmocka_unit_test(what_is_not_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
