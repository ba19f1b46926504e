/* The path from the node where a sequence ends up to the root. */
#include "tree_internal.h"

/* ---- Covering ---- */

void ca_path_touch(ca_tree *tree, ca_node *node) {
    const uint32_t now = ca_tree_time(tree);
    tree->clock++;
    for (; node; node = node->parent) {
        node->last_use = tree->clock;
        node->used_at = now;
    }
}

void ca_path_cover(ca_tree *tree, ca_node *node) {
    ca_path_touch(tree, node);
    for (; node; node = node->parent) {
        ca_node_cover(tree, node);
        ca_evict_update(tree, node);
    }
}

void ca_path_release(ca_tree *tree, ca_node *node, ca_node *stop, int64_t retain_to) {
    ca_node *lowest = NULL; /* the lowest node that stays */
    while (node != stop) {
        ca_node *parent = node->parent;
        ca_node_uncover(tree, node);
        bool stays = node->n_seqs > 0 || node->n_children > 0;
        if (!stays) {
            const int64_t n_retained = ca_even(ca_min(node->n_ready, retain_to - node->start));
            stays = n_retained > 0;
            if (stays)
                ca_node_trim(tree, node, n_retained);
            else
                ca_node_remove(tree, node);
        }
        if (stays && !lowest) lowest = node;
        node = parent;
    }
    ca_node_settle(tree, lowest ? lowest : stop);
}

/* ---- Ready and other tokens: a prefix of the path each, so the lowest node that has any says how many there are ---- */

int64_t ca_path_n_ready(const ca_node *leaf) {
    for (const ca_node *node = leaf; node; node = node->parent)
        if (node->n_ready > 0) return node->start + node->n_ready;
    return 0;
}

int64_t ca_path_n_claimed(const ca_node *leaf) {
    for (const ca_node *node = leaf; node; node = node->parent)
        if (node->n_claimed > 0) return node->start + node->n_claimed;
    return 0;
}

int64_t ca_path_n_coming(const ca_node *leaf) {
    for (const ca_node *node = leaf; node; node = node->parent)
        if (node->n_ready + node->n_coming > 0) return node->start + node->n_ready + node->n_coming;
    return 0;
}

int64_t ca_path_claim(ca_node *leaf, int64_t max_rows) {
    const int64_t from = ca_path_n_claimed(leaf), to = from + ca_min(max_rows, ca_node_end(leaf) - from);
    for (ca_node *node = leaf; node->parent && ca_node_end(node) > from; node = node->parent)
        node->n_claimed = ca_max(node->n_claimed, ca_min(to - node->start, node->n_tokens));
    return to - from;
}

void ca_path_commit(ca_node *leaf) {
    for (ca_node *node = leaf; node->parent && node->n_ready < node->n_tokens; node = node->parent)
        node->n_ready = node->n_claimed;
}

void ca_path_unclaim(ca_node *leaf) {
    for (ca_node *node = leaf; node->parent && node->n_ready < node->n_tokens; node = node->parent)
        node->n_claimed = node->n_ready;
}

int32_t ca_path_branch_copies(const ca_tree *tree, const ca_node *leaf, int64_t first, int64_t last, ca_kv_command *end) {
    int32_t n = 0;
    for (const ca_node *node = leaf; node->parent && ca_node_end(node) > first; node = node->parent) {
        const int32_t slot = ca_slot_of(tree, node->start);
        const int64_t n_due = ca_min(slot, last + 1 - (node->start - slot));
        if (slot == 0 || n_due <= 0 || ca_node_shares_first_chunk(node)) continue;
        ca_chunk *to = ca_chunk_at(tree->pool, node->chunks[0]);
        if (n_due <= to->n_copied) continue;
        n++;
        if (!end) continue;
        const ca_chunk_id from = node->parent->chunks[node->parent->n_chunks - 1];
        *--end = (ca_kv_command){
            CA_KV_COPY, from, node->chunks[0], to->n_copied, (int32_t)n_due, ca_chunk_open(tree->pool, from), to->open};
        to->n_copied = (int32_t)n_due;
    }
    return n;
}

void ca_path_undo_branch_copies(const ca_tree *tree, const ca_kv_commands *copies) {
    for (size_t i = copies->n; i-- > 0;) /* backwards, since a chunk may have several */
        ca_chunk_at(tree->pool, copies->at[i].to)->n_copied = copies->at[i].begin;
}

ca_chunk_id ca_path_chunk(const ca_tree *tree, const ca_node *leaf, int64_t position) {
    assert(position >= 0 && position < ca_node_end(leaf));
    const ca_node *node = leaf;
    while (node->start > position) node = node->parent;
    return node->chunks[ca_chunk_of(tree, position) - ca_chunk_of(tree, node->start)];
}

int64_t ca_path_own_begin(const ca_tree *tree, const ca_node *leaf, int64_t last) {
    const int64_t start = last - ca_slot_of(tree, last);
    const ca_node *node = leaf;
    while (node->start > last) node = node->parent;
    while (node->start > start && ca_node_shares_first_chunk(node)) node = node->parent;
    return ca_max(node->start, start);
}
