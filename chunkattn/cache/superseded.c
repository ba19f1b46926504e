/*
 * Counting the superseded chunks: live chunks over which no running sequence attends.
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
#include "tree_internal.h"

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
    for (size_t i = 0; i < tree->slots_capacity; i++) {
        const ca_seq *seq = tree->slots[i].seq;
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
