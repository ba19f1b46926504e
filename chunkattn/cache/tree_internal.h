/*
 * What the tree's files share.
 *
 * A call that changes the tree goes through four stages, so that it can fail only before it changes anything: it finds what it
 * will do (match.c), allocates nodes (branch.c), secures chunks (budget.c), and then changes the tree.
 */
#ifndef CHUNKATTN_CACHE_TREE_INTERNAL_H
#define CHUNKATTN_CACHE_TREE_INTERNAL_H

#include <assert.h>

#include "chunkattn/base/clock.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/tier/tier.h"
#include "extras.h"
#include "reuse.h"
#include "tree.h"

typedef struct ca_seq_ref {
    ca_seq *seq;        /* NULL if the place is free */
    uint32_t next_free; /* of a free place; UINT32_MAX if it is the last */
    uint32_t serial;    /* sequences that have had the place */
} ca_seq_ref;

/* Consecutive chunks of a path that are being read from the file tier. */
typedef struct ca_restore {
    ca_seq *seq;              /* covers the path up to the end of the last chunk */
    uint32_t id;              /* in the tickets of its reads, together with the index of the chunk */
    int64_t begin;            /* position of the first token, in the middle of a chunk if a node begins there */
    int64_t end;              /* behind the last token that becomes ready: a chunk's end, or two tokens before a prompt's */
    int32_t n_chunks, n_done; /* chunks to read, and those of them whose tokens are ready */
    bool *read;               /* [capacity] whether a chunk has been read */
    int32_t capacity;
} ca_restore;

/* What counts for an account (evict.c). */
typedef struct ca_account {
    ca_node *evictable[CA_USE_CLASSES]; /* treaps of the leaves that no sequence covers; NULL: empty */
    uint64_t n_retained;                /* chunks */
    double weight;
} ca_account;

/* A walk that is suspended (look.c). */
typedef struct ca_walk {
    uint64_t serial;     /* 0: the place is free */
    const ca_node *next; /* reported next; NULL: all after the cursor have gone */
} ca_walk;

struct ca_tree {
    ca_tree_config config;
    const ca_chunk_layout *layout;
    ca_chunk_pool *pool;
    ca_alloc *alloc;
    ca_alloc beside_budget; /* gives the same memory, which does not count: that of accounts */
    ca_tree_counts counts;
    ca_kv_pending commands; /* noted by calls since the last step */
    ca_node *root;
    uint64_t number;                 /* in the ids of its sequences */
    uint64_t n_node_ids, n_versions; /* used so far */
    uint64_t n_rounds;               /* of the counting of superseded chunks */
    uint64_t clock;   /* of ca_node.last_use: advances by 1 when a path is touched, and by the chunks of a prompt that joins */
    ca_seq_ref *seqs; /* [seqs_capacity] running sequences, by the low bits of their ids */
    size_t seqs_capacity;
    uint32_t free_ref;             /* the first free place; UINT32_MAX: none */
    ca_extras extras;              /* of tokens in nodes, and of those of the call in progress */
    ca_reuse reuse;                /* n_sets is 0 if nothing is retained */
    CA_ARRAY(ca_account) accounts; /* up to the largest that was used */
    CA_ARRAY(ca_restore) restores; /* in the order in which they began, so that each comes after those above it */
    uint32_t n_restore_ids;
    double born;                    /* seconds of the clock when the tree was created */
    ca_walk walks[CATTN_MAX_WALKS]; /* by their serials */
    uint64_t n_walks;               /* suspended so far: the last serial */
    uint64_t n_looks;               /* of the counting of covered sequences: ca_node.seen */
    ca_node *held; /* neither it nor its parent is merged, since the call in progress refers to them; NULL: none */
};

static inline int64_t ca_even(int64_t n) { return n & ~(int64_t)1; }

/* The absolute chunk of a position, the number of chunks that positions [0, n) touch, and the slot of a position. */
static inline int64_t ca_chunk_of(const ca_tree *tree, int64_t position) { return position >> tree->layout->log2_c; }
static inline int64_t ca_chunks_for(const ca_tree *tree, int64_t n) {
    return (n + tree->layout->c - 1) >> tree->layout->log2_c;
}
static inline int32_t ca_slot_of(const ca_tree *tree, int64_t position) { return (int32_t)(position & (tree->layout->c - 1)); }

/* Whether node begins in the physical chunk in which its parent ends. */
static inline bool ca_node_shares_first_chunk(const ca_node *node) {
    const ca_node *parent = node->parent;
    return parent->n_chunks > 0 && node->chunks[0] == parent->chunks[parent->n_chunks - 1];
}

/* Whether tokens that no sequence covers are retained. */
static inline bool ca_tree_retains(const ca_tree *tree) {
    return tree->config.sharing != CATTN_PRIVATE && tree->config.retention != CATTN_RETAIN_NONE;
}

/* Tenths of seconds since the tree was created, as coarse as the system's coarse clock. */
static inline uint32_t ca_tree_time(const ca_tree *tree) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    const double age = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec - tree->born;
    return age > 0 ? (uint32_t)(10 * age) : 0; /* the coarse clock may be behind that of `born` */
}

/* A chunk is about to be freed or changed: the tier must not read it, nor write to it, any more. */
static inline void ca_chunk_leave_tier(const ca_tree *tree, ca_chunk_id id) {
    if (tree->config.tier) ca_tier_release(tree->config.tier, id);
}

/* So many more chunks like this one, or fewer, are retained. */
static inline void ca_count_retained(ca_tree *tree, const ca_chunk *chunk, int n) {
    tree->counts.chunks_retained += (uint64_t)n;
    tree->accounts.at[chunk->account].n_retained += (uint64_t)n;
}

/*
 * A node refers to a chunk, or no longer does. With its first reference a chunk is retained, and after its last it is free;
 * covering and uncovering (node.c) do the rest.
 */
static inline void ca_chunk_ref(ca_tree *tree, ca_chunk_id id) {
    ca_chunk *chunk = ca_chunk_at(tree->pool, id);
    if (chunk->refs++ == 0) ca_count_retained(tree, chunk, 1);
}

static inline void ca_chunk_unref(ca_tree *tree, ca_chunk_id id) {
    ca_chunk *chunk = ca_chunk_at(tree->pool, id);
    assert(chunk->refs > chunk->live);
    if (--chunk->refs > 0) return;
    ca_count_retained(tree, chunk, -1);
    ca_chunk_leave_tier(tree, id);
    ca_chunk_pool_put(tree->pool, id);
}

/* Forget the states of a node's tokens after its first n_tokens. */
static inline void ca_node_keep_progress(ca_node *node, int64_t n_tokens) {
    const int64_t coming_to = ca_min(node->n_ready + node->n_coming, n_tokens);
    node->n_ready = ca_min(node->n_ready, n_tokens);
    node->n_claimed = ca_min(node->n_claimed, n_tokens);
    node->n_coming = coming_to - node->n_ready;
}

static inline cattn_status ca_no_memory(cattn_error *error, const char *call) {
    return ca_fail(error, CATTN_ERR_NOMEM, -1, "%s: the allocator gave no memory", call);
}

/* ---- evict.c: the leaves that can be evicted, and the choice among them ---- */

/* Add node to these leaves or remove it, as its state requires; or remove it because it is about to be freed. */
void ca_evict_update(ca_tree *tree, ca_node *node);
void ca_evict_forget(ca_tree *tree, ca_node *node);

/* Learn from a sequence that is about to leave, n_ready of whose tokens are ready: note the uses of the chunks of its path. */
void ca_evict_note_leave(ca_tree *tree, const ca_seq *seq, int64_t n_ready);

/*
 * The chunks of the path from node up to, but not including, `stop` count for an account from now on. A last chunk that a child
 * continues is the child's.
 */
void ca_evict_charge(ca_tree *tree, ca_node *node, const ca_node *stop, uint16_t account);

/*
 * Choose the leaf that is worth least, and note that its last chunk is evicted, which the caller does then: the first *n_left
 * tokens of the leaf stay. NULL if there is no evictable leaf.
 */
ca_node *ca_evict_choose(ca_tree *tree, int64_t *n_left);

/* ---- node.c: one node, its children and its chunks ---- */

/*
 * A node for tokens [start, start + n_tokens), not linked and not covered. Its arrays are large enough for these tokens and for
 * children_capacity children, and are empty. NULL without memory.
 */
ca_node *ca_node_new(ca_tree *tree, int64_t start, int64_t n_tokens, size_t children_capacity);

/* Free the memory of a node that refers to no chunk. NULL is ignored. */
void ca_node_free(ca_tree *tree, ca_node *node);

/*
 * Make room for n_tokens tokens in all, for one more child, or for what child has and has room for. Returns 0, or -1 without
 * memory. The functions with `growth` return the bytes that this would allocate. Once a merged child is freed, the merge has
 * allocated no more than it has freed.
 */
int ca_node_reserve_tokens(ca_tree *tree, ca_node *node, int64_t n_tokens);
int ca_node_reserve_child(ca_tree *tree, ca_node *node);
int ca_node_reserve_merge(ca_tree *tree, ca_node *node, const ca_node *child);
size_t ca_node_growth(const ca_tree *tree, const ca_node *node, int64_t n_tokens);
size_t ca_node_child_growth(const ca_node *node);

/* Index of the first child that is not before (domain, first, second, id). `second` is -1 if there is no second token. */
size_t ca_node_lower_bound(const ca_node *node, uint32_t domain, int32_t first, int32_t second, uint64_t id);

/* Index of a node among its siblings. */
size_t ca_node_index(const ca_node *child);

/* A node is about to be freed or moved: walks (look.c) that would go on with it go on with the node after `before`. */
void ca_walks_skip(ca_tree *tree, const ca_node *node, const ca_node *before);

/* Link child at its place among the children of parent, which must have room for it. */
void ca_node_link_child(ca_node *parent, ca_node *child);

/* Add a chunk after node's last, for which there must be room, or remove the last one. */
void ca_node_push_chunk(ca_tree *tree, ca_node *node, ca_chunk_id id);
void ca_node_pop_chunk(ca_tree *tree, ca_node *node);

/* One sequence more or fewer covers the node. Its chunks become live with the first, and retained after the last. */
void ca_node_cover(ca_tree *tree, ca_node *node);
void ca_node_uncover(ca_tree *tree, ca_node *node);

/*
 * Whether a child at node's end may use the rest of node's last chunk: no other node does, and no sequence but `appender` ends
 * at node. The appender is about to move to that child; it may be NULL.
 */
bool ca_node_tail_is_free(const ca_tree *tree, const ca_node *node, const ca_seq *appender);

/* Add tokens after a leaf's last, with chunks from the pool, which must have them. The arrays must be large enough. */
void ca_node_extend(ca_tree *tree, ca_node *node, const int32_t *tokens, int64_t n_tokens);

/* Remove a leaf's tokens after its first n_tokens, with their chunks. */
void ca_node_trim(ca_tree *tree, ca_node *node, int64_t n_tokens);

/* Link a new leaf, which one sequence covers, below parent, and add its first tokens. Parent must have room for a child. */
void ca_node_add_leaf(ca_tree *tree, ca_node *parent, ca_node *leaf, const int32_t *tokens, int64_t n_tokens,
                      const ca_seq *appender);

/* Unlink and free a leaf, which is not evictable any more, with its chunks. */
void ca_node_remove(ca_tree *tree, ca_node *leaf);

/*
 * Note that something on which plans depend has changed in node's subtree, by a new version of the child of the root above it.
 * Returns that child; for the tree's root, NULL.
 */
ca_node *ca_node_changed(ca_tree *tree, ca_node *node);

/* ---- seq.c: sequences, and reservations of chunks ---- */

/* A number for a new tree, which other trees of the process do not have. */
uint64_t ca_tree_new_number(void);

/* A sequence with an id, without tokens, not linked to a node. NULL without memory. */
ca_seq *ca_seq_new(ca_tree *tree);

/* Free a sequence that is not linked and has no chunks reserved. NULL is ignored. */
void ca_seq_free(ca_tree *tree, ca_seq *seq);

/* Let seq end at node, or no longer end at its leaf. */
void ca_seq_link(ca_tree *tree, ca_seq *seq, ca_node *node);
void ca_seq_unlink(ca_tree *tree, ca_seq *seq);

/* Set the length, with the counters that depend on it. */
void ca_seq_resize(ca_tree *tree, ca_seq *seq, int64_t n_tokens);

/*
 * The name of a chunk with these ids [c] in the file tier: its tokens [c], and the key of its parent, which has the key
 * `before` of the chunk before it, and the extra hashes, if there are any. And the key of the chunk.
 */
ca_tier_key ca_tier_name_of(const ca_tree *tree, ca_tier_key before, const int32_t *ids, int32_t *tokens);
ca_tier_key ca_tier_key_after(const ca_tree *tree, ca_tier_key before, const int32_t *ids);

/* Chunks to reserve for a sequence of n_tokens up to position reserve_to. owns_tail: it may use the rest of its last chunk. */
int64_t ca_reservation(const ca_tree *tree, int64_t n_tokens, int64_t reserve_to, bool owns_tail);

/* Update the reservations of the sequences that end at node; or end the reservation of one that is about to leave its leaf. */
void ca_reservation_update(ca_tree *tree, ca_node *node);
void ca_reservation_end(ca_tree *tree, ca_seq *seq);

/* ---- split.c: cutting a node in two, and merging two ---- */

/*
 * Cut node after its first n_tokens (even, > 0, fewer than it has). `lower`, new and with room for two children, gets the rest:
 *
 *   [parent] - [node 0..9 | x0 x1 x2] - ...   =>   [parent] - [node 0..5 | x0 x1] - [lower 6..9 | x1 x2] - ...
 */
void ca_node_split(ca_tree *tree, ca_node *node, int64_t n_tokens, ca_node *lower);

/*
 * The reverse: merge node with its only child, if the same sequences cover both and the child either continues node's last
 * chunk or begins a chunk. Without memory they stay apart, which only the tree's shape shows.
 */
void ca_node_try_merge(ca_tree *tree, ca_node *node);

/* Hold node and its parent, to which the call refers: they are not merged before ca_node_end_hold, which then tries it. */
void ca_node_hold(ca_tree *tree, ca_node *node);
void ca_node_end_hold(ca_tree *tree);

/* Update reservations, evictable leaves, version and shape of a node after a child of it has gone or a sequence no longer ends
 * there. */
void ca_node_settle(ca_tree *tree, ca_node *node);

/* ---- match.c ---- */

typedef struct ca_match {
    ca_node *node;         /* the deepest node matched; the tree's root if none is */
    int64_t n_node_tokens; /* of that node's tokens, those matched */
    int64_t n_tokens;      /* matched in all */
    int64_t n_ready;       /* of these, the first that are ready */
} ca_match;

/* The longest match of at most n_tokens (even) tokens; among equals the one with more ready tokens, then the oldest. */
ca_match ca_tree_match(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain);

/* A node's tokens elsewhere below the same parent; at most one of the two is not NULL. */
typedef struct ca_twin {
    ca_node *end;       /* where a path with all tokens ends; they are ready there */
    ca_node *contained; /* a leaf that no sequence covers, whose tokens are the first ones of the node's */
} ca_twin;

/* Look for the first n_tokens (even, > 0) of node's tokens below its parent, but not in node. */
ca_twin ca_node_find_twin(const ca_node *node, int64_t n_tokens);

/* ---- path.c: the path from a node to the root ---- */

/* Mark the path from node to the root as just used. */
void ca_path_touch(ca_tree *tree, ca_node *node);

/* One sequence more covers the path from node to the root. */
void ca_path_cover(ca_tree *tree, ca_node *node);

/*
 * One sequence fewer covers the path from node up to, but not including, `stop`. What no sequence covers keeps its ready tokens
 * up to position retain_to; the rest is removed.
 */
void ca_path_release(ca_tree *tree, ca_node *node, ca_node *stop, int64_t retain_to);

/* The position of the first token of the path to leaf that is stored in the chunk in which the path has position `last`. */
int64_t ca_path_own_begin(const ca_tree *tree, const ca_node *leaf, int64_t last);

/* ---- branch.c: the place where a leaf is added ---- */

/*
 * A leaf that will be added after the first n_upper (even) tokens of `at`, with the memory that this takes. If `at` is longer,
 * it will be cut there.
 */
typedef struct ca_branch {
    ca_node *at;
    int64_t n_upper;
    ca_node *lower; /* gets the rest of `at`; NULL if `at` is not cut */
    ca_node *leaf;  /* NULL if no leaf is added */
} ca_branch;

/*
 * Fill *branch for the place n_upper tokens into `at`, and allocate a leaf for n_tokens tokens (0: no leaf). Returns 0, or -1
 * without memory.
 */
int ca_branch_prepare(ca_tree *tree, ca_branch *branch, ca_node *at, int64_t n_upper, int64_t n_tokens);

/* Free the nodes that were prepared and are not yet part of the tree. */
void ca_branch_abandon(ca_tree *tree, ca_branch *branch);

/* Make room in the tree's arrays for the prepared nodes; the room stays if the call fails later. 0, or -1 without memory. */
int ca_branch_reserve(ca_tree *tree, const ca_branch *branch);
size_t ca_branch_growth(const ca_branch *branch); /* bytes that it would allocate */

/* Cut branch->at if needed. It is then the leaf's parent. */
void ca_branch_cut(ca_tree *tree, ca_branch *branch);

/* Chunks that the leaf will take from the pool for n_tokens tokens. */
int64_t ca_branch_chunks(const ca_tree *tree, const ca_branch *branch, int64_t n_tokens, const ca_seq *appender);

/* Add the branch's leaf behind its parent for a sequence of this domain, with a copy of the first token of `from`. */
void ca_branch_add_copy(ca_tree *tree, ca_branch *branch, uint32_t domain, const ca_node *from, const ca_seq *appender);

/* Tokens for which a new leaf gets room beyond its own, so that it grows without allocating for a while. */
int64_t ca_leaf_slack(const ca_tree *tree, int64_t n_reserved);

/* ---- budget.c: chunks and memory for a call ---- */

/* What a call needs. */
typedef struct ca_demand {
    const char *call;   /* its name, for messages */
    int64_t n_chunks;   /* chunks taken from the pool now */
    int64_t n_reserved; /* chunks reserved in addition; may be negative */
    int64_t n_revived;  /* retained chunks that become live */
    int64_t n_released; /* live chunks that become free or retained before any is taken */
    ca_branch *branch;  /* will be added; NULL: none */
    ca_node *grows;     /* a node that must have room for grows_to tokens; NULL: none */
    int64_t grows_to;
    int64_t n_copies; /* of K/V, that will be noted */
    bool unreserved;  /* no reservation covers the call's metadata, which must be in the budget even if it takes no chunk */
    size_t headroom;  /* bytes that must stay for other memory, beside the chunks that are live or reserved after the call */
} ca_demand;

/*
 * Check that the budget holds the demand, commit slabs for it, and make room for the branch, the copies and in the node that
 * grows. Called when the call has allocated its other memory; from here on it cannot fail. Errors are those of the public
 * calls; they abandon the branch, and leave the tree unchanged. *n_needed gets the number of chunks that the call takes or that
 * are reserved after it.
 */
cattn_status ca_budget_secure(ca_tree *tree, const ca_demand *demand, int64_t *n_needed, cattn_error *error);

/* As ca_chunk_pool_trim, after all pending K/V commands, which may read from the memory that it returns to the system. */
size_t ca_budget_trim(ca_tree *tree, size_t bytes, size_t n_keep);

/*
 * Evict until n_chunks chunks are free, which must have been secured, and return slabs that exceed the budget. Called before
 * the call takes a chunk, which might come from the slab that must be returned, and when what it shares is covered. n_needed is
 * from ca_budget_secure.
 */
void ca_budget_provide(ca_tree *tree, int64_t n_chunks, int64_t n_needed);

/* Evict the last chunk of the leaf that is worth least. False if there is no evictable leaf. */
bool ca_budget_evict_one(ca_tree *tree);

/* ---- fork.c ---- */

/*
 * Let seq, which is new, cover the first n_tokens tokens of `of`, an even number or all, and end there. Its reserve_to has been
 * set. Errors are those of ca_budget_secure, and leave seq as it was.
 */
cattn_status ca_seq_enter(ca_tree *tree, const char *call, const ca_seq *of, int64_t n_tokens, ca_seq *seq, cattn_error *error);

#endif
