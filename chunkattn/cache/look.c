/*
 * Looking at the tree: what a node holds and who covers it, walks that go on after other calls, and superseded chunks.
 *
 * A walk that is suspended has a place in the tree, with the node that comes next. The calls that free a node let such walks go
 * on with another one, so a walk never has to search. A new walk takes the place of the one that was suspended longest ago.
 */
#include "tree_internal.h"

/* ---- What a node covers ---- */

/* One more sequence, of the kind that `count` is the node's count of, covers the path from node to the root. */
static void add_to_path(ca_tree *tree, ca_node *node, size_t count) {
    for (; node->parent; node = node->parent) {
        if (node->seen != tree->n_looks) {
            node->seen = tree->n_looks;
            node->n_pins = node->n_restores = node->n_step_seqs = 0;
        }
        ++*(int32_t *)((char *)node + count);
    }
}

void ca_tree_count_covered(ca_tree *tree) {
    tree->n_looks++;
    for (size_t i = 0; i < tree->seqs_capacity; i++) {
        const ca_seq *seq = tree->seqs[i].seq;
        if (seq && seq->is_pin) add_to_path(tree, seq->leaf, offsetof(ca_node, n_pins));
        if (seq && seq->is_restore) add_to_path(tree, seq->leaf, offsetof(ca_node, n_restores));
    }
}

void ca_tree_count_in_step(ca_tree *tree, cattn_seq id) {
    const ca_seq *seq = ca_tree_find(tree, id);
    if (seq) add_to_path(tree, seq->leaf, offsetof(ca_node, n_step_seqs));
}

/* Chunks to which only this node refers. All but the first and the last are of this kind. */
static int64_t count_own_chunks(const ca_tree *tree, const ca_node *node) {
    const size_t n = node->n_chunks;
    size_t n_own = n > 2 ? n - 2 : 0;
    if (n > 0) n_own += ca_chunk_at(tree->pool, node->chunks[0])->refs == 1;
    if (n > 1) n_own += ca_chunk_at(tree->pool, node->chunks[n - 1])->refs == 1;
    return (int64_t)n_own;
}

cattn_node_info ca_tree_describe(const ca_tree *tree, const ca_node *node) {
    const bool counted = node->seen == tree->n_looks;
    return (cattn_node_info){.struct_size = sizeof(cattn_node_info),
                             .id = node->id,
                             .parent_id = node->parent == tree->root ? 0 : node->parent->id,
                             .domain = node->domain,
                             .first_pos = node->start,
                             .n_tokens = node->n_tokens,
                             .n_ready = node->n_ready,
                             .n_chunks = (int64_t)node->n_chunks,
                             .tokens = node->tokens,
                             .n_seqs = (uint64_t)(node->n_seqs - (counted ? node->n_restores : 0)),
                             .n_pins = counted ? (uint64_t)node->n_pins : 0,
                             .n_step_seqs = counted ? (uint64_t)node->n_step_seqs : 0,
                             .n_hits = node->n_hits,
                             .n_coming = node->n_coming,
                             .own_bytes = (uint64_t)count_own_chunks(tree, node) * tree->layout->chunk_bytes,
                             .idle_seconds = (double)(ca_tree_time(tree) - node->used_at) / 10};
}

/* ---- Walks ---- */

/* The place of the walk with this serial; or the first of the smallest serial, if that is 0. NULL: there is none. */
static ca_walk *find_walk(ca_tree *tree, uint64_t serial) {
    ca_walk *oldest = tree->walks;
    for (size_t i = 0; i < CATTN_MAX_WALKS; i++) {
        ca_walk *walk = &tree->walks[i];
        if (serial != 0 && walk->serial == serial) return walk;
        if (walk->serial < oldest->serial) oldest = walk;
    }
    return serial == 0 ? oldest : NULL;
}

bool ca_tree_resume_walk(ca_tree *tree, uint64_t cursor, const ca_node **next) {
    int32_t depth = 0;
    const ca_walk *walk = cursor != 0 ? find_walk(tree, cursor) : NULL;
    *next = cursor == 0 ? ca_tree_next(tree->root, &depth) : walk ? walk->next : NULL;
    return cursor == 0 || walk;
}

uint64_t ca_tree_suspend_walk(ca_tree *tree, uint64_t cursor, const ca_node *next) {
    ca_walk *walk = find_walk(tree, cursor);
    if (next)
        *walk = (ca_walk){++tree->n_walks, next};
    else if (cursor != 0)
        *walk = (ca_walk){0};
    return next ? walk->serial : 0;
}

/*
 * ---- Superseded chunks: live chunks over which no running sequence attends ----
 *
 * A sequence that branches off within a chunk continues in a chunk of its own, into which the slots before the branch are
 * copied:
 *
 *   [0..5 | X0-3 Y0-1] -+- [6..7 retained | Y2-3]
 *                       '- [6..9 | Z2-3 V0-1]        its slots 0 and 1 of Z are copies of those of Y
 *
 * If all sequences below do so, and none ends within the chunk, then the chunk (Y) serves only later joins. It stays as long as
 * the sequences run, since their paths lead through it. Without sharing there would be no such chunk, so it is counted as
 * retained, and the chunks that count as live are never more than they would be without sharing.
 */

/* Whether node ends within a chunk that no sequence which ends at node, or above it in the same chunk, attends over. */
static bool only_passes(const ca_tree *tree, const ca_node *node) {
    if (ca_slot_of(tree, ca_node_end(node)) == 0) return false;
    for (;; node = node->parent) {
        if (node->ending) return false;
        if (node->n_chunks > 1 || !node->parent->parent || !ca_node_shares_first_chunk(node)) return true;
    }
}

/*
 * Visit the nodes that running sequences cover, each once. Mark each whose last chunk is continued by a child that one of them
 * covers; or, in a second round, count those without such a child.
 */
static uint64_t visit(ca_tree *tree, bool counts) {
    const uint64_t round = ++tree->n_rounds;
    uint64_t n = 0;
    for (size_t i = 0; i < tree->seqs_capacity; i++) {
        const ca_seq *seq = tree->seqs[i].seq;
        ca_node *node = seq && !seq->is_restore ? seq->leaf : NULL;
        for (; node && node->parent && node->round != round; node = node->parent) {
            node->round = round;
            if (counts)
                n += node->continued != round - 1 && only_passes(tree, node);
            else if (ca_node_shares_first_chunk(node))
                node->parent->continued = round;
        }
    }
    return n;
}

uint64_t ca_tree_count_superseded(ca_tree *tree) {
    visit(tree, false);
    return visit(tree, true);
}
