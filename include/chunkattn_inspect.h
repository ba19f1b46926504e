/*
 * Looking at a cache of libchunkattn (chunkattn.h): its statistics, its nodes, what a prompt would match and why not more,
 * whether a request fits, and how far a sequence is. Whoever only computes with a cache needs none of this.
 *
 * These functions change nothing that others can see. They may be called while a step is open. They allocate nothing but where
 * tokens have extra hashes: for the time of a call a match and an explanation need memory for the prompt, and a walk for a
 * node.
 *
 * Threads: owner, as chunkattn.h defines it; cattn_cache_can_fit: any.
 */
#ifndef CHUNKATTN_INSPECT_H
#define CHUNKATTN_INSPECT_H

#include "chunkattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Numbers ----------------------------------------------------------------------------------------------------------- */

typedef struct cattn_stats {
    size_t struct_size;            /* set by the caller to sizeof(cattn_stats) */
    uint64_t budget_bytes;         /* as configured, or as cattn_cache_set_budget has changed it */
    uint64_t bytes_in_use;         /* committed slabs, metadata and workspace */
    uint64_t bytes_peak;           /* largest bytes_in_use so far */
    uint64_t chunk_bytes;          /* one chunk, all layers and KV heads, K and V */
    uint64_t chunks_live;          /* over which at least one sequence attends; at most chunks_unshared */
    uint64_t chunks_live_peak;     /* largest chunks_live at the beginning of a step so far */
    uint64_t chunks_retained;      /* kept for later joins only; evicted when memory is needed, except chunks_superseded */
    uint64_t chunks_reserved;      /* reserved for running sequences and not in use yet */
    uint64_t chunks_capacity;      /* chunks the budget can hold */
    uint64_t chunks_unshared;      /* chunks_live as it would be if nothing were shared: whole chunks for each sequence */
    uint64_t chunks_unshared_peak; /* the same of chunks_unshared */
    uint64_t tokens_stored;        /* tokens in the tree, each once */
    uint64_t tokens_referenced;    /* sum of the sequences' lengths: tokens stored if nothing were shared */
    uint64_t tokens_joined;        /* all tokens ever passed to join */
    uint64_t tokens_matched;       /* of tokens_joined, those found in the tree */
    uint64_t tokens_evicted;       /* dropped from the tree to make room */
    uint64_t n_seqs;
    uint64_t n_nodes;
    /*
     * Of chunks_retained, those from which running sequences have branched off within the chunk, so that they attend over
     * copies. They are not evicted before these sequences leave.
     */
    uint64_t chunks_superseded;
    uint64_t tokens_retained; /* of tokens_stored, those that no sequence covers */
    uint64_t slots_padding;   /* slots of live and retained chunks that hold no token of their own: unused ones, and copies */
    uint64_t chunks_pinned;   /* sum over all pins, in which a chunk of two pins counts twice */
    /* Of the file tier; 0 without one. Counts are of this cache, since its creation. */
    uint64_t tokens_restored;      /* made ready by reading instead of computing */
    uint64_t tier_file_bytes;      /* present size of the file */
    uint64_t tier_chunks;          /* chunks that the file has */
    uint64_t tier_chunks_capacity; /* chunks that tier_bytes can hold */
    uint64_t tier_reads;           /* chunks read and verified */
    uint64_t tier_writes;          /* chunks written */
    uint64_t tier_queued;          /* chunks whose read or write has not ended */
    uint64_t tier_errors;          /* system calls that failed */
    uint64_t tier_refused;         /* chunks read that were damaged, or not those expected; their tokens are computed */
    uint64_t tier_replaced;        /* chunks whose place in the file another chunk got */
    uint64_t tier_dropped;         /* chunks that were not written, since they were evicted first or too many were queued */
    double tier_read_seconds;      /* in which at least one chunk was being read */
    double tier_write_seconds;     /* in which one was being written */
    uint64_t tokens_imported;      /* made ready by cattn_seq_import instead of computing */
} cattn_stats;

/*
 * Fill *stats. Takes time in proportion to the nodes that running sequences cover, for chunks_superseded alone.
 * Errors: CATTN_ERR_ARG for NULL or a struct_size that is not set; CATTN_ERR_STATE beside another call of the cache.
 */
CATTN_API cattn_status cattn_cache_stats(const cattn_cache *cache, cattn_stats *stats);

/*
 * The same in constant time, for each step of a scheduler: chunks_superseded is 0, and these chunks count as live instead of
 * retained, so chunks_live may be larger.
 */
CATTN_API cattn_status cattn_cache_stats_fast(const cattn_cache *cache, cattn_stats *stats);

typedef struct cattn_seq_info {
    size_t struct_size; /* set by the caller to sizeof(cattn_seq_info) */
    uint32_t domain;
    int64_t n_tokens;
    int64_t n_ready;    /* leading tokens whose K/V exist; computed by this sequence or another */
    int64_t n_reserved; /* tokens beyond n_tokens for which chunks are reserved */
    int64_t n_coming;   /* tokens after the first n_ready that are on the way from the file tier; no step computes them */
} cattn_seq_info;

/* Fill *info. CATTN_ERR_ARG for a sequence that does not run, or a struct_size that is too small. */
CATTN_API cattn_status cattn_seq_get_info(const cattn_cache *cache, cattn_seq seq, cattn_seq_info *info, cattn_error *error);

/* ---- Whether a request fits -------------------------------------------------------------------------------------------- */

/* A request, to be checked before it joins. Fill with cattn_fit_request_init and set n_tokens. */
typedef struct cattn_fit_request {
    size_t struct_size;      /* set by cattn_fit_request_init */
    int64_t n_tokens;        /* tokens of the prompt, >= 1 */
    int64_t n_seqs;          /* sequences that continue the prompt, >= 1: one joins, the others are its forks; default 1 */
    int64_t reserve_tokens;  /* tokens reserved for each sequence beyond the prompt, >= 0; default 0 */
    uint64_t headroom_bytes; /* bytes of the budget to keep free for other uses, such as the steps' workspace; default 0 */
} cattn_fit_request;

CATTN_API void cattn_fit_request_init(cattn_fit_request *request);

typedef struct cattn_fit_result {
    size_t struct_size;         /* set by the caller to sizeof(cattn_fit_result) */
    int64_t max_reserve_tokens; /* the largest reserve_tokens that fits; -1: not even the prompt does */
    uint64_t bytes_needed;      /* for the K/V of the request */
    uint64_t bytes_available;   /* for K/V, in a cache that holds nothing, beside the headroom */
} cattn_fit_result;

/*
 * Whether the cache could hold a request if it held nothing else. The answer is the same throughout the cache's life, so a
 * request that does not fit can be refused at once instead of waiting for others to leave. It accounts for the sharing mode,
 * whole chunks and metadata, but not for copies that a request needs when it shares a retained prefix; joining without sharing
 * (in a domain of its own) is always possible. Near the limit the answer may be a refusal too many, by at most the metadata's
 * share of the budget.
 *
 * request is borrowed for the call only; result may be NULL and is also filled where the request does not fit.
 *
 * Threads: any, since all that it reads is constant from creation to destruction.
 *
 * Errors: CATTN_ERR_BUDGET when the request does not fit; CATTN_ERR_ARG names the field.
 */
CATTN_API cattn_status cattn_cache_can_fit(const cattn_cache *cache, const cattn_fit_request *request, cattn_fit_result *result,
                                           cattn_error *error);

/* ---- What a prompt matches --------------------------------------------------------------------------------------------- */

/*
 * How much of a prompt would be shared if it joined now; nothing changes. *result is what cattn_seq_join would report, where
 * the budget has room for all of the shared prefix. tokens, n_tokens, options (may be NULL) as for join, all borrowed for the
 * call only.
 *
 * Errors: CATTN_ERR_ARG (entry: index of a negative token, or of the extra at fault); CATTN_ERR_NOMEM with extra hashes.
 */
CATTN_API cattn_status cattn_cache_match(const cattn_cache *cache, const int32_t *tokens, int64_t n_tokens,
                                         const cattn_join_options *options, cattn_join_result *result, cattn_error *error);

/* Why a prompt does not match further. */
typedef enum cattn_match_end {
    CATTN_MATCH_WHOLE = 0, /* it matches as far as a prompt can: up to an even position before its last token */
    CATTN_MATCH_DIFFERS,   /* the tree continues with other tokens */
    CATTN_MATCH_EVICTED,   /* the tree had further tokens of the prompt, which have been evicted */
    CATTN_MATCH_ENDS,      /* the tree has nothing there, and it is not known that it ever had */
    CATTN_MATCH_PRIVATE,   /* in the mode CATTN_PRIVATE nothing matches */
} cattn_match_end;

enum { CATTN_EXPLAIN_TOKENS = 64 };

/* What cattn_cache_explain finds. Numbers of tokens count from the prompt's beginning unless they say otherwise. */
typedef struct cattn_explanation {
    size_t struct_size;    /* set by the caller to sizeof(cattn_explanation) */
    int64_t n_matched;     /* as cattn_join_result, but without tokens that a join would begin to read from the file tier */
    int64_t n_ready;       /* the same */
    int64_t n_coming;      /* of the matched tokens after the first n_ready, those on the way from the file tier */
    int64_t n_in_tier;     /* tokens of full chunks after the ready ones and those on the way that the file tier has */
    cattn_match_end end;   /* why it does not match further */
    uint32_t other_domain; /* see n_other_matched */
    uint64_t node_id;      /* of the node where the match ends; 0: nothing matches */
    /*
     * Of CATTN_MATCH_DIFFERS and CATTN_MATCH_EVICTED: the position of the first token that the tree has otherwise, or with
     * another extra hash, n_matched or one more, since a match is even; -1: it has none there.
     */
    int64_t difference;
    int64_t n_evicted;      /* first tokens of the prompt that the tree had before the eviction; 0: not evicted */
    double evicted_seconds; /* since the first of them after n_matched was evicted */
    /*
     * The tokens that the tree has from position n_matched on, as far as one node has them: where several nodes continue there,
     * those of the node with the most tokens in common, then the most running sequences, then the latest use, among at most 64.
     */
    int32_t next[CATTN_EXPLAIN_TOKENS]; /* [n_next] */
    int64_t n_next;
    /*
     * Tokens of the prompt that other_domain has: the other domain, of the first 256, with the most of them, and the smallest
     * of equals. 0: there is none.
     */
    int64_t n_other_matched;
} cattn_explanation;

/*
 * Say how much of a prompt would be shared if it joined now, as cattn_cache_match, and why not more; nothing changes.
 *
 * The cache remembers hashes of some thousand prefixes that it has evicted, so whether and when tokens were evicted is known
 * for a while, and not for certain: at a rate of 1 in 2^32 for each token a hash is another prefix's. Time: as a join, and a
 * few ns more for each token that does not match.
 *
 * Errors: CATTN_ERR_ARG, also for a struct_size that is not set (entry: index of a negative token, or of the extra at fault);
 * CATTN_ERR_NOMEM with extra hashes.
 */
CATTN_API cattn_status cattn_cache_explain(const cattn_cache *cache, const int32_t *tokens, int64_t n_tokens,
                                           const cattn_join_options *options, cattn_explanation *explanation,
                                           cattn_error *error);

/* ---- The nodes of the tree --------------------------------------------------------------------------------------------- */

/* A node of the tree: consecutive tokens that the same sequences cover. */
typedef struct cattn_node_info {
    size_t struct_size; /* the library's; fields beyond it do not exist */
    uint64_t id;        /* stable while the node lives */
    uint64_t parent_id; /* 0 for a root */
    int32_t depth;      /* 0 for a root */
    uint32_t domain;
    int64_t first_pos; /* position of its first token; even */
    int64_t n_tokens;
    int64_t n_ready;       /* leading tokens whose K/V exist */
    int64_t n_chunks;      /* physical chunks it refers to; the first may be its parent's last */
    const int32_t *tokens; /* [n_tokens], valid during the callback */
    uint64_t n_seqs;       /* running sequences that cover it; 0: retained only */
    uint64_t n_pins;       /* of these sequences, pins */
    uint64_t n_step_seqs;  /* of these sequences, those with rows in the open step, or in the last one if none is open */
    uint64_t n_hits;       /* joins that have matched tokens of it since its first token was added */
    int64_t n_coming;      /* tokens after the first n_ready that are on the way from the file tier */
    uint64_t own_bytes;    /* of the chunks to which no other node refers */
    double idle_seconds;   /* since a sequence that covers it joined or left */
} cattn_node_info;

enum {
    CATTN_MAX_WALKS = 16,           /* walks that a cache remembers */
    CATTN_MAX_WALK_NODES = 4096,    /* nodes that one call reports */
    CATTN_MAX_SEARCH_NODES = 16384, /* nodes among which one call looks for a node */
};

typedef struct cattn_walk_options {
    size_t struct_size; /* set by cattn_walk_options_init */
    int64_t max_nodes;  /* report at most this many: 1 to CATTN_MAX_WALK_NODES; default 256 */
    int64_t min_tokens; /* leave out nodes without children that have fewer tokens; default 0 */
    /*
     * Report this node, which must be one of the first CATTN_MAX_SEARCH_NODES, and those below it, max_nodes in all; the walk
     * ends with the call. 0 (default): all nodes. Only with the cursor 0.
     */
    uint64_t node_id;
} cattn_walk_options;

CATTN_API void cattn_walk_options_init(cattn_walk_options *options);

/*
 * Call fn for the nodes of the tree in depth-first order (parent before child), a part of the tree at a time, so that other
 * calls can come between: the time of one call is bounded, whatever the size of the tree. It visits at most 4 * max_nodes
 * nodes, and once the path of each sequence. fn must not call the cache.
 *
 * cursor: in 0 to begin a walk, or what the last call of the walk has left there; out: for the next call, 0 at the end.
 *
 * The tree may change between the calls. Each node that exists from the beginning of the walk to its end is reported once. A
 * node that is added meanwhile may be reported or not, and so may the parent of a node that is reported: where a node is cut,
 * its upper part keeps the id, and the lower part becomes a new node between it and its children. A node that
 * has a single token for a while may be missed, or reported twice.
 *
 * The cache remembers the CATTN_MAX_WALKS walks that were continued last; a walk need not be ended.
 *
 * If fn returns non-zero the call ends after this node, and the walk can continue behind it. options and error may be NULL.
 *
 * Errors: CATTN_ERR_ARG names the option, also if there is no node node_id; CATTN_ERR_STATE if the cache has no walk with this
 * cursor any more: begin again; CATTN_ERR_NOMEM for the tokens of a node with extra hashes, with which the walk can continue.
 */
CATTN_API cattn_status cattn_cache_walk(const cattn_cache *cache, const cattn_walk_options *options, uint64_t *cursor,
                                        int (*fn)(void *ctx, const cattn_node_info *node), void *ctx, cattn_error *error);

#ifdef __cplusplus
}
#endif

#endif
