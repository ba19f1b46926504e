/*
 * Restores: tokens of a sequence that has joined come from the file tier instead of being computed.
 *
 * A restore reads the records of consecutive chunks of a path. It has a sequence of its own that covers the path up to the end
 * of the last of these chunks and never gets a row. So the nodes of these tokens may be split, merged and shared like all
 * others while the reads are under way, and the chunks are neither evicted nor freed.
 *
 *   S joins with 0..13, and the tier has 0..11 (c = 4):      [0..11 | x0 x1 x2, on the way] - [12..13 | x3]
 *                                                            covers S and the restore         covers S
 *
 * A record holds a whole chunk, so it can be read only where the path has the chunk to itself: from the chunk's first slot on,
 * or from the place where a branch begins (the slots before it, which the record has too, then need no copies). What follows
 * ready tokens within their own chunk is computed.
 *
 * The last two tokens of a prompt do not become ready, even if it ends with a chunk whose record is read: as after a match, a
 * row must give the logits, and the number of ready tokens is even. The step writes the bits that the record has brought.
 *
 * The tokens become ready chunk by chunk, in the order of their positions, in ca_tree_poll_tier only. A later restore may begin
 * where an earlier one ends, or at a branch from its tokens; it waits for that one. If a record cannot be read, the restore
 * ends before it, those below it end too, and the tokens can be claimed by steps.
 *
 * A restore is dropped when no other sequence covers its last token any more, so it never keeps memory that nobody waits for.
 */
#include "tree_internal.h"

/* ---- A restore's chunks ---- */

static int64_t first_chunk(const ca_tree *tree, const ca_restore *r) { return ca_chunk_of(tree, r->begin); }

/* Positions: of the first token that chunk i of a restore makes ready, and behind its last. */
static int64_t begin_of(const ca_tree *tree, const ca_restore *r, int32_t i) {
    return i == 0 ? r->begin : (first_chunk(tree, r) + i) << tree->layout->log2_c;
}
static int64_t end_of(const ca_tree *tree, const ca_restore *r, int32_t i) {
    return ca_min((first_chunk(tree, r) + i + 1) << tree->layout->log2_c, r->end);
}

static ca_chunk_id chunk_of(const ca_tree *tree, const ca_restore *r, int32_t i) {
    return ca_path_chunk(tree, r->seq->leaf, end_of(tree, r, i) - 1);
}

bool ca_tree_restores(const ca_tree *tree) { return tree->restores.n > 0; }

/* ---- What can be restored ---- */

/* Chunks to restore, the tokens [begin, end) that become ready, the key before the first chunk, and that of the last. */
typedef struct found {
    int64_t begin, end;
    int32_t n_chunks;
    ca_tier_key parent, last;
} found;

/*
 * The consecutive records behind the tokens that are ready or on the way. The last token of a prompt is always computed, so the
 * record of the chunk that it fills is read only if it brings all tokens of the chunk but the last two.
 */
static found find(ca_tree *tree, const ca_seq *seq, const int32_t *tokens) {
    ca_tier *tier = tree->config.tier;
    const int log2_c = tree->layout->log2_c;
    found f = {.begin = ca_path_n_coming(seq->leaf)};
    const int64_t first = ca_chunk_of(tree, f.begin), limit = seq->n_tokens >> log2_c;
    if (first >= limit || ca_path_own_begin(tree, seq->leaf, ((first + 1) << log2_c) - 1) != f.begin) return f;
    if ((first + 1) << log2_c == seq->n_tokens && ca_slot_of(tree, f.begin) > 0) return f;
    f.parent = ca_tier_root(tier, seq->domain);
    for (int64_t i = 0; i < first; i++) f.parent = ca_tier_key_after(tree, f.parent, tokens + (i << log2_c));
    ca_tier_key key = f.parent;
    for (int64_t i = first; i < limit; i++, f.n_chunks++) {
        key = ca_tier_key_after(tree, key, tokens + (i << log2_c));
        if (!ca_tier_has(tier, key)) break;
        if (i > first && ca_path_own_begin(tree, seq->leaf, ((i + 1) << log2_c) - 1) != i << log2_c) break;
        f.last = key;
    }
    f.end = ca_min((first + f.n_chunks) << log2_c, ca_even(seq->n_tokens - 1));
    return f;
}

/* Whether reading n chunks takes less time than computing their tokens. Both are read until they have been measured. */
static bool pays(const ca_tree *tree, int64_t n_chunks, double row_seconds) {
    ca_tier_stats stats;
    ca_tier_get_stats(tree->config.tier, &stats);
    if (row_seconds == 0 || stats.n_reads == 0) return true;
    const double others = (double)(n_chunks - 1) * stats.read_seconds / (double)stats.n_reads;
    const double compute = (double)(n_chunks << tree->layout->log2_c) * row_seconds;
    return ca_tier_read_seconds(tree->config.tier) + others < compute;
}

/* ---- Beginning ---- */

/* A sequence that covers the first n_tokens tokens of seq, whole chunks. NULL without memory. */
static ca_seq *cover(ca_tree *tree, const ca_seq *seq, int64_t n_tokens) {
    ca_seq *own = ca_seq_new(tree);
    if (!own) return NULL;
    own->is_restore = true;
    tree->counts.n_seqs--;
    if (ca_seq_enter(tree, "restore", seq, n_tokens, own, NULL) != CATTN_OK) {
        ca_seq_free(tree, own);
        return NULL;
    }
    ca_tree_shrink(tree);
    return own;
}

/* Carry out the pending K/V commands if one of them reads or writes a chunk of the restore, since its reads do not wait. */
static void settle_commands(ca_tree *tree, const ca_restore *r) {
    for (int32_t i = 0; i < r->n_chunks; i++)
        if (ca_kv_touches(&tree->commands, chunk_of(tree, r, i))) {
            ca_kv_carry_out(&tree->commands);
            return;
        }
}

/* The tokens from `position` on to the end of the restore are on the way, or are not. */
static void set_coming(const ca_restore *r, int64_t position, bool coming) {
    for (ca_node *node = r->seq->leaf; node->parent && ca_node_end(node) > position; node = node->parent) {
        const int64_t to = coming ? ca_min(r->end, ca_node_end(node)) : position;
        node->n_coming = ca_max(to - node->start, node->n_ready) - node->n_ready;
    }
}

/* Whether the path to leaf passes through node. */
static bool passes(const ca_node *leaf, const ca_node *node) {
    while (leaf->start > node->start) leaf = leaf->parent;
    return leaf == node;
}

/* Give up what a restore reads from its chunk i on, and what others read below it. */
static void give_up(ca_tree *tree, const ca_restore *restore, int32_t i) {
    const int64_t position = begin_of(tree, restore, i);
    const ca_node *at = restore->seq->leaf;
    while (at->start > position) at = at->parent;
    for (size_t k = 0; k < tree->restores.n; k++) {
        ca_restore *r = &tree->restores.at[k];
        if (!passes(r->seq->leaf, at)) continue;
        for (; r->n_chunks > r->n_done && begin_of(tree, r, r->n_chunks - 1) >= position; r->n_chunks--)
            ca_tier_release(tree->config.tier, chunk_of(tree, r, r->n_chunks - 1));
        set_coming(r, position, false);
    }
}

static void queue_reads(ca_tree *tree, ca_restore *r, const int32_t *ids, ca_tier_key key) {
    const int32_t n_chunks = r->n_chunks;
    const int32_t *at = ids + (first_chunk(tree, r) << tree->layout->log2_c);
    int32_t tokens[CA_RECORD_MAX_TOKENS];
    for (int32_t i = 0; i < n_chunks; i++, at += tree->layout->c) {
        const ca_tier_key parent = ca_tier_name_of(tree, key, at, tokens);
        if (!ca_tier_read(tree->config.tier, parent, tokens, chunk_of(tree, r, i), (uint64_t)r->id << 32 | (uint32_t)i)) {
            give_up(tree, r, i);
            return;
        }
        key = ca_tier_next(tree->config.tier, parent, tokens);
    }
}

/* Free a restore whose reads have ended, and let its sequence leave. */
static void end(ca_tree *tree, size_t i) {
    ca_restore r = tree->restores.at[i];
    tree->restores.n--;
    for (size_t k = i; k < tree->restores.n; k++) tree->restores.at[k] = tree->restores.at[k + 1];
    ca_delete(tree->alloc, r.read, (size_t)r.capacity, sizeof *r.read);
    ca_tree_leave(tree, r.seq);
}

static void end_finished(ca_tree *tree) {
    for (size_t i = 0; i < tree->restores.n;)
        if (tree->restores.at[i].n_done == tree->restores.at[i].n_chunks)
            end(tree, i);
        else
            i++;
}

int64_t ca_tree_restore(ca_tree *tree, ca_seq *seq, const int32_t *tokens, double row_seconds) {
    const found f = find(tree, seq, tokens);
    if (f.n_chunks == 0 || !pays(tree, f.n_chunks, row_seconds) || CA_ROOM(tree->alloc, &tree->restores, 1))
        return ca_path_n_coming(seq->leaf);
    ca_restore r = {
        .id = ++tree->n_restore_ids, .begin = f.begin, .end = f.end, .n_chunks = f.n_chunks, .capacity = f.n_chunks};
    r.read = ca_new_zero(tree->alloc, (size_t)r.capacity, sizeof *r.read);
    if (r.read) r.seq = cover(tree, seq, (ca_chunk_of(tree, f.begin) + f.n_chunks) << tree->layout->log2_c);
    if (!r.seq) {
        ca_delete(tree->alloc, r.read, (size_t)r.capacity, sizeof *r.read);
        return ca_path_n_coming(seq->leaf);
    }
    ca_tier_touch(tree->config.tier, f.last);
    settle_commands(tree, &r);
    tree->restores.at[tree->restores.n++] = r;
    set_coming(&r, f.begin, true);
    queue_reads(tree, &tree->restores.at[tree->restores.n - 1], tokens, f.parent);
    end_finished(tree);
    ca_tree_shrink(tree); /* the reads' queue may have grown */
    return ca_path_n_coming(seq->leaf);
}

/* ---- Progress ---- */

static ca_restore *find_restore(ca_tree *tree, uint32_t id) {
    for (size_t i = 0; i < tree->restores.n; i++)
        if (tree->restores.at[i].id == id) return &tree->restores.at[i];
    return NULL;
}

/* Note the end of a read, perhaps of a restore that has ended. */
static void note(ca_tree *tree, const ca_tier_done *done) {
    const int32_t i = (int32_t)(uint32_t)done->ticket;
    ca_restore *r = find_restore(tree, (uint32_t)(done->ticket >> 32));
    if (!r || i >= r->n_chunks) return;
    if (done->ok)
        r->read[i] = true;
    else
        give_up(tree, r, i);
}

/* Make the tokens of a restore's next chunk ready. */
static void make_ready(ca_tree *tree, ca_restore *r) {
    const int64_t begin = begin_of(tree, r, r->n_done), last = end_of(tree, r, r->n_done) - 1;
    ca_chunk *chunk = ca_chunk_at(tree->pool, chunk_of(tree, r, r->n_done));
    chunk->n_copied = ca_slot_of(tree, begin); /* the record has these slots too */
    chunk->open = 0;
    for (ca_node *node = r->seq->leaf; node->parent && ca_node_end(node) > begin; node = node->parent) {
        if (node->start > last) continue;
        const int64_t n_ready = ca_min(last + 1 - node->start, node->n_tokens);
        node->n_coming -= n_ready - node->n_ready;
        node->n_ready = node->n_claimed = n_ready;
    }
    r->n_done++;
    tree->counts.tokens_restored += (uint64_t)(last + 1 - begin);
}

void ca_tree_poll_tier(ca_tree *tree) {
    enum { AT_ONCE = 64 };
    ca_tier_done done[AT_ONCE];
    for (size_t n; (n = ca_tier_poll(tree->config.tier, done, AT_ONCE)) > 0;)
        for (size_t i = 0; i < n; i++) note(tree, &done[i]);
    for (size_t i = 0; i < tree->restores.n; i++) {
        ca_restore *r = &tree->restores.at[i];
        while (r->n_done < r->n_chunks && r->read[r->n_done] && ca_path_n_ready(r->seq->leaf) == begin_of(tree, r, r->n_done))
            make_ready(tree, r);
    }
    end_finished(tree);
}

/* ---- Ending ---- */

/* Whether all sequences that cover the last token that a restore brings are restores. */
static bool is_orphan(const ca_tree *tree, const ca_restore *r) {
    const ca_node *last = r->seq->leaf;
    while (last->start >= r->end) last = last->parent;
    int64_t n_restores = 0;
    for (size_t i = 0; i < tree->restores.n; i++) n_restores += passes(tree->restores.at[i].seq->leaf, last);
    return last->n_seqs == n_restores;
}

void ca_tree_drop_orphans(ca_tree *tree) {
    for (size_t i = 0; i < tree->restores.n; i++) {
        const ca_restore *r = &tree->restores.at[i];
        if (r->n_done < r->n_chunks && is_orphan(tree, r)) give_up(tree, r, r->n_done);
    }
    end_finished(tree);
}

void ca_tree_stop_restores(ca_tree *tree, const ca_seq *seq) {
    for (size_t i = 0; i < tree->restores.n; i++) {
        const ca_restore *r = &tree->restores.at[i];
        if (r->n_done == r->n_chunks) continue;
        const ca_node *at = r->seq->leaf; /* has the first token that is not ready */
        while (at->start > begin_of(tree, r, r->n_done)) at = at->parent;
        if (passes(seq->leaf, at)) give_up(tree, r, r->n_done);
    }
    end_finished(tree);
}

void ca_tree_detach_tier(ca_tree *tree) {
    for (size_t i = 0; i < tree->restores.n; i++) {
        const ca_restore *r = &tree->restores.at[i];
        if (r->n_done < r->n_chunks) give_up(tree, r, r->n_done);
    }
    end_finished(tree);
    tree->config.tier = NULL;
}

void ca_tree_forget_tier(ca_tree *tree) {
    for (size_t i = 0; i < tree->restores.n; i++) {
        const ca_restore *r = &tree->restores.at[i];
        ca_delete(tree->alloc, r->read, (size_t)r->capacity, sizeof *r->read);
    }
    tree->restores.n = 0;
    tree->config.tier = NULL;
}
