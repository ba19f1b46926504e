/*
 * Eviction: which leaf loses its last chunk when memory is needed.
 *
 * The leaves that no sequence covers are in one search tree for each class of uses (reuse.h), sorted by their last use. Each is
 * a treap: it is also a heap by a hash of the nodes' ids, and therefore flat, whatever the order of insertions. Its links are
 * in the nodes, so that nothing is allocated.
 *
 * The worth of a leaf is that of its last chunk, which depends on its class and age, times the used part of its slots, since a
 * chunk with few tokens frees as much memory as a full one. Only the oldest and the youngest leaf of each class are compared:
 * within a class the worth usually falls or rises with the age. For each kind of choice duels (duel.h) say whether the worth or
 * the age alone has chosen better; until the worth has, the least recently used leaf is evicted.
 *
 * A shared prefix seldom ends with a chunk. If the leaf's last chunk is full and was used once, but the one before it more
 * often, the chunk holds the prefix's end, followed by one sequence's own tokens:
 *
 *   [prefix, used 9 times |prefix, used 9 times |prefix, own tokens, used once]
 *
 * Such an end counts as the chunk before it, with half of its tokens, which is how many it has of the prefix on average.
 */
#include "tree_internal.h"

/* The least recently used leaf goes unless another is worth less by this factor. It keeps noise from changing a good order. */
static const double MARGIN = 1.5;

/* ---- Treaps ---- */

/* Ties, which a split makes, go by id, so that the order depends on the calls alone. */
static bool before(const ca_node *a, const ca_node *b) {
    return a->last_use != b->last_use ? a->last_use < b->last_use : a->id < b->id;
}

static uint64_t rank(const ca_node *node) { return (node->id * UINT64_C(0x9e3779b97f4a7c15)) >> 8; }

/* Let what pointed to `from` point to `to`. */
static void relink(ca_node **root, const ca_node *from, ca_node *to) {
    ca_node *up = from->evict.up;
    if (!up)
        *root = to;
    else
        up->evict.side[up->evict.side[1] == from] = to;
    if (to) to->evict.up = up;
}

/* Exchange node and the node above it, which keeps the order of the leaves. */
static void rotate_up(ca_node **root, ca_node *node) {
    ca_node *up = node->evict.up;
    const int side = up->evict.side[1] == node;
    ca_node *inner = node->evict.side[!side];
    relink(root, up, node);
    up->evict.side[side] = inner;
    if (inner) inner->evict.up = up;
    node->evict.side[!side] = up;
    up->evict.up = node;
}

static void insert(ca_node **root, ca_node *node) {
    ca_node *up = NULL, **link = root;
    while (*link) {
        up = *link;
        link = &up->evict.side[before(up, node)];
    }
    *link = node;
    node->evict.up = up;
    while (node->evict.up && rank(node) < rank(node->evict.up)) rotate_up(root, node);
}

static void take_out(ca_node **root, ca_node *node) {
    ca_node **side = node->evict.side;
    while (side[0] && side[1]) rotate_up(root, side[rank(side[1]) < rank(side[0])]);
    relink(root, node, side[0] ? side[0] : side[1]);
    node->evict = (ca_evict_links){0};
}

/* The oldest (side 0) or the youngest leaf (side 1). */
static ca_node *end_of(ca_node *root, int side) {
    while (root->evict.side[side]) root = root->evict.side[side];
    return root;
}

/* ---- The set of leaves ---- */

static const ca_chunk *chunk_from_end(const ca_tree *tree, const ca_node *leaf, size_t i) {
    return ca_chunk_at(tree->pool, leaf->chunks[leaf->n_chunks - i]);
}

static bool has_full_end(const ca_tree *tree, const ca_node *leaf) { return ca_slot_of(tree, ca_node_end(leaf)) == 0; }

/* Whether the leaf's last chunk holds the end of a prefix that was used more often than the chunk. */
static bool is_prefix_end(const ca_tree *tree, const ca_node *leaf) {
    return leaf->n_chunks > 1 && has_full_end(tree, leaf) && chunk_from_end(tree, leaf, 1)->n_uses <= 1 &&
           chunk_from_end(tree, leaf, 2)->n_uses > 1;
}

/* The chunk whose uses stand for those of the leaf's last one. A chunk that is not full is in no history; NULL: none stands. */
static const ca_chunk *chunk_to_judge(const ca_tree *tree, const ca_node *leaf) {
    if (has_full_end(tree, leaf) && !is_prefix_end(tree, leaf)) return chunk_from_end(tree, leaf, 1);
    return leaf->n_chunks > 1 ? chunk_from_end(tree, leaf, 2) : NULL;
}

static int class_of(const ca_tree *tree, const ca_node *leaf) {
    if (tree->reuse.n_sets == 0) return 0;
    const ca_chunk *chunk = chunk_to_judge(tree, leaf);
    return chunk ? ca_use_class(chunk->n_uses) : 0;
}

void ca_evict_forget(ca_tree *tree, ca_node *node) {
    if (!node->is_evictable) return;
    ca_pack_forget(tree, node);
    take_out(&tree->evictable[node->use_class], node);
    node->is_evictable = false;
    tree->n_evictable--;
}

void ca_evict_update(ca_tree *tree, ca_node *node) {
    ca_evict_forget(tree, node);
    if (!node->parent || node->n_seqs > 0 || node->n_children > 0) return;
    node->use_class = (uint8_t)class_of(tree, node);
    node->is_evictable = true;
    tree->n_evictable++;
    insert(&tree->evictable[node->use_class], node);
    ca_pack_list(tree, node);
}

/* ---- The choice ---- */

/* The position of the first token that is evicted with the leaf's last chunk. */
static int64_t last_chunk_start(const ca_tree *tree, const ca_node *leaf) {
    return ca_max(leaf->start, ca_chunk_of(tree, ca_node_end(leaf) - 1) << tree->layout->log2_c);
}

/* Tokens of the leaf's last chunk that are as often used as its class says. */
static int64_t tokens_of(const ca_tree *tree, const ca_node *leaf) {
    const int64_t n_tokens = ca_node_end(leaf) - last_chunk_start(tree, leaf);
    return is_prefix_end(tree, leaf) ? n_tokens / 2 : n_tokens;
}

static double worth_of(const ca_tree *tree, const ca_node *leaf) {
    return (double)tokens_of(tree, leaf) * ca_reuse_worth(&tree->reuse, leaf->use_class, tree->clock - leaf->last_use);
}

/* The kind of choice (duel.h) between a leaf and the least recently used one. */
static int choice_of(const ca_tree *tree, const ca_node *leaf, const ca_node *oldest) {
    return (is_prefix_end(tree, leaf) ? CA_USE_CLASSES : leaf->use_class) * CA_USE_CLASSES + oldest->use_class;
}

/* Evicted is about to be evicted, and kept is not, as one of the policies wishes. */
static void start_duel(ca_tree *tree, const ca_node *evicted, const ca_node *kept, int choice, bool learned) {
    const ca_chunk *gone = chunk_to_judge(tree, evicted), *stays = chunk_to_judge(tree, kept);
    if (!gone || !stays || gone->prefix == 0 || stays->prefix == 0) return;
    const ca_duel duel = {.evicted = gone->prefix,
                          .kept = stays->prefix,
                          .n_evicted_tokens = (int32_t)tokens_of(tree, evicted),
                          .n_kept_tokens = (int32_t)tokens_of(tree, kept),
                          .last_use = (uint32_t)evicted->last_use,
                          .started = (uint32_t)tree->clock,
                          .use_class = evicted->use_class,
                          .choice = (uint8_t)choice,
                          .learned = learned};
    ca_duels_start(&tree->duels, &duel, tree->reuse.memory);
}

static ca_node *find_oldest(const ca_tree *tree) {
    ca_node *oldest = NULL;
    for (int k = 0; k < CA_USE_CLASSES; k++) {
        ca_node *leaf = tree->evictable[k] ? end_of(tree->evictable[k], 0) : NULL;
        if (leaf && (!oldest || before(leaf, oldest))) oldest = leaf;
    }
    return oldest;
}

static ca_node *choose(ca_tree *tree) {
    ca_node *oldest = find_oldest(tree);
    if (!oldest || tree->reuse.n_sets == 0) return oldest;
    const double limit = worth_of(tree, oldest) / MARGIN;
    ca_node *least = NULL, *trusted = NULL; /* the leaf that is worth least, and among those in choices that are trusted */
    double least_worth = limit, trusted_worth = limit;
    for (int i = 0; i < 2 * CA_USE_CLASSES; i++) {
        ca_node *leaf = tree->evictable[i / 2] ? end_of(tree->evictable[i / 2], i % 2) : NULL;
        if (!leaf || leaf == oldest) continue;
        const double worth = worth_of(tree, leaf);
        if (worth < least_worth) {
            least = leaf;
            least_worth = worth;
        }
        if (worth < trusted_worth && ca_duels_trust(&tree->duels, choice_of(tree, leaf, oldest))) {
            trusted = leaf;
            trusted_worth = worth;
        }
    }
    ca_duels_follow(&tree->duels, &tree->reuse, (uint32_t)tree->clock, (uint32_t)oldest->last_use, least_worth * MARGIN);
    if (least && (!trusted || trusted == least))
        start_duel(tree, trusted ? least : oldest, trusted ? oldest : least, choice_of(tree, least, oldest), trusted);
    return trusted ? trusted : oldest;
}

/* ---- The memory of what was evicted ---- */

/* Tokens [start, end) of a node that lie in one absolute chunk, which they fill to its end: the chunk; otherwise NULL. */
static ca_chunk *full_chunk(const ca_tree *tree, const ca_node *node, int64_t end) {
    if (ca_slot_of(tree, end) != 0) return NULL;
    ca_chunk *chunk = ca_chunk_at(tree->pool, node->chunks[ca_chunk_of(tree, end - 1) - ca_chunk_of(tree, node->start)]);
    return chunk->packed == 0 ? chunk : NULL;
}

/*
 * The hash (reuse.h) of all tokens up to the end of a leaf. It is a sum over the tokens after the last full chunk whose
 * hash is known. Without learning none is noted when sequences leave: then this notes those of the whole path, so that the
 * next one of its chunks costs as little as one with learning.
 */
static uint32_t hash_to_end(ca_tree *tree, const ca_node *leaf) {
    const int64_t c = tree->layout->c;
    const ca_chunk *known = NULL;
    uint32_t hash = 0;
    for (const ca_node *node = leaf; node->parent && !known; node = node->parent) {
        for (int64_t end = ca_node_end(node), start; end > node->start; end = start) {
            const ca_chunk *full = full_chunk(tree, node, end);
            if (full && full->prefix != 0) {
                known = full;
                break;
            }
            start = ca_max(node->start, (end - 1) / c * c);
            hash += ca_reuse_hash(node->tokens + (start - node->start), start, end - start);
        }
    }
    hash += known ? known->prefix : leaf->domain;
    uint32_t rest = hash;
    for (const ca_node *node = leaf; node->parent && tree->reuse.n_sets == 0; node = node->parent) {
        for (int64_t end = ca_node_end(node), start; end > node->start; end = start) {
            ca_chunk *full = full_chunk(tree, node, end);
            if (full && full->prefix != 0) return hash;
            if (full) full->prefix = rest;
            start = ca_max(node->start, (end - 1) / c * c);
            rest -= ca_reuse_hash(node->tokens + (start - node->start), start, end - start);
        }
    }
    return hash;
}

/* The tokens of a leaf from position `first` on are evicted. A prompt may end among them, so more than their end is noted. */
static void note_evicted(ca_tree *tree, const ca_node *leaf, int64_t first) {
    enum { STRIDE = 16 };
    const uint32_t now = ca_tree_time(tree);
    uint32_t hash = hash_to_end(tree, leaf);
    for (int64_t end = ca_node_end(leaf), start; end > first; end = start) {
        ca_evicted_note(&tree->evicted, hash, now);
        start = ca_max(first, (end - 1) / STRIDE * STRIDE);
        hash -= ca_reuse_hash(leaf->tokens + (start - leaf->start), start, end - start);
    }
}

ca_node *ca_evict_choose(ca_tree *tree, int64_t *n_left) {
    ca_node *leaf = choose(tree);
    if (!leaf) return NULL;
    *n_left = last_chunk_start(tree, leaf) - leaf->start;
    note_evicted(tree, leaf, leaf->start + *n_left);
    tree->counts.tokens_evicted += (uint64_t)(leaf->n_tokens - *n_left);
    return leaf;
}

/* ---- Learning ---- */

void ca_evict_note_leave(ca_tree *tree, const ca_seq *seq, int64_t n_ready) {
    if (tree->reuse.n_sets == 0) return;
    const int64_t c = tree->layout->c;
    const uint32_t now = (uint32_t)tree->clock;
    uint32_t hash = seq->domain; /* of all tokens before the position that the loop below has reached */
    for (const ca_node *node = seq->leaf; node->parent; node = node->parent)
        hash += ca_reuse_hash(node->tokens, node->start, node->n_tokens);
    for (const ca_node *node = seq->leaf; node->parent; node = node->parent) {
        for (int64_t end = ca_node_end(node), start; end > node->start; end = start) {
            const int64_t chunk = ca_chunk_of(tree, end - 1);
            start = ca_max(node->start, chunk * c);
            if (end == (chunk + 1) * c && end <= n_ready) {
                const ca_chunk_id id = node->chunks[chunk - ca_chunk_of(tree, node->start)];
                ca_chunk *full = ca_chunk_at(tree->pool, id);
                full->prefix = hash;
                full->n_uses = ca_reuse_note(&tree->reuse, hash, (uint32_t)seq->joined, now);
                ca_duels_note(&tree->duels, hash, (uint32_t)seq->joined, end <= seq->n_found);
            }
            hash -= ca_reuse_hash(node->tokens + (start - node->start), start, end - start);
        }
    }
    ca_reuse_note_leave(&tree->reuse, now);
}
