/*
 * The prefix tree over tokens, which says which chunks hold the K/V of which tokens of which sequences.
 *
 * A node is a run of tokens that the same sequences cover. It begins at an even position. It ends at an even position if it has
 * children; a node that ends at an odd position has none. The children of a node are sorted by (domain, first pair of tokens,
 * id). Several may begin with the same pair (twins), since append does not search for equal tokens. The children of `root`,
 * which has no tokens, are the roots of the forest, and each belongs to one domain.
 *
 *   join S1 = "AAAA AAAA BB"        join S2 = "AAAA AACC"   (c = 4)
 *    [A: 0..9 | x0 x1 x2]            [A: 0..5 | x0 x1]           covers S1 S2
 *                                      |-- [6..9 | x1 x2]        covers S1   (x1 slots 2..3, x2 slots 0..1)
 *                                      '-- [6..7 | y0]           covers S2   (y0 slots 2..3; slots 0..1: copied from x1)
 *
 * A split copies no K/V: parent and child refer to the same chunk, each to its own slots. The unused slots at the end of a
 * chunk belong to the node that filled the slot before them. A child may use them only if no sequence ends at that node.
 *
 * A branch does copy: if a node begins inside a chunk of its own, the slots before its first token are copied from its parent's
 * chunk, as far as rows of its sequences see them, in the step that computes these rows. Hence a row finds everything that it
 * sees of an absolute chunk in one physical chunk: that of the lowest node of its sequence's path that has tokens there.
 *
 * A match ends at an even position before the sequence's last token, so at least one row is left to compute.
 *
 * Ready and claimed: the first n_ready tokens of a node have K/V; the first n_claimed are ready or are being computed in the
 * open step. If a node has claimed tokens, all tokens of its ancestors are claimed, and likewise for ready tokens.
 *
 * On the way: n_coming tokens behind the ready ones are being read from the file tier (chunkattn/tier/tier.h). No step claims
 * them. If a node has tokens on the way, all tokens of its ancestors are ready or on the way. A restore reads them (restore.c).
 *
 * A node that no sequence covers keeps only ready tokens. Such nodes are evicted leaves first (evict.c).
 *
 * A call that fails leaves the tree as it was. One thread at a time may use a tree.
 *
 * The files of this folder, from the lowest up. A file calls only those that stand before it here (scripts/check_floors.py).
 *
 *   chunks      layout.c chunk_layout.c chunk_pool.c kv_commands.c
 *   tokens      extras.c
 *   retention   reuse.c evict.c
 *   nodes       node.c seq.c split.c match.c path.c
 *   budget      branch.c budget.c
 *   calls       join.c append.c fork.c truncate.c restore.c write_behind.c import.c
 *   the tree    fit.c look.c explain.c tree.c
 *   the plan    section.c walk.c tasks.c plan.c
 */
#ifndef CHUNKATTN_CACHE_TREE_H
#define CHUNKATTN_CACHE_TREE_H

#include <stdbool.h>

#include "chunk_pool.h"
#include "chunkattn/base/alloc.h"
#include "chunkattn_inspect.h"
#include "kv_commands.h"

typedef struct ca_node ca_node;
typedef struct ca_seq ca_seq;
typedef struct ca_tree ca_tree;

static inline int64_t ca_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ca_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* The place of an evictable leaf in the treap of its account and class (evict.c); all NULL in a node that is in none. */
typedef struct ca_evict_links {
    ca_node *up, *side[2];
} ca_evict_links;

/* Owned by the tree. A call that changes the tree may move tokens from a node to another, or free it. */
struct ca_node {
    /* The first cache line holds what a step reads for each sequence. Between steps it leaves the caches. */
    ca_node *parent; /* NULL for the tree's root */
    int64_t start;   /* position of the first token, even */
    int64_t n_tokens;
    int64_t n_ready, n_claimed;
    int32_t *tokens;     /* [n_tokens] their ids (extras.h) */
    ca_chunk_id *chunks; /* [n_chunks]: chunks[i] holds positions of absolute chunk start / c + i */
    size_t n_chunks;
    /* The second cache line holds what append and the planner read besides. */
    size_t tokens_capacity, chunks_capacity;
    ca_node **children; /* [n_children], sorted */
    size_t n_children;
    ca_seq *ending;   /* sequences that end here, in the order in which they came, linked by ca_seq.next */
    int64_t n_seqs;   /* sequences that the node covers: they end here or below */
    uint64_t version; /* on a child of the root: changes whenever something that a plan depends on changes in its subtree */
    uint64_t id;
    size_t children_capacity;
    uint64_t last_use; /* the tree's clock when a sequence that covers the node last came or left */
    ca_evict_links evict;
    uint32_t domain;
    /* The planner's notes on a child of the root, zero in a new node. The tree does not read them. Here they share a cache line
     * with what an update reads anyway; in a table of the planner they made updates of large batches slower. */
    struct {
        int32_t section; /* index of its section in the last plan */
        int32_t n_rows;  /* of the batch below it; as the next two, valid during an update only */
        bool met;        /* it has such rows */
        bool moved;      /* only positions within their chunks have changed */
    } plan;
    bool is_evictable; /* it is a leaf that no sequence covers, and in the treap of its account and class */
    uint8_t use_class; /* of an evictable leaf, as the next one: those of its last chunk */
    uint16_t account;
    /* Of the counting of superseded chunks: the last rounds in which it was visited, and in which a child continued its tail.
     */
    uint64_t round, continued;
    int64_t n_coming; /* tokens from n_ready on that are on the way from the file tier; none of them is claimed */
    /* What only look.c shows. */
    uint64_t n_hits;                         /* joins that matched tokens of it */
    uint32_t used_at;                        /* the tree's time at last_use (ca_tree_time) */
    int32_t n_pins, n_restores, n_step_seqs; /* of the sequences that it covers; valid in the round `seen` of their counting */
    uint64_t seen;
};

static inline int64_t ca_node_end(const ca_node *node) { return node->start + node->n_tokens; }

/* A running sequence, owned by the tree until it leaves. */
struct ca_seq {
    cattn_seq id;
    ca_node *leaf; /* the node where it ends, which need not be a leaf of the tree */
    ca_node *root; /* the child of the tree's root above leaf */
    ca_seq *next;  /* the next sequence that ends at leaf */
    int64_t n_tokens;
    int64_t reserve_to; /* chunks are reserved up to this position; none if it is <= n_tokens */
    int64_t n_reserved; /* chunks that are still reserved */
    uint64_t joined;    /* the tree's clock then */
    int64_t n_found;    /* tokens at its beginning that were in the tree before it came; truncation leaves them to retention */
    uint32_t domain;
    uint16_t account;   /* of cattn_join_options */
    bool no_tier;       /* its chunks are not written to the file tier */
    bool is_pin;        /* it only keeps its tokens in the cache */
    bool is_restore;    /* it only covers tokens that are on the way; not counted, and unknown outside the tree */
    int32_t step_entry; /* its index among a step's entries while they are looked up or planned; at other times -1 */
};

typedef struct ca_tree_config {
    cattn_sharing sharing;
    cattn_retention retention;
    ca_kv_executor executor; /* runs, inside the tree's calls, K/V commands that cannot wait for a step */
    struct ca_tier *tier;    /* borrowed until the tree is destroyed; NULL: none */
} ca_tree_config;

/* Counters for cattn_stats; here superseded chunks count as live, except in the peak. */
typedef struct ca_tree_counts {
    uint64_t chunks_live, chunks_live_peak, chunks_retained, chunks_reserved, chunks_unshared, chunks_unshared_peak;
    uint64_t tokens_stored, tokens_retained, tokens_referenced, tokens_joined, tokens_matched, tokens_evicted, n_seqs, n_nodes;
    uint64_t tokens_restored, tokens_imported;
} ca_tree_counts;

/* ---- The tree ---- */

/* pool, layout and alloc are borrowed until destroy. CATTN_ERR_NOMEM leaves *tree NULL. */
cattn_status ca_tree_create(ca_tree **tree, const ca_tree_config *config, const ca_chunk_layout *layout, ca_chunk_pool *pool,
                            ca_alloc *alloc);

/* Ends all sequences, frees all chunks, and sets *tree to NULL. Pending K/V commands are dropped. *tree may be NULL. */
void ca_tree_destroy(ca_tree **tree);

ca_node *ca_tree_root(ca_tree *tree);

/* The node after n in depth-first order, NULL after the last. *depth is changed by the difference of their depths. */
const ca_node *ca_tree_next(const ca_node *n, int32_t *depth);

const ca_tree_counts *ca_tree_get_counts(const ca_tree *tree);

/* The number of superseded chunks (look.c), in time proportional to the nodes that running sequences cover. */
uint64_t ca_tree_count_superseded(ca_tree *tree);

/* Update the peak counters. Called when a step begins, so that joins that admission undoes do not count. */
void ca_tree_note_peaks(ca_tree *tree);

/* Changes whenever the version of a child of the root changes, or a child of the root is added or removed. */
uint64_t ca_tree_version(const ca_tree *tree);

/* The running sequence with this id, NULL if there is none or it is a restore's. Valid until it leaves. */
ca_seq *ca_tree_find(const ca_tree *tree, cattn_seq id);

/* Whether an id is of this tree, though its sequence may have left; otherwise it is another tree's, or no id at all. */
bool ca_tree_has_made(const ca_tree *tree, cattn_seq id);

/* ---- Tokens with extra hashes (extras.h): calls below, and searches, get ids instead of tokens ---- */

/*
 * As ca_extras_hold, for all n tokens. CATTN_ERR_NOMEM or CATTN_ERR_BUDGET with the first ones replaced. Retained chunks may
 * have been evicted.
 */
cattn_status ca_tree_hold_extras(ca_tree *tree, int32_t *tokens, int64_t n, uint64_t hash);

/* As the functions of extras.h. */
void ca_tree_find_extras(const ca_tree *tree, int32_t *tokens, int64_t n, uint64_t hash);
void ca_tree_end_hold_extras(ca_tree *tree, const int32_t *ids, int64_t n);
void ca_tree_show_extras(const ca_tree *tree, int32_t *ids, uint64_t *hashes, int64_t n);
/* Whether a node has such tokens. */
bool ca_tree_has_extras(const ca_tree *tree, const ca_node *node);

/* ---- Calls: as the public functions, without argument checks. error may be NULL. Not while tokens are claimed. ---- */

/*
 * An account is about to be used; a weight of 0 leaves that which it has, at first 1. The accounts up to the largest that is
 * used take memory beside the budget, since nothing that is promised of an empty cache may depend on how many there will be.
 * CATTN_ERR_NOMEM.
 */
cattn_status ca_tree_open_account(ca_tree *tree, uint32_t account, double weight, cattn_error *error);

/* headroom: bytes of the budget that must stay for other memory than the tree's. The sequence has account 0. */
cattn_status ca_tree_join(ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain, int64_t reserve_tokens,
                          size_t headroom, cattn_seq *seq, cattn_join_result *result, cattn_error *error);
cattn_status ca_tree_append(ca_tree *tree, ca_seq *seq, const int32_t *tokens, int64_t n_tokens, cattn_error *error);
cattn_status ca_tree_truncate(ca_tree *tree, ca_seq *seq, int64_t n_tokens, cattn_error *error);
cattn_status ca_tree_fork(ca_tree *tree, ca_seq *seq, int64_t reserve_tokens, cattn_seq *fork, cattn_error *error);
/* As cattn_seq_pin, for n_tokens that are ready, and without its limit. Not in the mode CATTN_PRIVATE. */
cattn_status ca_tree_pin(ca_tree *tree, const ca_seq *seq, int64_t n_tokens, cattn_seq *pin, cattn_error *error);
cattn_status ca_tree_reserve(ca_tree *tree, ca_seq *seq, int64_t n_tokens, cattn_error *error);
void ca_tree_leave(ca_tree *tree, ca_seq *seq);

/* As cattn_cache_match. */
cattn_join_result ca_tree_find_prefix(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain);

/* ---- Looking at the tree (look.c, explain.c); none of these fails ---- */

/*
 * Begin to count, for each node, the sequences that it covers: its pins and restores; then one sequence of a step after the
 * other. A sequence that does not run is ignored.
 */
void ca_tree_count_covered(ca_tree *tree);
void ca_tree_count_in_step(ca_tree *tree, cattn_seq id);

/* Describe a node, after that count; depth is 0. */
cattn_node_info ca_tree_describe(const ca_tree *tree, const ca_node *node);

/*
 * Where a walk goes on, from a cursor of cattn_cache_walk: its next node. False: the tree has no such walk. *next is NULL if
 * all nodes after the cursor have gone.
 */
bool ca_tree_resume_walk(ca_tree *tree, uint64_t cursor, const ca_node **next);

/* A cursor of a walk that goes on with `next`, in place of the walk of `cursor` (0: a new walk). 0 if next is NULL. */
uint64_t ca_tree_suspend_walk(ca_tree *tree, uint64_t cursor, const ca_node *next);

/* As cattn_cache_explain; tier: what the file tier has counts. struct_size is set, too. */
void ca_tree_explain(const ca_tree *tree, const int32_t *tokens, int64_t n_tokens, uint32_t domain, bool tier,
                     cattn_explanation *explanation);

/*
 * ---- The file tier (restore.c, write_behind.c): only for a tree that has one, and while no token is claimed ----
 *
 * None of these fails. What finds no memory is not restored, or not written.
 */

/*
 * Let tokens of a sequence that has just joined with `tokens` come from the tier: those of consecutive records from its first
 * token on that is neither ready nor on the way. Nothing is read if computing takes less time; row_seconds: the time to compute
 * a token, 0 if it is not known. Returns the number of the sequence's first tokens that are ready or on the way.
 */
int64_t ca_tree_restore(ca_tree *tree, ca_seq *seq, const int32_t *tokens, double row_seconds);

/* Whether tokens are on the way. */
bool ca_tree_restores(const ca_tree *tree);

/* Make tokens ready whose records have been read. Those of records that could not be read can be claimed again. */
void ca_tree_poll_tier(ca_tree *tree);

/* Stop the restores of tokens that no sequence covers any more. Called when one has left or was truncated. */
void ca_tree_drop_orphans(ca_tree *tree);

/* Queue the writes of the full chunks of a sequence whose tokens are all ready. */
void ca_tree_write_behind(ca_tree *tree, const ca_seq *seq);

/* Stop the restores of tokens that seq covers, and of those below them. */
void ca_tree_stop_restores(ca_tree *tree, const ca_seq *seq);

/* Stop all restores and forget the tier, which is about to be closed. */
void ca_tree_detach_tier(ca_tree *tree);

/* The same without a call of the tier; the tree, too, is about to be destroyed. */
void ca_tree_forget_tier(ca_tree *tree);

/* ---- Places of K/V, for exports and imports; while no token is claimed ---- */

/* Slots [begin, end) of a chunk. */
typedef struct ca_place {
    ca_chunk_id chunk;
    int32_t begin, end;
} ca_place;

enum { CA_MAX_PLACES = 256 }; /* of one absolute chunk: two for each pair of its tokens */

/*
 * Fill places [CA_MAX_PLACES] with those of the positions [begin, end), all of one absolute chunk, on the path to leaf. Returns
 * their number. Pending K/V commands may still change the slots.
 */
int32_t ca_path_places(const ca_tree *tree, const ca_node *leaf, int64_t begin, int64_t end, ca_place *places);

/*
 * Let the caller write the K/V of seq's tokens that are not ready, as a step would: pending K/V commands are carried out, and
 * restores of these tokens stop. Returns the position of the first of them.
 */
int64_t ca_tree_begin_import(ca_tree *tree, const ca_seq *seq);

/*
 * As ca_path_places, for positions that are about to be written. Places in front of them are added where a branch needs copies
 * of the slots before it: they get the K/V of the positions of these slots. Slot groups are as ca_chunk.open says afterwards.
 */
int32_t ca_tree_places_to_write(ca_tree *tree, const ca_seq *seq, int64_t begin, int64_t end, ca_place *places);

/* All tokens of seq are ready. */
void ca_tree_end_import(ca_tree *tree, const ca_seq *seq);

/*
 * Copy n tokens of seq, from position `first` on, to tokens [n]; ca_seq_tokens: their ids (extras.h), as ca_node.tokens has
 * them.
 */
void ca_tree_tokens(const ca_tree *tree, const ca_seq *seq, int64_t first, int64_t n, int32_t *tokens);
void ca_seq_tokens(const ca_seq *seq, int64_t first, int64_t n, int32_t *ids);

/* ---- Memory ---- */

/* Evict everything that no sequence covers, and return the memory to the system as far as reservations allow. */
void ca_tree_drop_retained(ca_tree *tree);

/*
 * Return at least `bytes` bytes (> 0) of slabs to the system: empty slabs first, then evict. For workspace that must grow; the
 * tree's own calls evict for themselves. False if nothing more can be evicted, or if the rest is reserved; what was returned by
 * then stays returned.
 */
bool ca_tree_make_room(ca_tree *tree, size_t bytes);

/*
 * Evict and return memory as far as it exceeds the pool's budget and is neither live nor reserved. Also the last stage of each
 * call that changes the tree.
 */
void ca_tree_shrink(ca_tree *tree);

/* Whether ca_tree_make_room could return `bytes` bytes. */
bool ca_tree_may_have_room(const ca_tree *tree, size_t bytes);

/* ---- What a request needs of an empty tree (fit.c) ---- */

/* n_seqs sequences that continue one prompt of n_tokens tokens by reserve_tokens tokens each. */
typedef struct ca_fit {
    int64_t n_tokens, n_seqs, reserve_tokens;
} ca_fit;

/* Upper bound of the chunks that the request uses and reserves, in the tree's sharing mode. */
int64_t ca_fit_chunks(const ca_tree *tree, const ca_fit *fit);

/* Upper bound, in bytes, of the request's metadata: its sequences, and its nodes with what their arrays grow to. */
uint64_t ca_fit_metadata(const ca_tree *tree, const ca_fit *fit);

/* Whether the budget holds the request and its metadata beside other_bytes of other memory. */
bool ca_fit_holds(const ca_tree *tree, const ca_fit *fit, uint64_t other_bytes);

/* The largest reserve_tokens with which the request fits; -1 if not even 0 does. */
int64_t ca_fit_max_reserve(const ca_tree *tree, const ca_fit *fit, uint64_t other_bytes);

/*
 * ---- For steps: none of these fails or allocates ----
 *
 * They take the node where a sequence ends, so that a step need not load the sequence itself into the caches.
 */

/* Tokens at the beginning of the path to leaf that are ready, and those that are ready or claimed. */
int64_t ca_path_n_ready(const ca_node *leaf);
int64_t ca_path_n_claimed(const ca_node *leaf);

/* Tokens at the beginning of the path to leaf that are ready or on the way. */
int64_t ca_path_n_coming(const ca_node *leaf);

/*
 * Claim up to max_rows tokens of the path to leaf, the first of them at position ca_path_n_claimed. Returns the number of
 * tokens claimed.
 */
int64_t ca_path_claim(ca_node *leaf, int64_t max_rows);

/* Make all claimed tokens of the path to leaf ready, or unclaimed again. */
void ca_path_commit(ca_node *leaf);
void ca_path_unclaim(ca_node *leaf);

/* K/V commands that calls have noted since the last step, which takes them with ca_kv_take. */
ca_kv_pending *ca_tree_pending(ca_tree *tree);

/*
 * The copies of branches' first slots that must be made before rows [first, last] (positions) of a sequence that ends at leaf
 * can attend, beyond those that ca_chunk.n_copied says have been made. Returns their number. If `end` is not NULL, they are
 * written in front of it, in the order in which they must be made, and n_copied is updated; ca_path_undo_branch_copies undoes
 * that update.
 */
int32_t ca_path_branch_copies(const ca_tree *tree, const ca_node *leaf, int64_t first, int64_t last, ca_kv_command *end);
void ca_path_undo_branch_copies(const ca_tree *tree, const ca_kv_commands *copies);

/* The chunk that holds a position of the path to leaf. */
ca_chunk_id ca_path_chunk(const ca_tree *tree, const ca_node *leaf, int64_t position);

#endif
