/*
 * The prefix tree over tokens: which chunks hold the K/V of which tokens of which sequences.
 *
 * A node is a run of tokens that the same sequences cover. It starts at an even position; one with children ends at an even
 * position; one that ends at an odd length has no children. Children of a node are sorted by (domain, first pair of tokens);
 * siblings may be twins, since append does not look for one. The children of `root`, which is empty, are the roots of the
 * forest; each belongs to one domain.
 *
 *   join S1 = "AAAA AAAA BB"        join S2 = "AAAA AACC"   (c = 4)
 *    [A: 0..9 | x0 x1 x2]            [A: 0..5 | x0 x1]           covers S1 S2
 *                                      |-- [6..9 | x1 x2]        covers S1   (x1 slots 2..3, x2 slots 0..1)
 *                                      '-- [6..7 | y0]           covers S2   (y0 slots 2..3; slots 0..1: copied from x1)
 *
 * Splitting copies no K/V: parent and child refer to the same chunk, each to its own slots. A chunk's unused tail belongs to
 * the node that filled the slot before it; a child may take it over only where no sequence ends.
 *
 * But a branch copies: a node that begins inside a chunk of its own gets the slots before from its parent's, as far as rows of
 * its sequences see them, in the step that computes these rows. So a row finds all that it sees of an absolute chunk in one
 * physical chunk: that of the lowest node of its sequence's path that has tokens there.
 *
 * A match ends at an even position before the sequence's last token, so there is always a row to compute.
 *
 * Ready and claimed: the first n_ready tokens of a node have K/V, the first n_claimed are ready or being computed in the open
 * step. A node with n_claimed > 0 has fully claimed ancestors, likewise for ready.
 *
 * Nodes that no sequence covers keep only ready tokens. They are evicted leaf-first, least recently used first.
 *
 * Every call that fails leaves the tree as it was.
 */
#ifndef LIB_CACHE_TREE_H
#define LIB_CACHE_TREE_H

#include <stdbool.h>

#include "base/alloc.h"
#include "chunk_pool.h"
#include "chunkattn.h"
#include "kv_commands.h"
#include "layout.h"

typedef struct ca_node ca_node;
typedef struct ca_seq ca_seq;
typedef struct ca_tree ca_tree;

static inline int64_t ca_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ca_max(int64_t a, int64_t b) { return a > b ? a : b; }

struct ca_node {
    /* One cache line with all that a step looks at for each sequence: between two steps it has left the caches. */
    ca_node *parent; /* NULL for the tree's root */
    int64_t start;   /* position of the first token, even */
    int64_t n_tokens;
    int64_t n_ready, n_claimed;
    int32_t *tokens;     /* [n_tokens] */
    ca_chunk_id *chunks; /* [n_chunks]: chunks[i] holds positions of absolute chunk start / c + i */
    size_t n_chunks;
    /* And one with the rest of what append and plan need. */
    size_t tokens_capacity, chunks_capacity;
    ca_node **children; /* [n_children], sorted */
    size_t n_children;
    ca_seq *ending;   /* sequences that end here, in order of arrival, linked by ca_seq.next */
    int64_t n_seqs;   /* sequences covering it: ending here or below */
    uint64_t version; /* on a child of the root: changes with everything in its subtree that a plan depends on */
    uint64_t id;
    size_t children_capacity;
    uint64_t last_use; /* tree clock when last covered by a new or leaving sequence */
    size_t heap_index; /* in the tree's heap of evictable leaves, SIZE_MAX when not in it */
    size_t plan_index; /* on a child of the root: the planner's index of it (plan.c); the tree does not read it */
    uint32_t domain;
};

static inline int64_t ca_node_end(const ca_node *node) { return node->start + node->n_tokens; }

struct ca_seq {
    cattn_seq id;
    ca_node *leaf; /* where it ends */
    ca_node *root; /* of leaf's path, the child of the tree's root */
    ca_seq *next;  /* next one ending at leaf */
    int64_t n_tokens;
    int64_t reserve_to; /* room is promised up to this position; <= n_tokens: none */
    int64_t n_reserved; /* chunks that promise still needs */
    int64_t n_found;    /* leading tokens that others put in the tree: a truncation leaves those to retention */
    uint32_t domain;
    int32_t step_entry; /* while a step's entries are looked up or planned: which is its; -1: none, and at all other times */
};

typedef struct ca_tree_config {
    cattn_sharing sharing;
    cattn_retention retention;
    ca_kv_executor executor; /* of commands that cannot wait for a step; called within the tree's calls */
} ca_tree_config;

/* Counters for cattn_stats that the tree keeps. */
typedef struct ca_tree_counts {
    uint64_t chunks_live, chunks_live_peak, chunks_retained, chunks_reserved, chunks_unshared, chunks_unshared_peak;
    uint64_t tokens_stored, tokens_referenced, tokens_joined, tokens_matched, tokens_evicted, n_seqs, n_nodes;
} ca_tree_counts;

/* pool, layout and alloc are borrowed until destroy. */
cattn_status ca_tree_create(ca_tree **tree, const ca_tree_config *config, const ca_layout *layout, ca_chunk_pool *pool,
                            ca_alloc *alloc);
void ca_tree_destroy(ca_tree **tree);

ca_node *ca_tree_root(ca_tree *tree);

/* The node after n in depth-first order, NULL behind the last; *depth goes along. */
const ca_node *ca_tree_next(const ca_node *n, int32_t *depth);

const ca_tree_counts *ca_tree_get_counts(const ca_tree *tree);

/* Bring the peaks up to date: what has joined takes part in a step now, and is not tried only. */
void ca_tree_note_peaks(ca_tree *tree);

/* Changes whenever the version of some child of the root does, or one comes or goes. */
uint64_t ca_tree_version(const ca_tree *tree);

/* The running sequence of that id, NULL if there is none. */
ca_seq *ca_tree_find(const ca_tree *tree, cattn_seq id);

/* These are the public calls of the same name without argument checks; error may be NULL. Not while rows are claimed. */
cattn_status ca_tree_join(ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain, int64_t reserve_tokens,
                          cattn_seq *seq, cattn_join_result *result, cattn_error *error);
cattn_status ca_tree_append(ca_tree *tree, ca_seq *seq, const int32_t *tokens, int64_t n_tokens, cattn_error *error);
cattn_status ca_tree_truncate(ca_tree *tree, ca_seq *seq, int64_t n_tokens, cattn_error *error);
cattn_status ca_tree_fork(ca_tree *tree, ca_seq *seq, int64_t reserve_tokens, cattn_seq *fork, cattn_error *error);
cattn_status ca_tree_reserve(ca_tree *tree, ca_seq *seq, int64_t n_tokens, cattn_error *error);
void ca_tree_leave(ca_tree *tree, ca_seq *seq);

/* As cattn_cache_match. */
cattn_join_result ca_tree_find_prefix(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain);

/* Copy tokens [first, first + n) of seq to `tokens`. */
void ca_seq_tokens(const ca_seq *seq, int64_t first, int64_t n, int32_t *tokens);

/* Evict all that no sequence covers, and return its memory to the system as far as reservations allow. */
void ca_tree_drop_retained(ca_tree *tree);

/*
 * Evict until at least `bytes` bytes (> 0) of slabs have been given back, empty ones first. For workspace growth; the tree's
 * own calls make their room themselves. False when nothing evictable is left or the room is promised.
 */
bool ca_tree_make_room(ca_tree *tree, size_t bytes);

/* False: the bytes could not be had though all were evicted that can be. They may be missing even so, by how chunks lie in
 * slabs. */
bool ca_tree_may_have_room(const ca_tree *tree, size_t bytes);

/* ---- fit.c: what a request needs of an empty tree ---- */

/* n_seqs sequences that continue one prompt of n_tokens tokens by reserve_tokens each. */
typedef struct ca_fit {
    int64_t n_tokens, n_seqs, reserve_tokens;
} ca_fit;

/* Chunks that the request takes and reserves at most, in the tree's sharing mode. */
int64_t ca_fit_chunks(const ca_tree *tree, const ca_fit *fit);

/* Whether the budget holds the request and its metadata beside other_bytes of memory that is no chunk. */
bool ca_fit_holds(const ca_tree *tree, const ca_fit *fit, uint64_t other_bytes);

/* The largest reserve_tokens that fits; -1: not even 0 does. */
int64_t ca_fit_max_reserve(const ca_tree *tree, const ca_fit *fit, uint64_t other_bytes);

/*
 * ---- For steps: none of these fails or allocates ----
 *
 * They take the node where a sequence ends, so that a step need not load the sequence itself into the caches.
 */

/* Tokens at the beginning of the path to leaf that are ready, and those that are ready or claimed. */
int64_t ca_path_n_ready(const ca_node *leaf);
int64_t ca_path_n_claimed(const ca_node *leaf);

/*
 * Claim up to max_rows tokens of the path to leaf, the first of them at position ca_path_n_claimed. Returns the number of
 * tokens claimed.
 */
int64_t ca_path_claim(ca_node *leaf, int64_t max_rows);

/* Make all claimed tokens of the path to leaf ready, or unclaimed again. */
void ca_path_commit(ca_node *leaf);
void ca_path_unclaim(ca_node *leaf);

/* K/V commands that calls have recorded since the last step. ca_kv_take moves them to a step. */
ca_kv_pending *ca_tree_pending(ca_tree *tree);

/*
 * The copies of a branch's first slots that are needed before rows [first, last] of a sequence that ends at leaf can attend,
 * beyond those that ca_chunk.n_copied says have been made. Returns how many. Unless `end` is NULL they are written in front of
 * it in the order in which they must be made, and n_copied is brought up to date; ca_path_undo_branch_copies takes that back.
 */
int32_t ca_path_branch_copies(const ca_tree *tree, const ca_node *leaf, int64_t first, int64_t last, ca_kv_command *end);
void ca_path_undo_branch_copies(const ca_tree *tree, const ca_kv_commands *copies);

/* The chunk that holds a position of the path to leaf. */
ca_chunk_id ca_path_chunk(const ca_tree *tree, const ca_node *leaf, int64_t position);

#endif
