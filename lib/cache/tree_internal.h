/*
 * What the tree's files share.
 *
 * A call that changes the tree goes through four stages, so that it can fail only before it changes anything:
 * find what it will do (match.c), allocate nodes for it (node.c), secure chunks (budget.c), and then change the tree.
 */
#ifndef LIB_CACHE_TREE_INTERNAL_H
#define LIB_CACHE_TREE_INTERNAL_H

#include <assert.h>

#include "lib/error.h"
#include "tree.h"

typedef struct ca_seq_slot {
    ca_seq *seq;      /* NULL: free */
    size_t next_free; /* SIZE_MAX: last */
} ca_seq_slot;

struct ca_tree {
    ca_tree_config config;
    const ca_layout *layout;
    ca_chunk_pool *pool;
    ca_alloc *alloc;
    ca_tree_counts counts;
    ca_kv_pending commands; /* recorded by calls since the last step */
    ca_node *root;
    uint64_t n_node_ids, n_seq_ids, n_versions; /* handed out so far */
    uint64_t clock;                             /* of last_use */
    ca_seq_slot *slots;                         /* running sequences by the low bits of their id */
    size_t slots_capacity, free_slot;
    ca_node **heap; /* evictable leaves, least recently used first */
    size_t heap_length, heap_capacity;
    ca_node *pinned; /* takes part in no merge, nor does its parent, since a call in progress holds them */
};

static inline int64_t ca_even(int64_t n) { return n & ~(int64_t)1; }

/* Absolute chunk of a position; chunks that positions [0, n) touch; slot of a position. */
static inline int64_t ca_chunk_of(const ca_tree *tree, int64_t position) { return position >> tree->layout->log2_c; }
static inline int64_t ca_chunks_for(const ca_tree *tree, int64_t n) {
    return (n + tree->layout->c - 1) >> tree->layout->log2_c;
}
static inline int32_t ca_slot_of(const ca_tree *tree, int64_t position) { return (int32_t)(position & (tree->layout->c - 1)); }

/* Whether node goes on in the physical chunk that its parent ends in. */
static inline bool ca_node_shares_first_chunk(const ca_node *node) {
    const ca_node *parent = node->parent;
    return parent->n_chunks > 0 && node->chunks[0] == parent->chunks[parent->n_chunks - 1];
}

/* ---- node.c: one node, its children and its chunks ---- */

/*
 * An unlinked, uncovered node for tokens [start, start + n_tokens), all arrays large enough, still without tokens and
 * chunks. children_capacity may be 0. NULL without memory.
 */
ca_node *ca_node_new(ca_tree *tree, int64_t start, int64_t n_tokens, size_t children_capacity);

/* Free the memory of a node that refers to no chunk. NULL is ignored. */
void ca_node_free(ca_tree *tree, ca_node *node);

/* Make room for n_tokens tokens in all and for one child more. 0, or -1 without memory. `growth`: bytes that it would take. */
int ca_node_reserve_tokens(ca_tree *tree, ca_node *node, int64_t n_tokens);
int ca_node_reserve_child(ca_tree *tree, ca_node *node);
size_t ca_node_growth(const ca_tree *tree, const ca_node *node, int64_t n_tokens);
size_t ca_node_child_growth(const ca_node *node);

/* Index of the first child that is not before (domain, first pair, id). `second` is -1 where there is no second token. */
size_t ca_node_lower_bound(const ca_node *node, uint32_t domain, int32_t first, int32_t second, uint64_t id);
size_t ca_node_index(const ca_node *child);

/*
 * Whether a child at node's end may go on in node's last chunk: nobody else has, and no sequence but `appender` (which is
 * about to move to that child; may be NULL) ends at node.
 */
bool ca_node_tail_is_free(const ca_tree *tree, const ca_node *node, const ca_seq *appender);

/* Add tokens behind a leaf's last, taking chunks from the pool, which must have them. Arrays must be large enough. */
void ca_node_extend(ca_tree *tree, ca_node *node, const int32_t *tokens, int64_t n_tokens);

/* Keep the first n_tokens of a leaf's tokens. */
void ca_node_trim(ca_tree *tree, ca_node *node, int64_t n_tokens);

/* Link a new leaf that one sequence covers below parent, with its first tokens. Needs room for a child in parent. */
void ca_node_add_leaf(ca_tree *tree, ca_node *parent, ca_node *leaf, const int32_t *tokens, int64_t n_tokens,
                      const ca_seq *appender);

/* Unlink and free a leaf, which gives its chunks back. */
void ca_node_remove(ca_tree *tree, ca_node *leaf);

/* Link child at its place among the children of parent, which has room for it. */
void ca_node_link_child(ca_node *parent, ca_node *child);

/* Add a chunk behind node's last, for which it has room, or remove the last one. */
void ca_node_push_chunk(ca_tree *tree, ca_node *node, ca_chunk_id id);
void ca_node_pop_chunk(ca_tree *tree, ca_node *node);

/* One sequence more or fewer covers the node: its chunks become live or retained. */
void ca_node_cover(ca_tree *tree, ca_node *node);
void ca_node_uncover(ca_tree *tree, ca_node *node);

/* Something that plans depend on changed in the subtree of node's root, which is returned; the tree's own root: nothing. */
ca_node *ca_node_changed(ca_tree *tree, ca_node *node);

/* ---- split.c: cutting and merging nodes ---- */

/*
 * Cut node behind its first n_tokens (even, > 0, fewer than it has). `lower`, new with room for two children, gets the rest:
 *
 *   [parent] - [node 0..9 | x0 x1 x2] - ...   =>   [parent] - [node 0..5 | x0 x1] - [lower 6..9 | x1 x2] - ...
 */
void ca_node_split(ca_tree *tree, ca_node *node, int64_t n_tokens, ca_node *lower);

/* The reverse, where the only child of node is covered by the same sequences and goes on in its chunk or at a border. */
void ca_node_try_merge(ca_tree *tree, ca_node *node);

/* Keep node and its parent, which the call goes on with, out of merges; then make up for those. */
void ca_node_pin(ca_tree *tree, ca_node *node);
void ca_node_unpin(ca_tree *tree);

/* Bring node up to date after a child of it has gone or a sequence has ceased to end there: promises, shape, heap. */
void ca_node_settle(ca_tree *tree, ca_node *node);

/* ---- match.c ---- */

typedef struct ca_match {
    ca_node *node;         /* the deepest one matched; the tree's root: none */
    int64_t n_node_tokens; /* of its tokens, those matched */
    int64_t n_tokens;      /* matched in all */
    int64_t n_ready;       /* of those, leading tokens whose K/V exist */
} ca_match;

/* The longest match of at most n_tokens (even) tokens; among equals the one with more ready tokens, then the oldest. */
ca_match ca_tree_match(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain);

/* ---- seq.c: sequences ---- */

/* A sequence of no tokens with its id, not yet linked to a node. NULL without memory. */
ca_seq *ca_seq_new(ca_tree *tree);
void ca_seq_free(ca_tree *tree, ca_seq *seq);

/* Start and cease to end at a node. */
void ca_seq_link(ca_tree *tree, ca_seq *seq, ca_node *node);
void ca_seq_unlink(ca_tree *tree, ca_seq *seq);

/* Set the length, with the counters that depend on it. */
void ca_seq_resize(ca_tree *tree, ca_seq *seq, int64_t n_tokens);

/* ---- evict.c: the heap of evictable leaves ---- */

/* Make sure that as many leaves as the tree may soon have fit: cannot fail later. 0, or -1 without memory. */
int ca_evict_reserve(ca_tree *tree, size_t n_new_nodes);
size_t ca_evict_growth(const ca_tree *tree, size_t n_new_nodes); /* bytes that it would take */

/* Put node in the heap or take it out, according to its state; take it out since it is about to go. */
void ca_evict_update(ca_tree *tree, ca_node *node);
void ca_evict_forget(ca_tree *tree, ca_node *node);

/* Evict the last chunk of the least recently used leaf. False when there is none. */
bool ca_evict_one(ca_tree *tree);

/* ---- branch.c: where a path leaves the others' ---- */

/*
 * A change at a place in the tree, with the memory it takes: behind the first n_kept (even) tokens of `at` a leaf is added,
 * for which `at` is cut if it is longer.
 */
typedef struct ca_branch {
    ca_node *at;
    int64_t n_kept;
    ca_node *lower; /* for the rest of `at`; NULL: is not cut */
    ca_node *leaf;  /* NULL: none */
} ca_branch;

/* Find the place n_kept tokens into `at`, and allocate a leaf for n_tokens tokens (0: none). -1 without memory. */
int ca_branch_prepare(ca_tree *tree, ca_branch *branch, ca_node *at, int64_t n_kept, int64_t n_tokens);
void ca_branch_abandon(ca_tree *tree, ca_branch *branch);

/* Make room in the tree for what is prepared, which stays with the tree. 0, or -1 without memory. */
int ca_branch_reserve(ca_tree *tree, const ca_branch *branch);
size_t ca_branch_growth(const ca_tree *tree, const ca_branch *branch); /* bytes that it would take */

/* Cut; branch->at is then where the leaf belongs. */
void ca_branch_cut(ca_tree *tree, ca_branch *branch);

/* Chunks that the leaf will take for n_tokens tokens. */
int64_t ca_branch_chunks(const ca_tree *tree, const ca_branch *branch, int64_t n_tokens, const ca_seq *appender);

/* Tokens for which a new leaf gets room beyond its own, so that it grows without allocating for a while. */
int64_t ca_leaf_slack(const ca_tree *tree, int64_t n_reserved);

/* ---- path.c ---- */

/* Mark the path from node to the root as just used. */
void ca_path_touch(ca_tree *tree, ca_node *node);

/* One sequence more covers the path from node to the root. */
void ca_path_cover(ca_tree *tree, ca_node *node);

/*
 * One sequence fewer covers the path from node up to below `stop`. What nobody covers keeps its ready tokens up to position
 * keep_to, the rest goes.
 */
void ca_path_release(ca_tree *tree, ca_node *node, ca_node *stop, int64_t keep_to);

/* ---- budget.c: chunks and memory for a call, and reservations of chunks ---- */

/* What a call needs. */
typedef struct ca_demand {
    const char *call;        /* its name for messages */
    int64_t n_chunks;        /* taken now */
    int64_t n_reserved;      /* promised, now more than before */
    int64_t n_revived;       /* retained chunks that become live */
    int64_t n_released;      /* live chunks that become free or retained before any is taken */
    const ca_branch *branch; /* that is to be added; NULL: none */
    bool adds_seq;           /* whose metadata must be in the budget though it takes no chunk */
    size_t n_bytes;          /* of metadata yet to be taken that no promise covers, the branch's left out */
} ca_demand;

/*
 * Check and commit, after the call's own memory but n_bytes has been allocated, and make room for the branch: evictions then
 * give what is missing. Errors as the public calls; the tree is no larger then.
 */
cattn_status ca_budget_secure(ca_tree *tree, const ca_demand *demand, cattn_error *error);

/* ca_chunk_pool_trim, behind all pending K/V commands: they may read what it returns to the system. */
size_t ca_budget_trim(ca_tree *tree, size_t bytes, size_t n_keep);

/* Evict until n_chunks secured chunks are free. */
void ca_budget_evict_for(ca_tree *tree, int64_t n_chunks);

/* Close a call that changed the tree: give back what exceeds the budget. */
void ca_budget_restore(ca_tree *tree);

/* Chunks to promise to a sequence of n_tokens, and whether it can go on in the tail of its last chunk. */
int64_t ca_reservation(const ca_tree *tree, int64_t n_tokens, int64_t reserve_to, bool owns_tail);

/* Bring the promises to the sequences that end at node up to date. */
void ca_reservation_update(ca_tree *tree, ca_node *node);

static inline cattn_status ca_no_memory(cattn_error *error, const char *call) {
    return ca_fail(error, CATTN_ERR_NOMEM, -1, "%s: the allocator gave no memory", call);
}

#endif
