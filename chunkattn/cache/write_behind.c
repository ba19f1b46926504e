/*
 * Writing behind: the full chunks of a sequence that leaves, or whose tokens are pinned, go to the file tier, if they are not
 * there yet. They are written while they are in memory, so that eviction costs nothing, and a process that is killed loses only
 * what it has not written.
 */
#include "tree_internal.h"

/*
 * Fill ids [n] with the path's first n chunks, all whole. -1 stands for a chunk that K/V commands of the next step still
 * change.
 */
static void list_chunks(const ca_tree *tree, const ca_node *leaf, int64_t n, ca_chunk_id *ids) {
    const ca_node *node = leaf;
    for (int64_t i = n - 1; i >= 0; i--) {
        const int64_t last = ((i + 1) << tree->layout->log2_c) - 1;
        while (node->start > last) node = node->parent;
        const ca_chunk_id id = ca_path_chunk(tree, node, last);
        const ca_chunk *chunk = ca_chunk_at(tree->pool, id);
        const bool complete = chunk->n_copied == ca_slot_of(tree, ca_path_own_begin(tree, node, last));
        ids[i] = complete && chunk->open == 0 ? id : -1;
    }
}

/* Queue the writes of n chunks, the first ones of a sequence, whose tokens have these ids. */
static void write(ca_tree *tree, const ca_seq *seq, int64_t n, const int32_t *ids, const ca_chunk_id *chunks) {
    ca_tier *tier = tree->config.tier;
    int32_t tokens[CA_RECORD_MAX_TOKENS];
    ca_tier_key key = ca_tier_root(tier, seq->domain), last = key; /* last: of the chunks that are there already */
    for (int64_t i = 0; i < n && chunks[i] >= 0; i++, ids += tree->layout->c) {
        const ca_tier_key parent = ca_tier_name_of(tree, key, ids, tokens);
        key = ca_tier_next(tier, parent, tokens);
        if (ca_tier_has(tier, key)) {
            last = key;
            continue;
        }
        if (ca_kv_touches(&tree->commands, chunks[i])) ca_kv_carry_out(&tree->commands);
        ca_tier_write(tier, parent, tokens, chunks[i]); /* if the queue is full, a later sequence writes it */
    }
    ca_tier_touch(tier, last);
}

void ca_tree_write_behind(ca_tree *tree, const ca_seq *seq) {
    const int64_t n = ca_chunk_of(tree, ca_path_n_ready(seq->leaf)), n_tokens = n << tree->layout->log2_c;
    if (n == 0 || seq->no_tier) return;
    int32_t *tokens = ca_new(tree->alloc, (size_t)n_tokens, sizeof *tokens);
    ca_chunk_id *ids = ca_new(tree->alloc, (size_t)n, sizeof *ids);
    if (tokens && ids) {
        ca_seq_tokens(seq, 0, n_tokens, tokens);
        list_chunks(tree, seq->leaf, n, ids);
        write(tree, seq, n, tokens, ids);
    }
    ca_delete(tree->alloc, ids, (size_t)n, sizeof *ids);
    ca_delete(tree->alloc, tokens, (size_t)n_tokens, sizeof *tokens);
}
