/*
 * Truncation removes tokens from the end of a sequence, for example rejected drafts.
 *
 * The sequence then ends inside or at the end of some node X of its path. Nodes below X that only it covered are removed,
 * except for tokens that were in the tree before the sequence came. X is shortened if nothing else needs the rest of it, and
 * cut otherwise. If X is cut and the new length is odd, the sequence's last token is copied to a leaf of its own, since a node
 * with children has an even length.
 */
#include "tree_internal.h"

typedef struct truncation {
    ca_node *node;         /* X */
    int64_t n_node_tokens; /* of X's tokens, those that the sequence keeps */
    int64_t retain_to;     /* tokens before this position are retained if no sequence covers them */
    bool loses_child;      /* nothing of the path below X stays */
    bool shortens;         /* X is shortened in place */
    bool copies;           /* the last token is copied */
} truncation;

/* Whether anything of a leaf that no sequence covers stays. */
static bool is_retained(const ca_node *node, int64_t retain_to) {
    return ca_even(ca_min(node->n_ready, retain_to - node->start)) > 0;
}

/* Find X, and what happens to it. */
static truncation find(const ca_tree *tree, const ca_seq *seq, int64_t n_tokens) {
    truncation t = {.node = seq->leaf, .retain_to = ca_tree_retains(tree) ? seq->n_found : 0};
    bool stays = false; /* something at or below the node stays, and so everything above it does */
    for (; t.node->start >= n_tokens; t.node = t.node->parent) {
        const size_t n_others = t.node->n_children - (t.node != seq->leaf && !stays);
        stays = stays || t.node->n_seqs > 1 || n_others > 0 || is_retained(t.node, t.retain_to);
    }
    const ca_node *node = t.node;
    t.n_node_tokens = n_tokens - node->start;
    t.loses_child = node != seq->leaf && !stays;
    t.shortens = t.n_node_tokens < node->n_tokens && node->n_seqs == 1 && node->n_children == (size_t)t.loses_child &&
                 ca_even(ca_min(node->n_ready, t.retain_to - node->start)) <= t.n_node_tokens;
    t.copies = !t.shortens && t.n_node_tokens % 2 != 0;
    return t;
}

/* Chunks that only seq covers and that no longer hold any of its tokens. */
static int64_t n_released(const ca_tree *tree, const ca_seq *seq, const truncation *t) {
    int64_t n = 0;
    const ca_node *node = seq->leaf;
    for (; node != t->node; node = node->parent)
        if (node->n_seqs == 1) n += (int64_t)node->n_chunks - ca_node_shares_first_chunk(node);
    if (node->n_seqs == 1 && !t->copies)
        n += ca_chunks_for(tree, ca_node_end(node)) - ca_chunks_for(tree, node->start + t->n_node_tokens);
    return n;
}

/* By how many chunks the reservations grow: that of seq, and that of a sequence that ends where seq will end. */
static int64_t reservation_change(const ca_tree *tree, const ca_seq *seq, const truncation *t, int64_t n_tokens) {
    const ca_node *node = t->node;
    const ca_seq *other = NULL;
    bool owns_tail = t->shortens || t->copies;
    if (t->n_node_tokens == node->n_tokens) {
        other = node->ending;
        const ca_node *child = seq->leaf; /* X's child on the path */
        while (child->parent != node) child = child->parent;
        owns_tail = !other && (ca_node_tail_is_free(tree, node, NULL) || (t->loses_child && ca_node_shares_first_chunk(child)));
    }
    int64_t change = ca_reservation(tree, n_tokens, seq->reserve_to, owns_tail) - seq->n_reserved;
    if (other && !other->next) change += ca_reservation(tree, other->n_tokens, other->reserve_to, false) - other->n_reserved;
    return change;
}

cattn_status ca_tree_truncate(ca_tree *tree, ca_seq *seq, int64_t n_tokens, cattn_error *error) {
    assert(n_tokens > 0 && n_tokens <= seq->n_tokens);
    if (n_tokens == seq->n_tokens) return CATTN_OK;
    const truncation t = find(tree, seq, n_tokens);
    const bool cuts = !t.shortens && t.n_node_tokens < t.node->n_tokens;

    ca_branch branch = {.at = t.node};
    if (cuts && ca_branch_prepare(tree, &branch, t.node, ca_even(t.n_node_tokens), t.copies) != 0)
        return ca_no_memory(error, "truncate");
    const ca_demand demand = {.call = "truncate",
                              .branch = cuts ? &branch : NULL,
                              .n_chunks = t.copies ? ca_branch_chunks(tree, &branch, 1, NULL) : 0,
                              .n_reserved = reservation_change(tree, seq, &t, n_tokens),
                              .n_released = n_released(tree, seq, &t),
                              .n_copies = t.copies};
    int64_t n_needed;
    const cattn_status status = ca_budget_secure(tree, &demand, &n_needed, error);
    if (status != CATTN_OK) return status;

    ca_node *leaf = seq->leaf;
    ca_path_touch(tree, leaf);
    if (t.retain_to > n_tokens) ca_evict_charge(tree, leaf, t.node->parent, seq->account);
    ca_reservation_end(tree, seq);
    ca_seq_unlink(tree, seq);
    ca_reservation_update(tree, leaf);
    ca_node_hold(tree, t.node);
    if (leaf != t.node) ca_path_release(tree, leaf, t.node, t.retain_to);
    ca_budget_provide(tree, demand.n_chunks, n_needed);
    ca_node_hold(tree, branch.at); /* now the leaf's parent: from here on only a release merges nodes */
    if (t.shortens) ca_node_trim(tree, t.node, t.n_node_tokens);
    if (cuts) {
        ca_node *rest = branch.lower ? branch.lower : t.node; /* the part that other sequences keep */
        ca_branch_cut(tree, &branch);
        if (t.copies) ca_branch_add_copy(tree, &branch, seq->domain, rest, NULL);
        ca_path_release(tree, rest, branch.at, t.retain_to);
    }
    ca_seq_resize(tree, seq, n_tokens);
    seq->n_found = ca_min(seq->n_found, n_tokens);
    ca_seq_link(tree, seq, t.copies ? branch.leaf : branch.at);
    ca_reservation_update(tree, seq->leaf);
    ca_node_end_hold(tree);
    ca_tree_shrink(tree);
    return CATTN_OK;
}
