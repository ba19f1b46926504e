/*
 * Where exports read K/V and imports write them: the slots of a path's tokens, and the states of imported tokens.
 *
 * An import is like a step whose rows bring their K/V along. It writes the slots of the tokens that are not ready, opens and
 * closes slot groups as for rows, and makes the tokens ready. A branch needs copies of the slots before it, which a step makes
 * after its rows; an import writes them with the rest, since it has the K/V of these positions too:
 *
 *   in the tree [0..5 | X0-3 Y0-1], import 0..9 (c = 4)   =>   [0..5 | X0-3 Y0-1] - [6..9 | Z2-3 V0-1]
 *                                                              places of 6 and 7: Z0-1, as copies of Y0-1, and Z2-3
 */
#include "tree_internal.h"

int32_t ca_path_places(const ca_tree *tree, const ca_node *leaf, int64_t begin, int64_t end, ca_place *places) {
    assert(begin < end && ca_chunk_of(tree, begin) == ca_chunk_of(tree, end - 1));
    int32_t n = 0;
    for (const ca_node *node = leaf; end > begin; node = node->parent) {
        if (node->start >= end) continue;
        const int64_t first = ca_max(begin, node->start);
        const ca_chunk_id chunk = node->chunks[ca_chunk_of(tree, first) - ca_chunk_of(tree, node->start)];
        if (n > 0 && places[n - 1].chunk == chunk) /* its child continues in the chunk */
            places[n - 1].begin = ca_slot_of(tree, first);
        else
            places[n++] = (ca_place){chunk, ca_slot_of(tree, first), ca_slot_of(tree, end - 1) + 1};
        end = first;
    }
    return n;
}

int64_t ca_tree_begin_import(ca_tree *tree, const ca_seq *seq) {
    if (tree->config.tier) ca_tree_stop_restores(tree, seq);
    ca_kv_carry_out(&tree->commands);
    return ca_path_n_ready(seq->leaf);
}

/* Open and close the slot groups of a place, for tokens that fill it. */
static void open_and_close(ca_tree *tree, const ca_place *place) {
    ca_kv_command closing[CA_RECORD_MAX_TOKENS / CA_SLOT_GROUP];
    ca_kv_commands commands = {closing, 0, sizeof closing / sizeof *closing};
    ca_kv_open_and_close(tree->layout, tree->pool, place->chunk, place->begin, place->end, &commands);
    const ca_kv_executor *executor = &tree->commands.executor;
    if (commands.n > 0 && executor->run) executor->run(executor->ctx, commands.at, commands.n);
}

int32_t ca_tree_places_to_write(ca_tree *tree, const ca_seq *seq, int64_t begin, int64_t end, ca_place *places) {
    const int64_t start = begin - ca_slot_of(tree, begin);
    const int32_t n = ca_path_places(tree, seq->leaf, begin, end, places);
    int32_t n_all = n;
    for (int32_t i = 0; i < n; i++) {
        ca_chunk *chunk = ca_chunk_at(tree->pool, places[i].chunk);
        const int32_t first = ca_slot_of(tree, ca_path_own_begin(tree, seq->leaf, start + places[i].end - 1));
        open_and_close(tree, &places[i]);
        if (chunk->n_copied >= first) continue;
        places[n_all++] = (ca_place){places[i].chunk, chunk->n_copied, first};
        chunk->n_copied = first;
    }
    return n_all;
}

void ca_tree_end_import(ca_tree *tree, const ca_seq *seq) {
    const int64_t n_ready = ca_path_n_ready(seq->leaf);
    tree->counts.tokens_imported += (uint64_t)ca_path_claim(seq->leaf, seq->n_tokens - n_ready);
    ca_path_commit(seq->leaf);
}
