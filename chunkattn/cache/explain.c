/*
 * Why a prompt does not match further: what the tree has in its place, or that it was evicted.
 *
 * A match is even, so the token that differs is the first or the second behind it.
 */
#include "tree_internal.h"

#include <string.h>

enum {
    MOST_CHILDREN = 64, /* among which the one that is shown is chosen */
    MOST_DOMAINS = 256,
};

/* ---- What the tree has behind the match ---- */

/* Of two nodes that begin behind the match, whether a is shown rather than b (NULL: none). */
static bool is_shown_rather(const ca_node *a, const ca_node *b, int32_t token) {
    if (!b) return true;
    const bool a_begins = a->tokens[0] == token, b_begins = b->tokens[0] == token;
    if (a_begins != b_begins) return a_begins;
    return a->n_seqs != b->n_seqs ? a->n_seqs > b->n_seqs : a->last_use > b->last_use;
}

/*
 * The child of a domain that is shown for a prompt that goes on with `token`. Those that begin with the token are neighbours;
 * the others are the nearest of them. NULL: there is no child of the domain.
 */
static const ca_node *choose_child(const ca_node *parent, uint32_t domain, int32_t token) {
    const size_t at = ca_node_lower_bound(parent, domain, token, INT32_MIN, 0);
    const size_t begin = at > MOST_CHILDREN / 2 ? at - MOST_CHILDREN / 2 : 0;
    const ca_node *best = NULL;
    for (size_t i = begin; i < parent->n_children && i < begin + MOST_CHILDREN; i++) {
        const ca_node *child = parent->children[i];
        if (child->domain == domain && is_shown_rather(child, best, token)) best = child;
    }
    return best;
}

/* Fill `next` and `difference`. */
static void show_next(const ca_tree *tree, const ca_match *match, const int32_t *tokens, int64_t n_tokens, uint32_t domain,
                      cattn_explanation *e) {
    const ca_node *node = match->node;
    int64_t first = match->n_node_tokens;
    if (first == node->n_tokens) {
        node = match->n_tokens < n_tokens ? choose_child(node, domain, tokens[match->n_tokens]) : NULL;
        first = 0;
    }
    e->difference = -1;
    if (!node) return;
    e->n_next = ca_min(CATTN_EXPLAIN_TOKENS, node->n_tokens - first);
    memcpy(e->next, node->tokens + first, (size_t)e->n_next * sizeof *e->next);
    for (int64_t i = 0; i < e->n_next && match->n_tokens + i < n_tokens && e->difference < 0; i++)
        if (e->next[i] != tokens[match->n_tokens + i]) e->difference = match->n_tokens + i;
    ca_extras_show(&tree->extras, e->next, NULL, e->n_next);
}

/* ---- What was evicted ---- */

/* Fill n_evicted and evicted_seconds: look for the hash of every longer prefix. */
static void find_evicted(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain, cattn_explanation *e) {
    uint32_t hash = domain + ca_reuse_hash(tokens, 0, e->n_matched), time;
    for (int64_t n = e->n_matched; n < n_tokens; n++) {
        hash += ca_reuse_hash(tokens + n, n, 1);
        if (!ca_reuse_find_evicted(&tree->reuse, hash, &time)) continue;
        if (e->n_evicted == 0) e->evicted_seconds = (double)(ca_tree_time(tree) - time) / 10;
        e->n_evicted = n + 1;
    }
}

/* ---- What other domains and the file tier have ---- */

static void find_other_domain(const ca_tree *tree, const int32_t *tokens, int64_t limit, uint32_t domain,
                              cattn_explanation *e) {
    const ca_node *root = tree->root;
    size_t i = 0;
    for (int n = 0; n < MOST_DOMAINS && i < root->n_children; n++) {
        const uint32_t other = root->children[i]->domain;
        const int64_t n_matched = other == domain ? 0 : ca_tree_match(tree, tokens, limit, other).n_tokens;
        if (n_matched > e->n_other_matched) {
            e->n_other_matched = n_matched;
            e->other_domain = other;
        }
        if (other == UINT32_MAX) return;
        i = ca_node_lower_bound(root, other + 1, INT32_MIN, INT32_MIN, 0);
    }
}

/* Tokens after the first n_there, in full chunks, of which the tier has records. */
static int64_t count_in_tier(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, int64_t n_there, uint32_t domain) {
    ca_tier *tier = tree->config.tier;
    const int log2_c = tree->layout->log2_c;
    const int64_t first = ca_chunk_of(tree, n_there), n_chunks = n_tokens >> log2_c;
    if (!tier || first >= n_chunks) return 0;
    ca_tier_key key = ca_tier_root(tier, domain);
    int64_t i = 0;
    for (; i < n_chunks; i++) {
        key = ca_tier_key_after(tree, key, tokens + (i << log2_c));
        if (i >= first && !ca_tier_has(tier, key)) break;
    }
    return i > first ? (i << log2_c) - n_there : 0;
}

/* ---- All of it ---- */

void ca_tree_explain(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain, bool tier,
                     cattn_explanation *e) {
    *e = (cattn_explanation){.struct_size = sizeof *e, .difference = -1, .end = CATTN_MATCH_PRIVATE};
    if (tree->config.sharing == CATTN_PRIVATE) return;
    const int64_t limit = ca_even(n_tokens - 1);
    const ca_match match = ca_tree_match(tree, tokens, limit, domain);
    e->n_matched = match.n_tokens;
    e->n_ready = match.n_ready;
    e->node_id = match.node->parent ? match.node->id : 0;
    const int64_t n_coming_to = ca_min(ca_path_n_coming(match.node), match.n_tokens);
    e->n_coming = ca_max(n_coming_to - match.n_ready, 0);
    if (tier) e->n_in_tier = count_in_tier(tree, tokens, n_tokens, e->n_ready + e->n_coming, domain);
    find_other_domain(tree, tokens, limit, domain, e);
    e->end = CATTN_MATCH_WHOLE;
    if (match.n_tokens == limit) return;
    show_next(tree, &match, tokens, n_tokens, domain, e);
    find_evicted(tree, tokens, n_tokens, domain, e);
    e->end = e->n_evicted > 0 ? CATTN_MATCH_EVICTED : e->difference >= 0 ? CATTN_MATCH_DIFFERS : CATTN_MATCH_ENDS;
}
