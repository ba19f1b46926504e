/* Cutting a node in two; the reverse, merging two, once nothing separates them any more. */
#include "tree_internal.h"

#include <string.h>

/* Move the children of `from` to node, which has none. The nodes exchange their arrays of children. */
static void take_children(ca_node *node, ca_node *from) {
    ca_node **own = node->children;
    const size_t capacity = node->children_capacity;
    node->children = from->children;
    node->children_capacity = from->children_capacity;
    node->n_children = from->n_children;
    for (size_t i = 0; i < node->n_children; i++) node->children[i]->parent = node;
    from->children = own;
    from->children_capacity = capacity;
    from->n_children = 0;
}

/* Let the sequences that end at node know it. */
static void set_leaf(ca_node *node) {
    for (ca_seq *seq = node->ending; seq; seq = seq->next) seq->leaf = node;
}

void ca_node_split(ca_tree *tree, ca_node *node, int64_t n_tokens, ca_node *lower) {
    assert(n_tokens > 0 && n_tokens < node->n_tokens && n_tokens % 2 == 0);
    assert(lower->start == node->start + n_tokens && lower->children_capacity >= 2);
    const int64_t first_chunk = ca_chunk_of(tree, node->start);
    const int64_t n_upper_chunks = ca_chunks_for(tree, lower->start) - first_chunk;

    lower->id = ++tree->n_node_ids;
    lower->domain = node->domain;
    lower->n_seqs = node->n_seqs;
    lower->last_use = node->last_use;
    lower->used_at = node->used_at;
    lower->n_hits = node->n_hits;
    lower->n_tokens = node->n_tokens - n_tokens;
    lower->n_ready = ca_max(0, node->n_ready - n_tokens);
    lower->n_claimed = ca_max(0, node->n_claimed - n_tokens);
    lower->n_coming = ca_max(0, node->n_ready + node->n_coming - n_tokens) - lower->n_ready;
    memcpy(lower->tokens, node->tokens + n_tokens, (size_t)lower->n_tokens * sizeof *lower->tokens);
    for (size_t i = (size_t)(ca_chunk_of(tree, lower->start) - first_chunk); i < node->n_chunks; i++)
        ca_node_push_chunk(tree, lower, node->chunks[i]);
    lower->ending = node->ending;
    set_leaf(lower);

    node->n_tokens = n_tokens;
    ca_node_keep_progress(node, n_tokens);
    while (node->n_chunks > (size_t)n_upper_chunks) ca_node_pop_chunk(tree, node);
    node->ending = NULL;

    take_children(lower, node);
    ca_node_link_child(node, lower);
    tree->counts.n_nodes++;
    ca_evict_update(tree, node);
    ca_evict_update(tree, lower);
    ca_node_changed(tree, node);
}

static bool is_held(const ca_tree *tree, const ca_node *node) {
    return tree->held && (node == tree->held || node == tree->held->parent);
}

void ca_node_try_merge(ca_tree *tree, ca_node *node) {
    if (!node->parent || node->n_children != 1 || node->ending) return;
    ca_node *child = node->children[0];
    if (is_held(tree, node) || is_held(tree, child)) return;
    const bool same_chunk = ca_node_shares_first_chunk(child);
    if (!same_chunk && ca_slot_of(tree, child->start) != 0) return;
    if (ca_node_reserve_merge(tree, node, child) != 0) return;
    assert(node->n_seqs == child->n_seqs);
    assert(node->n_ready == node->n_tokens || child->n_ready == 0);

    memcpy(node->tokens + node->n_tokens, child->tokens, (size_t)child->n_tokens * sizeof *child->tokens);
    node->n_tokens += child->n_tokens;
    node->n_ready += child->n_ready;
    node->n_claimed += child->n_claimed;
    node->n_coming += child->n_coming;
    for (size_t i = same_chunk ? 1 : 0; i < child->n_chunks; i++) ca_node_push_chunk(tree, node, child->chunks[i]);
    while (child->n_chunks > 0) ca_node_pop_chunk(tree, child);
    node->ending = child->ending;
    set_leaf(node);

    take_children(node, child);
    ca_walks_skip(tree, child, node);
    ca_evict_forget(tree, child);
    ca_node_free(tree, child);
    tree->counts.n_nodes--;
    ca_evict_update(tree, node);
    ca_node_changed(tree, node);
}

void ca_node_hold(ca_tree *tree, ca_node *node) { tree->held = node; }

void ca_node_end_hold(ca_tree *tree) {
    ca_node *node = tree->held;
    tree->held = NULL;
    for (int i = 0; i < 3 && node; i++) { /* the node, its parent, and that node's parent */
        ca_node_try_merge(tree, node);
        node = node->parent;
    }
}

void ca_node_settle(ca_tree *tree, ca_node *node) {
    if (!node->parent) return;
    ca_reservation_update(tree, node);
    ca_evict_update(tree, node);
    ca_node_changed(tree, node);
    ca_node_try_merge(tree, node);
}
