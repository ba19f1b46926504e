/* How a sequence enters the tree with a prompt, and how it leaves it. */
#include "tree_internal.h"

/* Retained chunks that hold the first n_node_tokens tokens of node and the tokens of its ancestors. */
static int64_t retained_on_path(const ca_tree *tree, const ca_node *node, int64_t n_node_tokens) {
    int64_t n = 0;
    for (; node->parent && node->n_seqs == 0; node = node->parent, n_node_tokens = node->n_tokens) {
        const int64_t n_chunks = ca_chunks_for(tree, node->start + n_node_tokens) - ca_chunk_of(tree, node->start);
        n += n_chunks - ca_node_shares_first_chunk(node); /* a chunk shared with the parent is live, or counted there */
    }
    return n;
}

/* Tokens that a join may share: an even number, without the last token. */
static int64_t match_limit(const ca_tree *tree, int64_t n_tokens) {
    return tree->config.sharing == CATTN_PRIVATE ? 0 : ca_even(n_tokens - 1);
}

cattn_join_result ca_tree_find_prefix(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain) {
    const ca_match match = ca_tree_match(tree, tokens, match_limit(tree, n_tokens), domain);
    return (cattn_join_result){.n_matched = match.n_tokens, .n_ready = match.n_ready};
}

/* A join that is prepared: it cannot fail any more. */
typedef struct joining {
    size_t headroom;
    ca_match match;
    ca_branch branch;
    ca_seq *seq;
    int64_t n_new, n_chunks; /* tokens and chunks of the new leaf */
    int64_t n_needed;        /* of ca_budget_secure */
} joining;

/* Prepare a join that shares at most `limit` tokens. An error leaves nothing allocated. */
static cattn_status join_prepare(ca_tree *tree, const int32_t *tokens, int64_t n_tokens, int64_t limit, uint32_t domain,
                                 int64_t reserve_tokens, joining *j, cattn_error *error) {
    j->match = ca_tree_match(tree, tokens, limit, domain);
    j->n_new = n_tokens - j->match.n_tokens;
    const int64_t n_slack = ca_leaf_slack(tree, reserve_tokens);
    j->seq = ca_seq_new(tree);
    if (!j->seq || ca_branch_prepare(tree, &j->branch, j->match.node, j->match.n_node_tokens, j->n_new + n_slack) != 0) {
        ca_seq_free(tree, j->seq);
        return ca_no_memory(error, "join");
    }
    j->n_chunks = ca_branch_chunks(tree, &j->branch, j->n_new, NULL);
    const ca_demand demand = {.call = "join",
                              .branch = &j->branch,
                              .n_chunks = j->n_chunks,
                              .n_reserved = ca_reservation(tree, n_tokens, n_tokens + reserve_tokens, true),
                              .n_revived = retained_on_path(tree, j->match.node, j->match.n_node_tokens),
                              .unreserved = true,
                              .headroom = j->headroom};
    const cattn_status status = ca_budget_secure(tree, &demand, &j->n_needed, error);
    if (status != CATTN_OK) ca_seq_free(tree, j->seq);
    return status;
}

cattn_status ca_tree_join(ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain, int64_t reserve_tokens,
                          size_t headroom, cattn_seq *id, cattn_join_result *result, cattn_error *error) {
    assert(n_tokens > 0);
    *id = 0;
    int64_t limit = match_limit(tree, n_tokens);
    joining j = {.headroom = headroom};
    cattn_status status;
    cattn_error cause;
    /*
     * A path of many nodes may hold more chunks than its tokens need, since each node that begins inside a chunk has a copy of
     * the slots before it. If the budget is too small for that, less of the retained prefix is shared, so that the rest of it
     * can be evicted.
     */
    while ((status = join_prepare(tree, tokens, n_tokens, limit, domain, reserve_tokens, &j, &cause)) == CATTN_ERR_BUDGET &&
           j.match.n_tokens > 0 && j.match.node->n_seqs == 0)
        limit = j.match.node->start;
    if (status != CATTN_OK) {
        if (error) *error = cause;
        return status;
    }
    ca_branch *branch = &j.branch;
    ca_seq *seq = j.seq;

    ca_branch_cut(tree, branch);
    ca_path_cover(tree, branch->at);
    for (ca_node *node = branch->at; node->parent; node = node->parent) node->n_hits++;
    ca_node_hold(tree, branch->at);
    ca_budget_provide(tree, j.n_chunks, j.n_needed);
    branch->leaf->domain = domain;
    ca_node_add_leaf(tree, branch->at, branch->leaf, tokens + j.match.n_tokens, j.n_new, NULL);
    seq->domain = domain;
    seq->reserve_to = n_tokens + reserve_tokens;
    seq->n_found = j.match.n_tokens;
    seq->joined = tree->clock;
    tree->clock += (uint64_t)ca_chunks_for(tree, n_tokens);
    ca_seq_resize(tree, seq, n_tokens);
    ca_seq_link(tree, seq, branch->leaf);
    ca_reservation_update(tree, branch->leaf);
    ca_node_end_hold(tree);
    tree->counts.tokens_joined += (uint64_t)n_tokens;
    tree->counts.tokens_matched += (uint64_t)j.match.n_tokens;
    ca_tree_shrink(tree);
    *id = seq->id;
    if (result) *result = (cattn_join_result){.n_matched = j.match.n_tokens, .n_ready = ca_path_n_ready(seq->leaf)};
    return CATTN_OK;
}

/*
 * Keep the tokens of a leaf that its only sequence is about to leave once, if they are also stored beside it: a match ends
 * before a prompt's last token, so a prompt that is repeated adds a leaf each time, with a chunk of its own. Where prompts
 * repeat with the same answers, 26 % more tokens would be computed without this (docs/experiments.md, "Retention"). Returns
 * the position up to which the sequence's tokens are retained.
 */
static int64_t drop_twins(ca_tree *tree, const ca_seq *seq) {
    for (;;) {
        ca_node *leaf = seq->leaf, *parent = leaf->parent;
        const int64_t n_tokens = ca_even(leaf->n_ready);
        if (leaf->n_seqs > 1 || leaf->n_children > 0 || n_tokens == 0) return INT64_MAX;
        const ca_twin twin = ca_node_find_twin(leaf, n_tokens);
        if (twin.end) {
            ca_path_touch(tree, twin.end);
            ca_evict_charge(tree, twin.end, parent, seq->account);
            ca_evict_update(tree, twin.end);
            return leaf->start;
        }
        if (!twin.contained) return INT64_MAX;
        ca_evict_forget(tree, twin.contained);
        ca_node_remove(tree, twin.contained);
        ca_node_settle(tree, parent);
    }
}

void ca_tree_leave(ca_tree *tree, ca_seq *seq) {
    const int64_t retain_to = ca_tree_retains(tree) ? drop_twins(tree, seq) : 0;
    ca_node *leaf = seq->leaf;
    ca_path_touch(tree, leaf);
    if (!seq->is_restore) {
        ca_evict_note_leave(tree, seq, ca_path_n_ready(leaf));
        ca_evict_charge(tree, leaf, tree->root, seq->account);
    }
    ca_reservation_end(tree, seq);
    ca_seq_unlink(tree, seq);
    ca_reservation_update(tree, leaf);
    ca_path_release(tree, leaf, tree->root, retain_to);
    ca_node_uncover(tree, tree->root);
    ca_seq_free(tree, seq);
    ca_tree_shrink(tree);
}
