/* Running sequences: the table of their ids, their tokens, the nodes where they end, and the chunks reserved for them. */
#include "tree_internal.h"

#include <string.h>

/*
 * An id says which cache it is of, where in the cache's table, and how many sequences have had that place: ids are unique, and
 * found without hashing, and those of another cache are recognised.
 *
 *   63     48 47     24 23      0
 *   [ tree  | serial   | index  ]
 *
 * A place whose serials are used up is not used again. After 65,535 trees of a process their numbers begin anew.
 */
enum { INDEX_BITS = 24, SERIAL_BITS = 24, TREE_BITS = 16, MAX_SERIAL = (1 << SERIAL_BITS) - 1 };

uint64_t ca_tree_new_number(void) {
    static _Atomic uint32_t n_trees;
    return n_trees++ % ((1u << TREE_BITS) - 1) + 1;
}

/* ---- The table ---- */

/* Double the table. Returns 0, or -1 without memory or if ids have no bits for more. */
static int grow_table(ca_tree *tree) {
    const size_t old = tree->seqs_capacity, wanted = old > 0 ? old * 2 : 16;
    if (wanted > (size_t)1 << INDEX_BITS) return -1;
    if (ca_grow(tree->alloc, (void **)&tree->seqs, &tree->seqs_capacity, wanted, sizeof *tree->seqs) != 0) return -1;
    for (size_t i = tree->seqs_capacity; i-- > old;) {
        tree->seqs[i] = (ca_seq_ref){.next_free = tree->free_ref};
        tree->free_ref = (uint32_t)i;
    }
    return 0;
}

ca_seq *ca_seq_new(ca_tree *tree) {
    if (tree->free_ref == UINT32_MAX && grow_table(tree) != 0) return NULL;
    ca_seq *seq = ca_new_zero(tree->alloc, 1, sizeof *seq);
    if (!seq) return NULL;
    const uint32_t i = tree->free_ref;
    ca_seq_ref *ref = &tree->seqs[i];
    seq->id = tree->number << (SERIAL_BITS + INDEX_BITS) | (uint64_t)++ref->serial << INDEX_BITS | i;
    seq->step_entry = -1;
    tree->free_ref = ref->next_free;
    ref->seq = seq;
    tree->counts.n_seqs++;
    return seq;
}

void ca_seq_free(ca_tree *tree, ca_seq *seq) {
    if (!seq) return;
    assert(!seq->leaf && seq->n_reserved == 0);
    const uint32_t i = seq->id & ((1u << INDEX_BITS) - 1);
    ca_seq_ref *ref = &tree->seqs[i];
    ca_seq_resize(tree, seq, 0);
    ref->seq = NULL;
    if (ref->serial < MAX_SERIAL) {
        ref->next_free = tree->free_ref;
        tree->free_ref = i;
    }
    tree->counts.n_seqs -= !seq->is_restore;
    ca_delete(tree->alloc, seq, 1, sizeof *seq);
}

ca_seq *ca_tree_find(const ca_tree *tree, cattn_seq id) {
    const size_t i = id & (((size_t)1 << INDEX_BITS) - 1);
    if (i >= tree->seqs_capacity) return NULL;
    ca_seq *seq = tree->seqs[i].seq;
    return seq && seq->id == id && !seq->is_restore ? seq : NULL;
}

bool ca_tree_has_made(const ca_tree *tree, cattn_seq id) { return id >> (SERIAL_BITS + INDEX_BITS) == tree->number; }

/* ---- Tokens ---- */

void ca_seq_resize(ca_tree *tree, ca_seq *seq, int64_t n_tokens) {
    if (!seq->is_restore) {
        ca_tree_counts *counts = &tree->counts;
        counts->tokens_referenced += (uint64_t)(n_tokens - seq->n_tokens);
        counts->chunks_unshared += (uint64_t)(ca_chunks_for(tree, n_tokens) - ca_chunks_for(tree, seq->n_tokens));
    }
    seq->n_tokens = n_tokens;
}

void ca_seq_tokens(const ca_seq *seq, int64_t first, int64_t n, int32_t *tokens) {
    const int64_t end = first + n;
    for (const ca_node *node = seq->leaf; node && ca_node_end(node) > first; node = node->parent) {
        const int64_t from = ca_max(first, node->start), to = ca_min(end, ca_node_end(node));
        if (to > from)
            memcpy(tokens + (from - first), node->tokens + (from - node->start), (size_t)(to - from) * sizeof *tokens);
    }
}

void ca_tree_tokens(const ca_tree *tree, const ca_seq *seq, int64_t first, int64_t n, int32_t *tokens) {
    ca_seq_tokens(seq, first, n, tokens);
    ca_extras_show(&tree->extras, tokens, NULL, n);
}

ca_tier_key ca_tier_name_of(const ca_tree *tree, ca_tier_key before, const int32_t *ids, int32_t *tokens) {
    const int32_t c = tree->layout->c;
    uint64_t hashes[CA_RECORD_MAX_TOKENS];
    memcpy(tokens, ids, (size_t)c * sizeof *tokens);
    if (tree->extras.n == 0) return before;
    ca_extras_show(&tree->extras, tokens, hashes, c);
    return ca_record_mark(before, hashes, c);
}

ca_tier_key ca_tier_key_after(const ca_tree *tree, ca_tier_key before, const int32_t *ids) {
    int32_t tokens[CA_RECORD_MAX_TOKENS];
    const ca_tier_key parent = ca_tier_name_of(tree, before, ids, tokens);
    return ca_tier_next(tree->config.tier, parent, tokens);
}

/* ---- The node where a sequence ends ---- */

void ca_seq_link(ca_tree *tree, ca_seq *seq, ca_node *node) {
    ca_seq **end = &node->ending;
    while (*end) end = &(*end)->next;
    *end = seq;
    seq->next = NULL;
    seq->leaf = node;
    seq->root = ca_node_changed(tree, node);
}

void ca_seq_unlink(ca_tree *tree, ca_seq *seq) {
    ca_node_changed(tree, seq->leaf);
    ca_seq **link = &seq->leaf->ending;
    while (*link != seq) link = &(*link)->next;
    *link = seq->next;
    seq->next = NULL;
    seq->leaf = seq->root = NULL;
}

/* ---- Reservations ---- */

int64_t ca_reservation(const ca_tree *tree, int64_t n_tokens, int64_t reserve_to, bool owns_tail) {
    if (reserve_to <= n_tokens) return 0;
    /* A sequence that does not own the rest of its last chunk needs a chunk of its own for the same positions. */
    const int64_t n_owned = owns_tail ? ca_chunks_for(tree, n_tokens) : ca_chunk_of(tree, n_tokens);
    return ca_chunks_for(tree, reserve_to) - n_owned;
}

static void set_reservation(ca_tree *tree, ca_seq *seq, int64_t n_chunks) {
    tree->counts.chunks_reserved += (uint64_t)(n_chunks - seq->n_reserved);
    seq->n_reserved = n_chunks;
}

void ca_reservation_update(ca_tree *tree, ca_node *node) {
    for (ca_seq *seq = node->ending; seq; seq = seq->next) {
        const bool owns_tail = ca_node_tail_is_free(tree, node, seq);
        set_reservation(tree, seq, ca_reservation(tree, seq->n_tokens, seq->reserve_to, owns_tail));
    }
}

void ca_reservation_end(ca_tree *tree, ca_seq *seq) { set_reservation(tree, seq, 0); }
