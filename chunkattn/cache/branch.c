/* Preparing the place in the tree where a sequence's path leaves the others', and where a leaf is added. */
#include "tree_internal.h"

int ca_branch_prepare(ca_tree *tree, ca_branch *branch, ca_node *at, int64_t n_upper, int64_t n_tokens) {
    if (n_upper == 0 && at->parent) {
        at = at->parent;
        n_upper = at->n_tokens;
    }
    *branch = (ca_branch){.at = at, .n_upper = n_upper};
    const int64_t position = at->start + n_upper;
    if (n_upper < at->n_tokens) branch->lower = ca_node_new(tree, position, at->n_tokens - n_upper, 2);
    if (n_tokens > 0) branch->leaf = ca_node_new(tree, position, n_tokens, 0);
    if ((n_upper == at->n_tokens || branch->lower) && (n_tokens == 0 || branch->leaf)) return 0;
    ca_branch_abandon(tree, branch);
    return -1;
}

size_t ca_branch_growth(const ca_branch *branch) { return branch->lower ? 0 : ca_node_child_growth(branch->at); }

int ca_branch_reserve(ca_tree *tree, const ca_branch *branch) {
    return branch->lower ? 0 : ca_node_reserve_child(tree, branch->at);
}

void ca_branch_abandon(ca_tree *tree, ca_branch *branch) {
    ca_node_free(tree, branch->lower);
    ca_node_free(tree, branch->leaf);
    branch->lower = branch->leaf = NULL;
}

void ca_branch_cut(ca_tree *tree, ca_branch *branch) {
    if (!branch->lower) return;
    ca_node_split(tree, branch->at, branch->n_upper, branch->lower);
    branch->lower = NULL;
}

int64_t ca_branch_chunks(const ca_tree *tree, const ca_branch *branch, int64_t n_tokens, const ca_seq *appender) {
    const int64_t position = branch->at->start + branch->n_upper;
    const bool takes_tail = !branch->lower && ca_node_tail_is_free(tree, branch->at, appender);
    return ca_chunks_for(tree, position + n_tokens) - ca_chunk_of(tree, position) - takes_tail;
}

void ca_branch_add_copy(ca_tree *tree, ca_branch *branch, uint32_t domain, const ca_node *from, const ca_seq *appender) {
    ca_node *leaf = branch->leaf;
    assert(leaf->start == from->start);
    leaf->domain = domain;
    ca_node_add_leaf(tree, branch->at, leaf, from->tokens, 1, appender);
    if (from->n_ready == 0) return;
    const int32_t slot = ca_slot_of(tree, leaf->start);
    ca_kv_note_copy(&tree->commands, tree->pool, leaf->chunks[0], from->chunks[0], slot, slot + 1);
    leaf->n_ready = leaf->n_claimed = 1;
}

int64_t ca_leaf_slack(const ca_tree *tree, int64_t n_reserved) {
    const int64_t c = tree->layout->c;
    return ca_max(c, ca_min(n_reserved, 16 * c));
}
