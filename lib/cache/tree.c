/* The tree's calls: create and destroy; join, append, fork, reserve and leave. */
#include "tree_internal.h"

#include <string.h>

/* ---- The tree ---- */

cattn_status ca_tree_create(ca_tree **tree, const ca_tree_config *config, const ca_layout *layout, ca_chunk_pool *pool,
                            ca_alloc *alloc) {
    *tree = NULL;
    ca_tree *t = ca_new_zero(alloc, 1, sizeof *t);
    if (!t) return CATTN_ERR_NOMEM;
    *t = (ca_tree){.config = *config, .layout = layout, .pool = pool, .alloc = alloc, .free_slot = SIZE_MAX};
    t->commands.executor = config->executor;
    t->root = ca_node_new(t, 0, 0, 0);
    if (!t->root) {
        ca_delete(alloc, t, 1, sizeof *t);
        return CATTN_ERR_NOMEM;
    }
    *tree = t;
    return CATTN_OK;
}

void ca_tree_destroy(ca_tree **tree) {
    ca_tree *t = *tree;
    if (!t) return;
    t->commands.n = 0; /* nobody will read what they would copy */
    for (size_t i = 0; i < t->slots_capacity; i++)
        if (t->slots[i].seq) ca_tree_leave(t, t->slots[i].seq);
    for (ca_node *node = t->root; node->n_children > 0 || node->parent;) {
        if (node->n_children > 0) {
            node = node->children[node->n_children - 1];
        } else {
            ca_node *parent = node->parent;
            ca_node_remove(t, node);
            node = parent;
        }
    }
    ca_node_free(t, t->root);
    ca_delete(t->alloc, t->heap, t->heap_capacity, sizeof(ca_node *));
    ca_delete(t->alloc, t->slots, t->slots_capacity, sizeof *t->slots);
    ca_delete(t->alloc, t, 1, sizeof *t);
    *tree = NULL;
}

ca_node *ca_tree_root(ca_tree *tree) { return tree->root; }

const ca_node *ca_tree_next(const ca_node *n, int32_t *depth) {
    if (n->n_children > 0) {
        ++*depth;
        return n->children[0];
    }
    for (; n->parent; n = n->parent, --*depth) {
        const size_t next = ca_node_index(n) + 1;
        if (next < n->parent->n_children) return n->parent->children[next];
    }
    return NULL;
}

const ca_tree_counts *ca_tree_get_counts(const ca_tree *tree) { return &tree->counts; }

void ca_tree_note_peaks(ca_tree *tree) {
    ca_tree_counts *n = &tree->counts;
    if (n->chunks_live > n->chunks_live_peak) n->chunks_live_peak = n->chunks_live;
    if (n->chunks_unshared > n->chunks_unshared_peak) n->chunks_unshared_peak = n->chunks_unshared;
}

uint64_t ca_tree_version(const ca_tree *tree) { return tree->n_versions; }

ca_kv_pending *ca_tree_pending(ca_tree *tree) { return &tree->commands; }

/* A path with one sequence more. */
static void cover_path(ca_tree *tree, ca_node *node) {
    ca_path_touch(tree, node);
    for (; node; node = node->parent) {
        ca_node_cover(tree, node);
        ca_evict_update(tree, node);
    }
}

int64_t ca_leaf_slack(const ca_tree *tree, int64_t n_reserved) {
    const int64_t c = tree->layout->c;
    return ca_max(c, ca_min(n_reserved, 16 * c));
}

/* ---- Join ---- */

/* Chunks of the first n_node_tokens of node and of its ancestors that are retained only. */
static int64_t retained_on_path(const ca_tree *tree, const ca_node *node, int64_t n_node_tokens) {
    int64_t n = 0;
    for (; node->parent && node->n_seqs == 0; node = node->parent, n_node_tokens = node->n_tokens) {
        const int64_t n_chunks = ca_chunks_for(tree, node->start + n_node_tokens) - ca_chunk_of(tree, node->start);
        n += n_chunks - ca_node_shares_first_chunk(node); /* that one is its parent's, live or counted there */
    }
    return n;
}

/* Tokens that a join may share: pairs, before the last token. */
static int64_t match_limit(const ca_tree *tree, int64_t n_tokens) {
    return tree->config.sharing == CATTN_PRIVATE ? 0 : ca_even(n_tokens - 1);
}

cattn_join_result ca_tree_find_prefix(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain) {
    const ca_match match = ca_tree_match(tree, tokens, match_limit(tree, n_tokens), domain);
    return (cattn_join_result){.n_matched = match.n_tokens, .n_ready = match.n_ready};
}

/* A join that has what it takes, and room. */
typedef struct joining {
    ca_match match;
    ca_branch branch;
    ca_seq *seq;
    int64_t n_new, n_chunks; /* tokens and chunks of its own */
} joining;

/* Prepare a join that takes at most `limit` tokens from the tree. Nothing is left of one that fails. */
static cattn_status join_prepare(ca_tree *tree, const int32_t *tokens, int64_t n_tokens, int64_t limit, uint32_t domain,
                                 int64_t reserve_tokens, joining *j, cattn_error *error) {
    j->match = ca_tree_match(tree, tokens, limit, domain);
    j->n_new = n_tokens - j->match.n_tokens;
    const int64_t n_slack = ca_leaf_slack(tree, reserve_tokens);
    if (ca_branch_prepare(tree, &j->branch, j->match.node, j->match.n_node_tokens, j->n_new + n_slack) != 0)
        return ca_no_memory(error, "join");
    j->seq = ca_seq_new(tree);
    j->n_chunks = ca_branch_chunks(tree, &j->branch, j->n_new, NULL);
    const ca_demand demand = {.call = "join",
                              .branch = &j->branch,
                              .n_chunks = j->n_chunks,
                              .n_reserved = ca_promise(tree, n_tokens, n_tokens + reserve_tokens, true),
                              .n_revived = retained_on_path(tree, j->match.node, j->match.n_node_tokens),
                              .adds_seq = true};
    const cattn_status status = j->seq ? ca_room_secure(tree, &demand, error) : ca_no_memory(error, "join");
    if (status == CATTN_OK) return CATTN_OK;
    ca_seq_free(tree, j->seq);
    ca_branch_abandon(tree, &j->branch);
    return status;
}

cattn_status ca_tree_join(ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain, int64_t reserve_tokens,
                          cattn_seq *id, cattn_join_result *result, cattn_error *error) {
    assert(n_tokens > 0);
    *id = 0;
    int64_t limit = match_limit(tree, n_tokens);
    joining j;
    cattn_status status;
    cattn_error cause;
    /*
     * A path of many nodes may take more chunks than its tokens do: each that begins within a chunk has a copy of what is
     * before. So where there is no room, less is taken of what is retained only, since the rest of it can be evicted then.
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
    cover_path(tree, branch->at);
    ca_node_pin(tree, branch->at);
    ca_room_make(tree, j.n_chunks);
    branch->leaf->domain = domain;
    ca_node_add_leaf(tree, branch->at, branch->leaf, tokens + j.match.n_tokens, j.n_new, NULL);
    seq->domain = domain;
    seq->reserve_to = n_tokens + reserve_tokens;
    seq->n_found = j.match.n_tokens;
    ca_seq_resize(tree, seq, n_tokens);
    ca_seq_link(tree, seq, branch->leaf);
    ca_promise_update(tree, branch->leaf);
    ca_node_unpin(tree);
    tree->counts.tokens_joined += (uint64_t)n_tokens;
    tree->counts.tokens_matched += (uint64_t)j.match.n_tokens;
    ca_room_close(tree);
    *id = seq->id;
    if (result) *result = (cattn_join_result){.n_matched = j.match.n_tokens, .n_ready = ca_path_n_ready(seq->leaf)};
    return CATTN_OK;
}

/* ---- Append ---- */

/* Growth of a leaf that is the sequence's alone. */
static cattn_status append_in_place(ca_tree *tree, ca_seq *seq, const int32_t *tokens, int64_t n_tokens, cattn_error *error) {
    ca_node *leaf = seq->leaf;
    const int64_t n_after = seq->n_tokens + n_tokens;
    const int64_t n_chunks = ca_chunks_for(tree, n_after) - ca_chunks_for(tree, seq->n_tokens);
    const size_t growth = ca_node_growth(tree, leaf, leaf->n_tokens + n_tokens);
    if (n_chunks > 0 || growth > 0) {
        const ca_demand demand = {.call = "append",
                                  .n_chunks = n_chunks,
                                  .n_reserved = ca_promise(tree, n_after, seq->reserve_to, true) - seq->n_reserved,
                                  .n_bytes = n_after > seq->reserve_to ? growth : 0};
        const cattn_status status = ca_room_secure(tree, &demand, error);
        if (status != CATTN_OK) return status;
        if (ca_node_reserve_tokens(tree, leaf, leaf->n_tokens + n_tokens) != 0) return ca_no_memory(error, "append");
        ca_node_pin(tree, leaf);
        ca_room_make(tree, n_chunks);
    }
    ca_node_extend(tree, leaf, tokens, n_tokens);
    ca_seq_resize(tree, seq, n_after);
    if (n_chunks > 0 || growth > 0) {
        ca_promise_update(tree, leaf);
        ca_node_unpin(tree);
        ca_room_close(tree);
    }
    return CATTN_OK;
}

/*
 * Growth where others end or go on: a leaf of its own. At an odd length the last token goes along, since a node with children
 * has an even length; the others keep theirs:
 *
 *   [0..8 | S T]  append to S   =>   [0..7 | - ] -+- [8 | T]
 *                                                 '- [8..9 | S]    8 is copied
 */
static cattn_status append_branch(ca_tree *tree, ca_seq *seq, const int32_t *tokens, int64_t n_tokens, cattn_error *error) {
    ca_node *old = seq->leaf;
    const int64_t n_odd = old->n_tokens % 2, n_after = seq->n_tokens + n_tokens;
    const bool odd_ready = old->n_ready == old->n_tokens;
    ca_branch branch;
    const int64_t n_slack = ca_leaf_slack(tree, seq->reserve_to - n_after);
    if (ca_branch_prepare(tree, &branch, old, old->n_tokens - n_odd, n_odd + n_tokens + n_slack) != 0)
        return ca_no_memory(error, "append");
    const ca_demand demand = {.call = "append",
                              .branch = &branch,
                              .n_chunks = ca_branch_chunks(tree, &branch, n_odd + n_tokens, seq),
                              .n_reserved = ca_promise(tree, n_after, seq->reserve_to, true) - seq->n_reserved};
    const cattn_status status = ca_room_secure(tree, &demand, error);
    if (status != CATTN_OK) {
        ca_branch_abandon(tree, &branch);
        return status;
    }

    ca_branch_cut(tree, &branch);
    old = seq->leaf; /* the lower part, if there was a cut */
    ca_node_pin(tree, branch.at);
    ca_room_make(tree, demand.n_chunks);
    branch.leaf->domain = seq->domain;
    if (n_odd > 0) {
        const ca_chunk_id from = old->chunks[old->n_chunks - 1];
        ca_node_add_leaf(tree, branch.at, branch.leaf, old->tokens + old->n_tokens - 1, 1, seq);
        if (odd_ready) {
            const int32_t slot = ca_slot_of(tree, seq->n_tokens - 1);
            ca_kv_record_copy(&tree->commands, tree->pool, branch.leaf->chunks[0], from, slot, slot + 1);
            branch.leaf->n_ready = branch.leaf->n_claimed = 1;
        }
        ca_node_extend(tree, branch.leaf, tokens, n_tokens);
        ca_node_uncover(tree, old); /* others still do */
    } else {
        ca_node_add_leaf(tree, branch.at, branch.leaf, tokens, n_tokens, seq);
    }
    ca_seq_unlink(tree, seq);
    ca_seq_resize(tree, seq, n_after);
    ca_seq_link(tree, seq, branch.leaf);
    ca_promise_update(tree, branch.leaf);
    ca_promise_update(tree, old);
    ca_node_changed(tree, old); /* may have another root than the new leaf */
    ca_node_unpin(tree);
    ca_room_close(tree);
    return CATTN_OK;
}

cattn_status ca_tree_append(ca_tree *tree, ca_seq *seq, const int32_t *tokens, int64_t n_tokens, cattn_error *error) {
    assert(n_tokens > 0);
    const bool alone = seq->leaf->n_seqs == 1 && seq->leaf->n_children == 0;
    return (alone ? append_in_place : append_branch)(tree, seq, tokens, n_tokens, error);
}

/* ---- Fork, reserve, leave ---- */

/* The fork ends where seq does. The first of the two to go on needs a chunk of its own, so both are promised one. */
static cattn_status fork_shared(ca_tree *tree, ca_seq *seq, ca_seq *fork, cattn_error *error) {
    ca_node *node = seq->leaf;
    const int64_t n_before = seq->n_reserved;
    const ca_demand demand = {.call = "fork",
                              .adds_seq = true,
                              .n_reserved = ca_promise(tree, fork->n_tokens, fork->reserve_to, false) +
                                            ca_promise(tree, seq->n_tokens, seq->reserve_to, false) - n_before};
    const cattn_status status = ca_room_secure(tree, &demand, error);
    if (status != CATTN_OK) return status;
    cover_path(tree, node);
    ca_seq_link(tree, fork, node);
    ca_promise_update(tree, node);
    return CATTN_OK;
}

/* Record copies of what is ready in `from` to the chunks of node, which has the same tokens. Slots stay open or closed. */
static void record_copies(ca_tree *tree, const ca_node *node, const ca_node *from) {
    for (int64_t i = 0; i < ca_chunks_for(tree, from->n_ready); i++) {
        const int64_t n_slots = ca_min(tree->layout->c, from->n_ready - (i << tree->layout->log2_c));
        ca_chunk_at(tree->pool, node->chunks[i])->open = ca_chunk_open(tree->pool, from->chunks[i]);
        ca_kv_record_copy(&tree->commands, tree->pool, node->chunks[i], from->chunks[i], 0, (int32_t)n_slots);
    }
}

/* The fork gets a node and chunks of its own, with the same contents. */
static cattn_status fork_copy(ca_tree *tree, ca_seq *seq, ca_seq *fork, cattn_error *error) {
    const ca_node *node = seq->leaf;
    ca_branch branch;
    if (ca_branch_prepare(tree, &branch, tree->root, 0, node->n_tokens) != 0) return ca_no_memory(error, "fork");
    const ca_demand demand = {.call = "fork",
                              .branch = &branch,
                              .n_chunks = ca_branch_chunks(tree, &branch, node->n_tokens, NULL),
                              .n_reserved = ca_promise(tree, fork->n_tokens, fork->reserve_to, true)};
    const cattn_status status = ca_room_secure(tree, &demand, error);
    if (status != CATTN_OK) {
        ca_branch_abandon(tree, &branch);
        return status;
    }
    cover_path(tree, branch.at);
    branch.leaf->domain = fork->domain;
    ca_node_add_leaf(tree, branch.at, branch.leaf, node->tokens, node->n_tokens, NULL);
    record_copies(tree, branch.leaf, node);
    branch.leaf->n_ready = branch.leaf->n_claimed = node->n_ready;
    ca_seq_link(tree, fork, branch.leaf);
    ca_promise_update(tree, branch.leaf);
    return CATTN_OK;
}

cattn_status ca_tree_fork(ca_tree *tree, ca_seq *seq, int64_t reserve_tokens, cattn_seq *id, cattn_error *error) {
    *id = 0;
    ca_seq *fork = ca_seq_new(tree);
    if (!fork) return ca_no_memory(error, "fork");
    fork->domain = seq->domain;
    fork->n_found = seq->n_tokens;
    fork->reserve_to = seq->n_tokens + reserve_tokens;
    ca_seq_resize(tree, fork, seq->n_tokens);
    const bool copies = tree->config.sharing == CATTN_PRIVATE;
    const cattn_status status = (copies ? fork_copy : fork_shared)(tree, seq, fork, error);
    if (status != CATTN_OK) {
        ca_seq_free(tree, fork);
        return status;
    }
    ca_room_close(tree);
    *id = fork->id;
    return CATTN_OK;
}

cattn_status ca_tree_reserve(ca_tree *tree, ca_seq *seq, int64_t n_tokens, cattn_error *error) {
    const int64_t reserve_to = seq->n_tokens + n_tokens;
    const bool owns_tail = ca_node_tail_is_free(tree, seq->leaf, seq);
    const ca_demand demand = {.call = "reserve",
                              .n_reserved = ca_promise(tree, seq->n_tokens, reserve_to, owns_tail) - seq->n_reserved};
    const cattn_status status = ca_room_secure(tree, &demand, error);
    if (status != CATTN_OK) return status;
    seq->reserve_to = reserve_to;
    ca_promise_update(tree, seq->leaf);
    return CATTN_OK;
}

void ca_tree_leave(ca_tree *tree, ca_seq *seq) {
    const bool retains = tree->config.sharing != CATTN_PRIVATE && tree->config.retention == CATTN_RETAIN_LRU;
    ca_node *leaf = seq->leaf;
    ca_path_touch(tree, leaf);
    tree->counts.chunks_reserved -= (uint64_t)seq->n_reserved;
    seq->n_reserved = 0;
    ca_seq_unlink(tree, seq);
    ca_promise_update(tree, leaf);
    ca_path_release(tree, leaf, tree->root, retains ? INT64_MAX : 0);
    ca_node_uncover(tree, tree->root);
    ca_seq_free(tree, seq);
    ca_room_close(tree);
}
