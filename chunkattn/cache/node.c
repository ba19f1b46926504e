/* One node of the tree: its memory, its children, its chunks and its tokens. */
#include "tree_internal.h"

#include <string.h>

/* ---- Memory ---- */

ca_node *ca_node_new(ca_tree *tree, int64_t start, int64_t n_tokens, size_t children_capacity) {
    ca_node *node = ca_new_zero(tree->alloc, 1, sizeof *node);
    if (!node) return NULL;
    node->start = start;
    if (ca_node_reserve_tokens(tree, node, n_tokens) != 0) goto fail;
    if (ca_grow(tree->alloc, (void **)&node->children, &node->children_capacity, children_capacity, sizeof *node->children) !=
        0)
        goto fail;
    return node;

fail:
    ca_node_free(tree, node);
    return NULL;
}

void ca_node_free(ca_tree *tree, ca_node *node) {
    if (!node) return;
    assert(node->n_chunks == 0 && !node->is_evictable);
    ca_delete(tree->alloc, node->tokens, node->tokens_capacity, sizeof *node->tokens);
    ca_delete(tree->alloc, node->chunks, node->chunks_capacity, sizeof *node->chunks);
    ca_delete(tree->alloc, node->children, node->children_capacity, sizeof *node->children);
    ca_delete(tree->alloc, node, 1, sizeof *node);
}

int ca_node_reserve_tokens(ca_tree *tree, ca_node *node, int64_t n_tokens) {
    const int64_t n_chunks = ca_chunks_for(tree, node->start + n_tokens) - ca_chunk_of(tree, node->start);
    if (ca_grow(tree->alloc, (void **)&node->tokens, &node->tokens_capacity, (size_t)n_tokens, sizeof *node->tokens) != 0)
        return -1;
    return ca_grow(tree->alloc, (void **)&node->chunks, &node->chunks_capacity, (size_t)n_chunks, sizeof *node->chunks);
}

int ca_node_reserve_merge(ca_tree *tree, ca_node *node, const ca_node *child) {
    const size_t n_tokens = (size_t)node->n_tokens + child->tokens_capacity, n_chunks = node->n_chunks + child->chunks_capacity;
    int32_t *tokens = NULL;
    if (n_tokens > node->tokens_capacity && !(tokens = ca_new(tree->alloc, n_tokens, sizeof *tokens))) return -1;
    if (ca_grow_exactly(tree->alloc, (void **)&node->chunks, &node->chunks_capacity, n_chunks, sizeof *node->chunks) != 0) {
        ca_delete(tree->alloc, tokens, n_tokens, sizeof *tokens); /* without a merge, nothing makes up for these bytes */
        return -1;
    }
    if (!tokens) return 0;
    memcpy(tokens, node->tokens, (size_t)node->n_tokens * sizeof *tokens);
    ca_delete(tree->alloc, node->tokens, node->tokens_capacity, sizeof *tokens);
    node->tokens = tokens;
    node->tokens_capacity = n_tokens;
    return 0;
}

size_t ca_node_growth(const ca_tree *tree, const ca_node *node, int64_t n_tokens) {
    const int64_t n_chunks = ca_chunks_for(tree, node->start + n_tokens) - ca_chunk_of(tree, node->start);
    return ca_growth(node->tokens_capacity, (size_t)n_tokens, sizeof *node->tokens) +
           ca_growth(node->chunks_capacity, (size_t)n_chunks, sizeof *node->chunks);
}

int ca_node_reserve_child(ca_tree *tree, ca_node *node) {
    return ca_grow(tree->alloc, (void **)&node->children, &node->children_capacity, node->n_children + 1,
                   sizeof *node->children);
}

size_t ca_node_child_growth(const ca_node *node) {
    return ca_growth(node->children_capacity, node->n_children + 1, sizeof *node->children);
}

/* ---- Children, sorted by (domain, first token, second token, id) ---- */

size_t ca_node_lower_bound(const ca_node *node, uint32_t domain, int32_t first, int32_t second, uint64_t id) {
    size_t low = 0, high = node->n_children;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const ca_node *child = node->children[middle];
        const int32_t child_second = child->n_tokens > 1 ? child->tokens[1] : -1;
        bool before;
        if (child->domain != domain)
            before = child->domain < domain;
        else if (child->tokens[0] != first)
            before = child->tokens[0] < first;
        else if (child_second != second)
            before = child_second < second;
        else
            before = child->id < id;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The index at which child belongs among the children of node. */
static size_t place_of(const ca_node *node, const ca_node *child) {
    return ca_node_lower_bound(node, child->domain, child->tokens[0], child->n_tokens > 1 ? child->tokens[1] : -1, child->id);
}

size_t ca_node_index(const ca_node *child) {
    const size_t i = place_of(child->parent, child);
    assert(child->parent->children[i] == child);
    return i;
}

void ca_node_link_child(ca_node *parent, ca_node *child) {
    assert(parent->n_children < parent->children_capacity);
    const size_t i = place_of(parent, child);
    memmove(parent->children + i + 1, parent->children + i, (parent->n_children - i) * sizeof *parent->children);
    parent->children[i] = child;
    parent->n_children++;
    child->parent = parent;
}

static void unlink_child(ca_node *parent, size_t i) {
    parent->n_children--;
    memmove(parent->children + i, parent->children + i + 1, (parent->n_children - i) * sizeof *parent->children);
}

ca_node *ca_node_changed(ca_tree *tree, ca_node *node) {
    if (!node->parent) return NULL;
    while (node->parent->parent) node = node->parent;
    node->version = ++tree->n_versions;
    return node;
}

/* ---- Nodes in order ---- */

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

void ca_walks_skip(ca_tree *tree, const ca_node *node, const ca_node *before) {
    for (size_t i = 0; i < CATTN_MAX_WALKS; i++) {
        int32_t depth = 0;
        if (tree->walks[i].next == node) tree->walks[i].next = ca_tree_next(before, &depth);
    }
}

/* ---- Chunks ---- */

static void cover_chunk(ca_tree *tree, ca_chunk_id id) {
    if (!ca_chunk_cover(tree->pool, id)) return;
    ca_count_retained(tree, ca_chunk_at(tree->pool, id), -1);
    tree->counts.chunks_live++;
}

static void uncover_chunk(ca_tree *tree, ca_chunk_id id) {
    if (!ca_chunk_uncover(tree->pool, id)) return;
    tree->counts.chunks_live--;
    ca_count_retained(tree, ca_chunk_at(tree->pool, id), 1);
}

void ca_node_push_chunk(ca_tree *tree, ca_node *node, ca_chunk_id id) {
    assert(node->n_chunks < node->chunks_capacity);
    node->chunks[node->n_chunks++] = id;
    ca_chunk_ref(tree, id);
    if (node->n_seqs > 0) cover_chunk(tree, id);
}

void ca_node_pop_chunk(ca_tree *tree, ca_node *node) {
    const ca_chunk_id id = node->chunks[node->n_chunks - 1];
    node->n_chunks--;
    if (node->n_seqs > 0) uncover_chunk(tree, id);
    ca_chunk_unref(tree, id);
}

void ca_node_cover(ca_tree *tree, ca_node *node) {
    if (node->n_seqs++ > 0) return;
    tree->counts.tokens_retained -= (uint64_t)node->n_tokens;
    for (size_t i = 0; i < node->n_chunks; i++) cover_chunk(tree, node->chunks[i]);
}

void ca_node_uncover(ca_tree *tree, ca_node *node) {
    assert(node->n_seqs > 0);
    if (--node->n_seqs > 0) return;
    tree->counts.tokens_retained += (uint64_t)node->n_tokens;
    for (size_t i = 0; i < node->n_chunks; i++) uncover_chunk(tree, node->chunks[i]);
}

bool ca_node_tail_is_free(const ca_tree *tree, const ca_node *node, const ca_seq *appender) {
    const int32_t slot = ca_slot_of(tree, ca_node_end(node));
    if (slot == 0 || node->n_chunks == 0) return false;
    if (node->ending && (node->ending != appender || appender->next)) return false;
    return ca_chunk_at(tree->pool, node->chunks[node->n_chunks - 1])->fill == slot;
}

/* ---- Tokens ---- */

void ca_node_extend(ca_tree *tree, ca_node *node, const int32_t *tokens, int64_t n_tokens) {
    assert(node->n_children == 0 && (size_t)(node->n_tokens + n_tokens) <= node->tokens_capacity);
    const int64_t first_chunk = ca_chunk_of(tree, node->start), old_end = ca_node_end(node);
    const bool pair_changes = node->n_tokens == 1;
    if (pair_changes) ca_walks_skip(tree, node, node); /* it may move among its siblings */
    const size_t old_index = pair_changes ? ca_node_index(node) : 0;

    memcpy(node->tokens + node->n_tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    ca_extras_ref(&tree->extras, tokens, n_tokens);
    node->n_tokens += n_tokens;
    tree->counts.tokens_stored += (uint64_t)n_tokens;

    const int64_t end = ca_node_end(node), n_chunks = ca_chunks_for(tree, end) - first_chunk;
    const bool chunks_change = (size_t)n_chunks > node->n_chunks;
    while (node->n_chunks < (size_t)n_chunks) {
        ca_chunk_id id;
        const cattn_status status = ca_chunk_pool_get(tree->pool, &id);
        assert(status == CATTN_OK); /* the caller has secured the chunks */
        (void)status;
        ca_node_push_chunk(tree, node, id);
    }
    for (int64_t chunk = ca_chunk_of(tree, old_end); chunk < first_chunk + n_chunks; chunk++) {
        const int64_t chunk_end = ca_min(end, (chunk + 1) << tree->layout->log2_c);
        ca_chunk_at(tree->pool, node->chunks[chunk - first_chunk])->fill =
            (int32_t)(chunk_end - (chunk << tree->layout->log2_c));
    }
    bool moves = false;
    if (pair_changes) {
        ca_node *parent = node->parent;
        unlink_child(parent, old_index);
        ca_node_link_child(parent, node);
        moves = parent->children[old_index] != node;
    }
    if (node->parent && (chunks_change || moves)) ca_node_changed(tree, node);
}

void ca_node_trim(ca_tree *tree, ca_node *node, int64_t n_tokens) {
    assert(node->n_children == 0 && n_tokens <= node->n_tokens);
    if (n_tokens == node->n_tokens) return;
    const bool pair_changes = n_tokens == 1;
    if (pair_changes) {
        ca_walks_skip(tree, node, node);
        unlink_child(node->parent, ca_node_index(node));
    }

    const int64_t end = node->start + n_tokens;
    const int64_t n_chunks = n_tokens > 0 ? ca_chunks_for(tree, end) - ca_chunk_of(tree, node->start) : 0;
    while (node->n_chunks > (size_t)n_chunks) {
        /* Only the first chunk may have another reference: the parent's, to the slots before this node's. */
        ca_chunk_at(tree->pool, node->chunks[node->n_chunks - 1])->fill = ca_slot_of(tree, node->start);
        ca_chunk_leave_tier(tree, node->chunks[node->n_chunks - 1]); /* others may fill these slots now */
        ca_node_pop_chunk(tree, node);
    }
    if (n_chunks > 0) {
        ca_chunk_at(tree->pool, node->chunks[n_chunks - 1])->fill = ca_slot_of(tree, end - 1) + 1;
        if (ca_slot_of(tree, end) != 0) { /* it is not full any more */
            ca_chunk_leave_tier(tree, node->chunks[n_chunks - 1]);
            ca_chunk *last = ca_chunk_at(tree->pool, node->chunks[n_chunks - 1]);
            last->prefix = last->n_uses = 0;
        }
    }

    ca_extras_unref(&tree->extras, node->tokens + n_tokens, node->n_tokens - n_tokens);
    tree->counts.tokens_stored -= (uint64_t)(node->n_tokens - n_tokens);
    if (node->n_seqs == 0) tree->counts.tokens_retained -= (uint64_t)(node->n_tokens - n_tokens);
    node->n_tokens = n_tokens;
    ca_node_keep_progress(node, n_tokens);
    if (pair_changes) ca_node_link_child(node->parent, node);
    ca_node_changed(tree, node);
}

/* ---- Leaves ---- */

void ca_node_add_leaf(ca_tree *tree, ca_node *parent, ca_node *leaf, const int32_t *tokens, int64_t n_tokens,
                      const ca_seq *appender) {
    assert(leaf->start == ca_node_end(parent) && leaf->n_seqs == 0);
    leaf->id = ++tree->n_node_ids;
    leaf->last_use = parent->last_use;
    leaf->used_at = parent->used_at;
    leaf->n_seqs = 1;
    if (ca_node_tail_is_free(tree, parent, appender)) ca_node_push_chunk(tree, leaf, parent->chunks[parent->n_chunks - 1]);
    ca_node_extend(tree, leaf, tokens, n_tokens);
    ca_node_link_child(parent, leaf);
    tree->counts.n_nodes++;
    ca_node_changed(tree, leaf);
}

void ca_node_remove(ca_tree *tree, ca_node *leaf) {
    assert(leaf->n_children == 0 && !leaf->ending && !leaf->is_evictable);
    ca_walks_skip(tree, leaf, leaf);
    const size_t i = ca_node_index(leaf);
    ca_node_trim(tree, leaf, 0);
    unlink_child(leaf->parent, i);
    tree->counts.n_nodes--;
    ca_node_free(tree, leaf);
}
