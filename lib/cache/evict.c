/* Eviction: a binary heap of the leaves that no sequence covers, of which the least recently used loses its last chunk. */
#include "tree_internal.h"

/* ---- The heap ---- */

int ca_evict_reserve(ca_tree *tree, size_t n_new_nodes) {
    return ca_grow(tree->alloc, (void **)&tree->heap, &tree->heap_capacity, tree->counts.n_nodes + n_new_nodes,
                   sizeof *tree->heap);
}

size_t ca_evict_growth(const ca_tree *tree, size_t n_new_nodes) {
    return ca_growth(tree->heap_capacity, tree->counts.n_nodes + n_new_nodes, sizeof *tree->heap);
}

/* Ties, which a split makes, go by id, so that the order depends on the calls alone. */
static bool before(const ca_node *a, const ca_node *b) {
    return a->last_use != b->last_use ? a->last_use < b->last_use : a->id < b->id;
}

/* Store node at index i of the heap. */
static void put(ca_tree *tree, size_t i, ca_node *node) {
    tree->heap[i] = node;
    node->heap_index = i;
}

static void sift_up(ca_tree *tree, size_t i, ca_node *node) {
    for (; i > 0 && before(node, tree->heap[(i - 1) / 2]); i = (i - 1) / 2) put(tree, i, tree->heap[(i - 1) / 2]);
    put(tree, i, node);
}

static void sift_down(ca_tree *tree, size_t i, ca_node *node) {
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= tree->heap_length) break;
        if (child + 1 < tree->heap_length && before(tree->heap[child + 1], tree->heap[child])) child++;
        if (!before(tree->heap[child], node)) break;
        put(tree, i, tree->heap[child]);
        i = child;
    }
    put(tree, i, node);
}

void ca_evict_forget(ca_tree *tree, ca_node *node) {
    const size_t i = node->heap_index;
    if (i == SIZE_MAX) return;
    ca_pack_forget(tree, node);
    node->heap_index = SIZE_MAX;
    ca_node *last = tree->heap[--tree->heap_length];
    if (last == node) return;
    if (i > 0 && before(last, tree->heap[(i - 1) / 2]))
        sift_up(tree, i, last);
    else
        sift_down(tree, i, last);
}

void ca_evict_update(ca_tree *tree, ca_node *node) {
    ca_evict_forget(tree, node);
    if (!node->parent || node->n_seqs > 0 || node->n_children > 0) return;
    assert(tree->heap_length < tree->heap_capacity);
    sift_up(tree, tree->heap_length++, node);
    ca_pack_list(tree, node);
}

bool ca_evict_one(ca_tree *tree) {
    if (tree->heap_length == 0) return false;
    ca_node *leaf = tree->heap[0], *parent = leaf->parent;
    const int64_t last_chunk = ca_chunk_of(tree, ca_node_end(leaf) - 1) << tree->layout->log2_c;
    const int64_t n_left = ca_max(0, last_chunk - leaf->start);
    tree->counts.tokens_evicted += (uint64_t)(leaf->n_tokens - n_left);
    if (n_left > 0) {
        ca_node_trim(tree, leaf, n_left);
    } else {
        ca_node_remove(tree, leaf);
        ca_node_settle(tree, parent);
    }
    return true;
}
