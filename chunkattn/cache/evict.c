/*
 * Eviction: which leaf loses its last chunk when memory is needed.
 *
 * The leaves that no sequence covers are in one search tree for each account and class of uses (reuse.h), sorted by their last
 * use. Each is a treap: it is also a heap by a hash of the nodes' ids, and therefore flat, whatever the order of insertions.
 * Its links are in the nodes, so that nothing is allocated.
 *
 * The worth of a leaf is that of its last chunk, which depends on its class and age. Only the oldest and the youngest leaf of
 * each class are compared: within a class the worth usually falls or rises with the age. Without the youngest ones, requests
 * would compute 12 % more tokens (docs/experiments.md, "Retention").
 *
 * A retained chunk counts for the account of the sequence that left with it last. Each account proposes one of its leaves, and
 * of these the one goes that has the least
 *
 *   worth * weight of the account / number of its retained chunks
 *
 * So an account with more than its part loses first. Nothing is set aside: what an idle account has is lost in the end, since
 * its worth falls with its age. An account that is alone evicts as if there were no accounts.
 */
#include "tree_internal.h"

#include <math.h>

/*
 * The least recently used leaf goes unless another is worth less by this factor. It keeps noise from changing a good order:
 * without it, requests would compute 5 % more tokens.
 */
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

static ca_node **treap_of(ca_tree *tree, const ca_node *node) {
    return &tree->accounts.at[node->account].evictable[node->use_class];
}

void ca_evict_forget(ca_tree *tree, ca_node *node) {
    if (!node->is_evictable) return;
    take_out(treap_of(tree, node), node);
    node->is_evictable = false;
}

void ca_evict_update(ca_tree *tree, ca_node *node) {
    ca_evict_forget(tree, node);
    if (!node->parent || node->n_seqs > 0 || node->n_children > 0) return;
    const ca_chunk *last = ca_chunk_at(tree->pool, node->chunks[node->n_chunks - 1]);
    node->use_class = (uint8_t)ca_use_class(last->n_uses);
    node->account = last->account;
    node->is_evictable = true;
    insert(treap_of(tree, node), node);
}

/* ---- Accounts ---- */

static void charge_chunk(ca_tree *tree, ca_chunk *chunk, uint16_t account) {
    const int n = chunk->live == 0; /* it is retained */
    ca_count_retained(tree, chunk, -n);
    chunk->account = account;
    ca_count_retained(tree, chunk, n);
}

void ca_evict_charge(ca_tree *tree, ca_node *node, const ca_node *stop, uint16_t account) {
    for (; node != stop; node = node->parent)
        for (size_t i = 0; i < node->n_chunks; i++) {
            ca_chunk *chunk = ca_chunk_at(tree->pool, node->chunks[i]);
            const bool ends_here = i + 1 < node->n_chunks || chunk->fill == ca_slot_of(tree, ca_node_end(node) - 1) + 1;
            if (ends_here) charge_chunk(tree, chunk, account);
        }
}

/* ---- The choice ---- */

/* The position of the first token that is evicted with the leaf's last chunk. */
static int64_t last_chunk_start(const ca_tree *tree, const ca_node *leaf) {
    return ca_max(leaf->start, ca_chunk_of(tree, ca_node_end(leaf) - 1) << tree->layout->log2_c);
}

/* Without what is learnt, it falls with the age alone. */
static double worth_of(const ca_tree *tree, const ca_node *leaf) {
    const uint64_t age = tree->clock - leaf->last_use;
    const bool learned = tree->config.retention == CATTN_RETAIN_LEARNED;
    return learned ? ca_reuse_worth(&tree->reuse, leaf->use_class, age) : 1 / (1 + (double)age);
}

static ca_node *find_oldest(const ca_account *a) {
    ca_node *oldest = NULL;
    for (int k = 0; k < CA_USE_CLASSES; k++) {
        ca_node *leaf = a->evictable[k] ? end_of(a->evictable[k], 0) : NULL;
        if (leaf && (!oldest || before(leaf, oldest))) oldest = leaf;
    }
    return oldest;
}

/* The leaf that an account proposes; NULL: it has none. */
static ca_node *choose_of(const ca_tree *tree, const ca_account *a) {
    ca_node *oldest = find_oldest(a), *least = oldest;
    if (!oldest || tree->config.retention != CATTN_RETAIN_LEARNED) return oldest;
    double least_worth = worth_of(tree, oldest) / MARGIN;
    for (int i = 0; i < 2 * CA_USE_CLASSES; i++) {
        ca_node *leaf = a->evictable[i / 2] ? end_of(a->evictable[i / 2], i % 2) : NULL;
        if (!leaf || leaf == oldest || worth_of(tree, leaf) >= least_worth) continue;
        least = leaf;
        least_worth = worth_of(tree, leaf);
    }
    return least;
}

/* What the worth of an account's leaves counts for. A leaf in a chunk that others cover may be all that it has. */
static double factor_of(const ca_account *a) { return a->weight / (a->n_retained > 0 ? (double)a->n_retained : 1); }

/* Of equal worth, which may be 0, the leaf of the account with the smaller factor goes. */
static ca_node *choose(const ca_tree *tree) {
    ca_node *least = NULL;
    double least_worth = INFINITY, least_factor = INFINITY;
    for (size_t i = 0; i < tree->accounts.n; i++) {
        const ca_account *a = &tree->accounts.at[i];
        ca_node *leaf = choose_of(tree, a);
        if (!leaf) continue;
        const double factor = factor_of(a), worth = worth_of(tree, leaf) * factor;
        if (worth > least_worth || (worth == least_worth && factor >= least_factor)) continue;
        least = leaf;
        least_worth = worth;
        least_factor = factor;
    }
    return least;
}

/* ---- The memory of what was evicted ---- */

/* The chunk that ends with the token of node before position `end`; NULL: none does. */
static ca_chunk *full_chunk(const ca_tree *tree, const ca_node *node, int64_t end) {
    if (ca_slot_of(tree, end) != 0) return NULL;
    return ca_chunk_at(tree->pool, node->chunks[ca_chunk_of(tree, end - 1) - ca_chunk_of(tree, node->start)]);
}

/*
 * The hash (reuse.h) of all tokens up to the end of a leaf. It is a sum over the tokens after the last full chunk whose hash is
 * known from sequences that have left.
 */
static uint32_t hash_to_end(const ca_tree *tree, const ca_node *leaf) {
    const int64_t c = tree->layout->c;
    uint32_t hash = leaf->domain;
    for (const ca_node *node = leaf; node->parent; node = node->parent) {
        for (int64_t end = ca_node_end(node), start; end > node->start; end = start) {
            const ca_chunk *full = full_chunk(tree, node, end);
            if (full && full->prefix != 0) return hash - leaf->domain + full->prefix;
            start = ca_max(node->start, (end - 1) / c * c);
            hash += ca_reuse_hash(node->tokens + (start - node->start), start, end - start);
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
        ca_reuse_note_evicted(&tree->reuse, hash, (uint32_t)tree->clock, now);
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
            ca_chunk *full = end <= n_ready ? full_chunk(tree, node, end) : NULL;
            if (full) {
                full->prefix = hash;
                full->n_uses = (uint16_t)ca_reuse_note(&tree->reuse, hash, (uint32_t)seq->joined, now);
            }
            start = ca_max(node->start, (end - 1) / c * c);
            hash -= ca_reuse_hash(node->tokens + (start - node->start), start, end - start);
        }
    }
    ca_reuse_note_leave(&tree->reuse, now);
}
