/* Fork and pin: a sequence enters the tree as a copy of another, or of its first tokens. */
#include "tree_internal.h"

/* By how many chunks the reservations of others grow when one more sequence ends at the end of node. */
static int64_t reservation_change(const ca_tree *tree, const ca_node *node) {
    const ca_seq *other = node->ending;
    if (!other || other->next) return 0; /* none owns the rest of the last chunk */
    return ca_reservation(tree, other->n_tokens, other->reserve_to, false) - other->n_reserved;
}

/* Let seq, which is new, be the first n_tokens tokens of `of`, and end at node. */
static void end_at(ca_tree *tree, ca_seq *seq, ca_node *node, const ca_seq *of, int64_t n_tokens) {
    seq->domain = of->domain;
    seq->account = of->account;
    seq->no_tier = of->no_tier;
    seq->joined = tree->clock;
    seq->n_found = n_tokens;
    ca_seq_resize(tree, seq, n_tokens);
    ca_seq_link(tree, seq, node);
    ca_reservation_update(tree, node);
}

/* Whichever of the sequences that end at a node appends first needs a chunk of its own, so each has one reserved. */
cattn_status ca_seq_enter(ca_tree *tree, const char *call, const ca_seq *of, int64_t n_tokens, ca_seq *seq,
                          cattn_error *error) {
    ca_node *node = of->leaf;
    while (node->start >= n_tokens) node = node->parent;
    ca_branch branch;
    if (ca_branch_prepare(tree, &branch, node, n_tokens - node->start, 0) != 0) return ca_no_memory(error, call);
    const bool cuts = branch.lower;
    const ca_demand demand = {.call = call,
                              .branch = cuts ? &branch : NULL,
                              .unreserved = true,
                              .n_reserved = ca_reservation(tree, n_tokens, seq->reserve_to, false) +
                                            (cuts ? 0 : reservation_change(tree, node))};
    int64_t n_needed;
    const cattn_status status = ca_budget_secure(tree, &demand, &n_needed, error);
    if (status != CATTN_OK) return status;
    ca_branch_cut(tree, &branch);
    ca_path_cover(tree, branch.at);
    end_at(tree, seq, branch.at, of, n_tokens);
    return CATTN_OK;
}

/*
 * Note copies of the ready slots of `from` to the chunks of node, which has the same tokens. Slot groups are open in node's
 * chunks where they are in those of `from`.
 */
static void note_copies(ca_tree *tree, const ca_node *node, const ca_node *from) {
    for (int64_t i = 0; i < ca_chunks_for(tree, from->n_ready); i++) {
        const int64_t n_slots = ca_min(tree->layout->c, from->n_ready - (i << tree->layout->log2_c));
        ca_chunk_at(tree->pool, node->chunks[i])->open = ca_chunk_open(tree->pool, from->chunks[i]);
        ca_kv_note_copy(&tree->commands, tree->pool, node->chunks[i], from->chunks[i], 0, (int32_t)n_slots);
    }
}

/* Give the fork a node and chunks of its own, with the same contents. */
static cattn_status fork_copy(ca_tree *tree, const ca_seq *seq, ca_seq *fork, cattn_error *error) {
    const ca_node *node = seq->leaf;
    ca_branch branch;
    if (ca_branch_prepare(tree, &branch, tree->root, 0, node->n_tokens) != 0) return ca_no_memory(error, "fork");
    const ca_demand demand = {.call = "fork",
                              .branch = &branch,
                              .n_chunks = ca_branch_chunks(tree, &branch, node->n_tokens, NULL),
                              .n_reserved = ca_reservation(tree, node->n_tokens, fork->reserve_to, true),
                              .n_copies = ca_chunks_for(tree, node->n_ready),
                              .unreserved = true};
    int64_t n_needed;
    const cattn_status status = ca_budget_secure(tree, &demand, &n_needed, error);
    if (status != CATTN_OK) return status;
    ca_path_cover(tree, branch.at);
    branch.leaf->domain = seq->domain;
    ca_node_add_leaf(tree, branch.at, branch.leaf, node->tokens, node->n_tokens, NULL);
    note_copies(tree, branch.leaf, node);
    branch.leaf->n_ready = branch.leaf->n_claimed = node->n_ready;
    end_at(tree, fork, branch.leaf, seq, node->n_tokens);
    return CATTN_OK;
}

/* The last stage of a fork or pin. */
static cattn_status finish(ca_tree *tree, ca_seq *seq, cattn_status status, cattn_seq *id) {
    if (status == CATTN_OK) {
        ca_tree_shrink(tree);
        *id = seq->id;
    } else {
        ca_seq_free(tree, seq);
    }
    return status;
}

cattn_status ca_tree_fork(ca_tree *tree, ca_seq *seq, int64_t reserve_tokens, cattn_seq *id, cattn_error *error) {
    *id = 0;
    ca_seq *fork = ca_seq_new(tree);
    if (!fork) return ca_no_memory(error, "fork");
    fork->reserve_to = seq->n_tokens + reserve_tokens;
    const bool copies = tree->config.sharing == CATTN_PRIVATE;
    return finish(tree, fork,
                  copies ? fork_copy(tree, seq, fork, error) : ca_seq_enter(tree, "fork", seq, seq->n_tokens, fork, error), id);
}

cattn_status ca_tree_pin(ca_tree *tree, const ca_seq *seq, int64_t n_tokens, cattn_seq *id, cattn_error *error) {
    assert(n_tokens > 0 && n_tokens % 2 == 0 && n_tokens <= ca_path_n_ready(seq->leaf));
    *id = 0;
    ca_seq *pin = ca_seq_new(tree);
    if (!pin) return ca_no_memory(error, "pin");
    pin->reserve_to = n_tokens;
    pin->is_pin = true;
    return finish(tree, pin, ca_seq_enter(tree, "pin", seq, n_tokens, pin, error), id);
}
