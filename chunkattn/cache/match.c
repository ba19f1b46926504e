/* Finding tokens in the tree: the longest prefix of a list, and tokens that are stored twice. */
#include "tree_internal.h"

#include <string.h>

/* The number of tokens at the beginning of a [n] and b [n] that are equal. */
static int64_t common(const int32_t *a, const int32_t *b, int64_t n) {
    enum { BLOCK = 64 }; /* memcmp is fast, but does not say where the difference is */
    int64_t i = 0;
    while (n - i >= BLOCK && memcmp(a + i, b + i, BLOCK * sizeof *a) == 0) i += BLOCK;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Child i of parent if it begins with the pair at tokens [2], else NULL. */
static ca_node *child_with_pair(const ca_node *parent, size_t i, uint32_t domain, const int32_t *tokens) {
    if (i >= parent->n_children) return NULL;
    ca_node *child = parent->children[i];
    if (child->domain != domain || child->n_tokens < 2) return NULL;
    return child->tokens[0] == tokens[0] && child->tokens[1] == tokens[1] ? child : NULL;
}

/* The number of ready tokens of a match that ends after n_node_tokens tokens of node. */
static int64_t ready_in(const ca_node *node, int64_t n_node_tokens) {
    if (node->n_ready > 0) return node->start + ca_min(node->n_ready, n_node_tokens);
    for (node = node->parent; node; node = node->parent)
        if (node->n_ready > 0) return node->start + node->n_ready;
    return 0;
}

/*
 * A depth-first search. Below a node at most one child continues the match, unless there are twins: then all of them are tried,
 * in the order of their ids, and the search returns to them through the parents.
 */
ca_match ca_tree_match(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain) {
    ca_match best = {.node = tree->root};
    size_t n_twins = 0; /* nodes on the way up that have a sibling to be tried */
    ca_node *node = tree->root;
    int64_t n_here = 0; /* tokens of node that match */
    for (;;) {
        ca_node *next = NULL;
        const int64_t position = node->start + n_here;
        if (n_here == node->n_tokens && position < n_tokens) {
            const size_t i = ca_node_lower_bound(node, domain, tokens[position], tokens[position + 1], 0);
            next = child_with_pair(node, i, domain, tokens + position);
            if (next && child_with_pair(node, i + 1, domain, tokens + position)) n_twins++;
        }
        if (!next) {
            const int64_t n_ready = ready_in(node, n_here);
            if (position > best.n_tokens || (position == best.n_tokens && n_ready > best.n_ready)) {
                best = (ca_match){node, n_here, position, n_ready};
            }
            if (n_twins == 0 || best.n_ready == n_tokens) return best;
            for (; !next; node = node->parent) {
                const size_t i = ca_node_index(node) + 1;
                next = child_with_pair(node->parent, i, domain, tokens + node->start);
                if (next && !child_with_pair(node->parent, i + 1, domain, tokens + node->start)) n_twins--;
            }
        }
        node = next;
        n_here = ca_even(common(node->tokens, tokens + node->start, ca_min(node->n_tokens, n_tokens - node->start)));
    }
}

/* ---- Tokens that are stored twice ---- */

/* The node in which the n (even, > 0) tokens from the beginning of `at` on end, if all are there and ready; else NULL. */
static ca_node *end_of(ca_node *at, const int32_t *tokens, int64_t n) {
    for (;;) {
        const int64_t n_here = ca_min(at->n_tokens, n);
        if (at->n_ready < n_here || common(at->tokens, tokens, n_here) < n_here) return NULL;
        if (n_here == n) return at;
        if (at->n_children == 0) return NULL; /* it may end at an odd position, behind which there is no pair */
        tokens += n_here;
        n -= n_here;
        at = child_with_pair(at, ca_node_lower_bound(at, at->domain, tokens[0], tokens[1], 0), at->domain, tokens);
        if (!at) return NULL;
    }
}

/* Whether nothing is lost if `twin` is removed, since node has its tokens, too. */
static bool is_contained(const ca_node *twin, const ca_node *node, int64_t n_tokens) {
    return twin->n_seqs == 0 && twin->n_children == 0 && twin->n_tokens <= n_tokens &&
           common(twin->tokens, node->tokens, twin->n_tokens) == twin->n_tokens;
}

ca_twin ca_node_find_twin(const ca_node *node, int64_t n_tokens) {
    enum { MOST_TWINS = 64 }; /* so that a call's time is bounded where many sequences continue differently */
    const int32_t *tokens = node->tokens;
    size_t i = ca_node_lower_bound(node->parent, node->domain, tokens[0], tokens[1], 0);
    ca_node *twin;
    for (int n = 0; n < MOST_TWINS && (twin = child_with_pair(node->parent, i, node->domain, tokens)); i++, n++) {
        if (twin == node) continue;
        ca_node *end = end_of(twin, tokens, n_tokens);
        if (end) return (ca_twin){.end = end};
        if (is_contained(twin, node, n_tokens)) return (ca_twin){.contained = twin};
    }
    return (ca_twin){0};
}
