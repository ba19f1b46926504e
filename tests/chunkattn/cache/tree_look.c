/* Looking at the tree of random calls: see tree_model.h. */
#include "tests/support/testing.h"

#include "tree_model.h"

#include <string.h>

/* ---- A walk whose parts lie between the calls ---- */

static bool is_reported(const world *w, uint64_t id, int *n_times) {
    *n_times = 0;
    for (int i = 0; i < w->n_walked; i++) *n_times += w->walked[i] == id;
    return *n_times > 0;
}

/* At the end of a walk: ids are never used again, so a node from before the walk that is still there was there throughout. */
static void check_walked(const world *w) {
    int32_t depth = 0;
    for (const ca_node *n = ca_tree_next(w->tree->root, &depth); n; n = ca_tree_next(n, &depth)) {
        int n_times;
        if (w->single[n->id]) continue;
        const bool reported = is_reported(w, n->id, &n_times);
        if (n->id <= w->walk_ids && !reported) fail_msg("node %d was not reported", (int)n->id);
        if (n_times > 1) fail_msg("node %d was reported %d times", (int)n->id, n_times);
    }
}

static void note_single_tokens(world *w) {
    int32_t depth = 0;
    for (const ca_node *n = ca_tree_next(w->tree->root, &depth); n; n = ca_tree_next(n, &depth)) {
        assert_true(n->id < MAX_WALKED);
        w->single[n->id] |= n->n_tokens == 1;
    }
}

static void go_on(world *w) {
    const ca_node *next;
    int32_t depth = 0;
    assert_true(ca_tree_resume_walk(w->tree, w->walk, &next));
    if (w->walk == 0) {
        w->n_walked = 0;
        w->walk_ids = w->tree->n_node_ids;
        memset(w->single, 0, sizeof w->single);
        note_single_tokens(w);
    }
    for (int64_t n = rng_range(&w->look_rng, 1, 8); next && n > 0; n--, next = ca_tree_next(next, &depth)) {
        assert_true(w->n_walked < MAX_WALKED);
        w->walked[w->n_walked++] = next->id;
    }
    w->walk = ca_tree_suspend_walk(w->tree, w->walk, next);
    if (w->walk == 0) check_walked(w);
}

/* ---- Explanations ---- */

static void explain(world *w) {
    static int32_t tokens[MAX_TOKENS];
    rng *r = &w->look_rng;
    const int64_t n = rng_range(r, 1, MAX_TOKENS), n_same = rng_range(r, 0, n);
    const uint32_t domain = (uint32_t)rng_below(r, 3);
    memcpy(tokens, w->templates[rng_below(r, N_TEMPLATES)], (size_t)n_same * sizeof *tokens);
    for (int64_t i = n_same; i < n; i++) tokens[i] = rng_below(r, 3);
    cattn_explanation e;
    ca_tree_explain(w->tree, tokens, n, domain, true, &e);
    assert_int_equal(e.n_matched, world_expected_match(w, tokens, n, domain));
    assert_true(e.n_ready + e.n_coming <= e.n_matched && e.n_ready >= 0 && e.n_coming >= 0 && e.n_in_tier >= 0);
    assert_true(e.n_evicted == 0 || (e.n_evicted > e.n_matched && e.n_evicted <= n));
    assert_true(e.n_next >= 0 && e.n_next <= CATTN_EXPLAIN_TOKENS);
    assert_true(e.n_other_matched == 0 || e.other_domain != domain);
    if (e.difference >= 0) {
        assert_true(e.difference == e.n_matched || e.difference == e.n_matched + 1);
        assert_true(e.next[0] == tokens[e.n_matched] || e.difference == e.n_matched);
        assert_true(e.next[e.difference - e.n_matched] != tokens[e.difference]);
    }
    if (e.end == CATTN_MATCH_WHOLE) assert_int_equal(e.n_matched, (n - 1) & ~(int64_t)1);
    if (e.end == CATTN_MATCH_DIFFERS) assert_true(e.difference >= 0);
    if (e.end == CATTN_MATCH_ENDS) assert_int_equal(e.difference, -1);
    if (w->config.sharing == CATTN_PRIVATE) assert_int_equal(e.end, CATTN_MATCH_PRIVATE);
}

void world_look(world *w) {
    const uint64_t hash = hash_tree(w->tree, w->pool);
    const size_t bytes = w->alloc.bytes;
    note_single_tokens(w);
    if (rng_chance(&w->look_rng, 3)) go_on(w);
    if (rng_chance(&w->look_rng, 8)) explain(w);
    assert_true(hash_tree(w->tree, w->pool) == hash);
    assert_int_equal(w->alloc.bytes, bytes);
}
