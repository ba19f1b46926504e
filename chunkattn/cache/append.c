/* Append: tokens are added at the end of a sequence. */
#include "tree_internal.h"

/* Extend a leaf that only this sequence covers. */
static cattn_status append_in_place(ca_tree *tree, ca_seq *seq, const int32_t *tokens, int64_t n_tokens, cattn_error *error) {
    ca_node *leaf = seq->leaf;
    const int64_t n_after = seq->n_tokens + n_tokens;
    const int64_t n_chunks = ca_chunks_for(tree, n_after) - ca_chunks_for(tree, seq->n_tokens);
    const size_t growth = ca_node_growth(tree, leaf, leaf->n_tokens + n_tokens);
    if (n_chunks > 0 || growth > 0) {
        const ca_demand demand = {.call = "append",
                                  .n_chunks = n_chunks,
                                  .n_reserved = ca_reservation(tree, n_after, seq->reserve_to, true) - seq->n_reserved,
                                  .grows = leaf,
                                  .grows_to = leaf->n_tokens + n_tokens,
                                  .unreserved = n_after > seq->reserve_to};
        int64_t n_needed;
        const cattn_status status = ca_budget_secure(tree, &demand, &n_needed, error);
        if (status != CATTN_OK) return status;
        ca_node_hold(tree, leaf);
        ca_budget_provide(tree, n_chunks, n_needed);
    }
    ca_node_extend(tree, leaf, tokens, n_tokens);
    ca_seq_resize(tree, seq, n_after);
    if (n_chunks > 0 || growth > 0) {
        ca_reservation_update(tree, leaf);
        ca_node_end_hold(tree);
        ca_tree_shrink(tree);
    }
    return CATTN_OK;
}

/*
 * Add a leaf, since other sequences also end at this node or continue below it. At an odd length the last token moves to the
 * new leaf, since a node with children has an even length; the other sequences keep theirs:
 *
 *   [0..8 | S T]  append to S   =>   [0..7 | - ] -+- [8 | T]
 *                                                 '- [8..9 | S]    8 is copied
 */
static cattn_status append_branch(ca_tree *tree, ca_seq *seq, const int32_t *tokens, int64_t n_tokens, cattn_error *error) {
    ca_node *old = seq->leaf;
    const int64_t n_odd = old->n_tokens % 2, n_after = seq->n_tokens + n_tokens;
    ca_branch branch;
    const int64_t n_slack = ca_leaf_slack(tree, seq->reserve_to - n_after);
    if (ca_branch_prepare(tree, &branch, old, old->n_tokens - n_odd, n_odd + n_tokens + n_slack) != 0)
        return ca_no_memory(error, "append");
    const ca_demand demand = {.call = "append",
                              .branch = &branch,
                              .n_chunks = ca_branch_chunks(tree, &branch, n_odd + n_tokens, seq),
                              .n_reserved = ca_reservation(tree, n_after, seq->reserve_to, true) - seq->n_reserved,
                              .n_copies = n_odd,
                              .unreserved = n_after > seq->reserve_to};
    int64_t n_needed;
    const cattn_status status = ca_budget_secure(tree, &demand, &n_needed, error);
    if (status != CATTN_OK) return status;

    ca_branch_cut(tree, &branch);
    old = seq->leaf; /* the lower part, if the node was cut */
    ca_node_hold(tree, branch.at);
    ca_budget_provide(tree, demand.n_chunks, n_needed);
    if (n_odd > 0) {
        ca_branch_add_copy(tree, &branch, seq->domain, old, seq);
        ca_node_extend(tree, branch.leaf, tokens, n_tokens);
        ca_node_uncover(tree, old); /* other sequences still cover it */
    } else {
        branch.leaf->domain = seq->domain;
        ca_node_add_leaf(tree, branch.at, branch.leaf, tokens, n_tokens, seq);
    }
    ca_seq_unlink(tree, seq);
    ca_seq_resize(tree, seq, n_after);
    ca_seq_link(tree, seq, branch.leaf);
    ca_reservation_update(tree, branch.leaf);
    ca_reservation_update(tree, old);
    ca_node_changed(tree, old); /* its root may be another than the new leaf's */
    ca_node_end_hold(tree);
    ca_tree_shrink(tree);
    return CATTN_OK;
}

cattn_status ca_tree_append(ca_tree *tree, ca_seq *seq, const int32_t *tokens, int64_t n_tokens, cattn_error *error) {
    assert(n_tokens > 0);
    const bool alone = seq->leaf->n_seqs == 1 && seq->leaf->n_children == 0;
    return (alone ? append_in_place : append_branch)(tree, seq, tokens, n_tokens, error);
}
