/*
 * libchunkattn: attention over a K/V cache that stores and reads a shared prompt prefix once.
 *
 * A cache holds the K/V of all running sequences in a prefix tree of chunks. Sequences whose tokens begin alike share the
 * storage of their common prefix, which is found by comparing tokens when they join. Each decode or prefill step computes the
 * attention of a batch of rows in two phases: chunk-first, in which a shared chunk is read once for all rows that see it, then
 * sequence-first, in which each row continues over the chunks of its own sequence.
 *
 * Exact: the bits of a row's result do not depend on the other rows, sequences, threads or the sharing mode, nor on how its
 * prefix was divided among steps (same machine, same build, same kernel level).
 *
 * Threads: calls on one cache must not overlap; different caches are independent. The library neither prints nor exits.
 *
 * Source: ChunkAttention (arXiv 2402.15220): prefix-aware K/V cache and two-phase partition. docs/library.md is a guide.
 */
#ifndef CHUNKATTN_H
#define CHUNKATTN_H

#include <stddef.h>
#include <stdint.h>

#define CATTN_VERSION_MAJOR 0
#define CATTN_VERSION_MINOR 1
#define CATTN_VERSION_PATCH 0

#if defined(__GNUC__)
#define CATTN_API __attribute__((visibility("default")))
#else
#define CATTN_API
#endif

/*
 * Experimental declarations may change or go between any two versions. They are visible only where CATTN_EXPERIMENTAL is
 * defined before this header is included: chunkattn_cuda.h, chunkattn_pages.h, and cattn_config.cuda_device here.
 */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version, status, errors ------------------------------------------------------------------------------------- */

/* Version of the running library as "major.minor.patch"; static storage. Compare with CATTN_VERSION_* of this header. */
CATTN_API const char *cattn_version(void);

/* Zero is success, everything else negative. */
typedef enum cattn_status {
    CATTN_OK = 0,
    CATTN_ERR_ARG = -1,         /* an argument is out of range, foreign or contradictory */
    CATTN_ERR_NOMEM = -2,       /* the allocator or the operating system has no memory */
    CATTN_ERR_BUDGET = -3,      /* the cache's byte budget has no room, even after eviction */
    CATTN_ERR_STATE = -4,       /* a step is open, or none is, and the call needs the opposite */
    CATTN_ERR_UNSUPPORTED = -5, /* a valid combination that this build or CPU does not offer */
    CATTN_ERR_DATA = -6,        /* bytes to import are cut off, damaged, or of another kind of cache */
    CATTN_ERR_WRITE = -7,       /* the caller's function that takes exported bytes has stopped the call */
} cattn_status;

/* A constant name such as "CATTN_ERR_BUDGET"; "unknown status" for other values. */
CATTN_API const char *cattn_status_name(cattn_status status);

/*
 * What went wrong. Every function that takes a cattn_error accepts NULL; on success it is left untouched. A failed call
 * leaves the cache as it was unless its comment says otherwise.
 */
typedef struct cattn_error {
    cattn_status code;
    int32_t entry;     /* index of the batch entry, token or field at fault; -1 when there is none */
    char message[248]; /* names the argument, the limit and the fix; begins with the field of a config; always terminated */
} cattn_error;

/*
 * Structs that begin with `size_t struct_size` may get further fields, at their end. The caller says which fields it knows by
 * setting struct_size to the sizeof that it was compiled with, which the init functions do. So both directions work:
 *   - An older program runs with a newer library: fields that it does not know have their defaults, and are not written.
 *   - A newer program runs with an older library as long as it leaves the further fields zero. One that is set is refused with
 *     CATTN_ERR_UNSUPPORTED; where the library fills the struct, they become zero.
 * An impossible struct_size is CATTN_ERR_ARG. All other structs keep their fields as they are.
 */

/* ---- Configuration ------------------------------------------------------------------------------------------------ */

typedef enum cattn_type {
    CATTN_F32 = 0,
    CATTN_F16 = 1,
    CATTN_BF16 = 2,
    CATTN_I8 = 3, /* of kv_type only: 8-bit integers with a scale for each token and KV head, its largest |x| / 127 */
    /*
     * Of kv_type only, and on a CUDA device only (cattn_config.cuda_device): e4m3, 8-bit floats of 4 bits of exponent and 3 of
     * mantissa, up to 448, with an f32 scale for each token and KV head, of K and of V. The scale is the largest |x| of the
     * head's row / 448. x is stored as the e4m3 nearest to x / scale (computed as x times 1 / scale, both rounded to f32), ties
     * to even, at most 448 in magnitude, and read as that times the scale. A scale below the smallest normal f32 is 0, and so
     * are the values then. If any x is infinite or NaN the scale is NaN, so every row that sees the token gets NaN.
     */
    CATTN_E4M3 = 4,
} cattn_type;

typedef enum cattn_sharing {
    CATTN_SHARED = 0, /* stored once, prefilled once, read once */
    /* Stored and prefilled once, but each sequence reads for itself, as PagedAttention over shared pages does. */
    CATTN_SHARED_STORAGE = 1,
    CATTN_PRIVATE = 2, /* nothing shared (PagedAttention); a fork copies */
} cattn_sharing;

typedef enum cattn_retention {
    /*
     * Tokens that no sequence covers stay, and later joins match them, until memory is needed; then leaves are evicted first,
     * and of these the least recently used.
     */
    CATTN_RETAIN_LRU = 0,
    CATTN_RETAIN_NONE = 1, /* tokens are dropped as soon as no sequence covers them, as in the paper */
    /*
     * As CATTN_RETAIN_LRU, but the cache learns from the sequences that leave how often and how soon tokens come back, and
     * evicts the leaf that is therefore worth least.
     * Prompts that are used once do not displace those that are used again and again, and of cyclic prompts that exceed the
     * cache a part stays.
     */
    CATTN_RETAIN_LEARNED = 2,
} cattn_retention;

/*
 * Allocates metadata and workspace; chunks are mapped by the library. Set alloc and free, or neither; ctx may be NULL. alloc
 * returns NULL on failure. free gets the `size` and `align` (a power of two) that alloc was called with.
 */
typedef struct cattn_allocator {
    void *(*alloc)(void *ctx, size_t size, size_t align);
    void (*free)(void *ctx, void *ptr, size_t size, size_t align);
    void *ctx;
} cattn_allocator;

/*
 * The caller's thread pool. `run` must call fn(arg, task, worker) exactly once for each task in [0, n_tasks), from any
 * threads, with worker in [0, n_threads) and no two calls at once with the same worker, and return when all are done.
 */
typedef struct cattn_parallel {
    void (*run)(void *ctx, int32_t n_tasks, void (*fn)(void *arg, int32_t task, int32_t worker), void *arg);
    void *ctx;
} cattn_parallel;

/* Fill with cattn_config_init, set the shape, and change what you need. New fields are only added at the end. */
typedef struct cattn_config {
    size_t struct_size;        /* set by cattn_config_init */
    int32_t n_layers;          /* required, >= 1 */
    int32_t n_heads;           /* required: query heads; a multiple of n_kv_heads, at most 128 times as many */
    int32_t n_kv_heads;        /* required */
    int32_t head_dim;          /* required: of Q and K: 32, 48, 64, 80, 96, 112, 128, 192, 256 or 512 */
    int32_t head_dim_v;        /* of V and the output, from the same list; 0 (default): as head_dim */
    int32_t chunk_size;        /* tokens of a chunk: 16, 32, 64 (default), 128 or 256 */
    cattn_type kv_type;        /* how K and V are stored; default CATTN_BF16 */
    cattn_sharing sharing;     /* default CATTN_SHARED */
    cattn_retention retention; /* default CATTN_RETAIN_LEARNED */
    float scale;               /* multiplies q.k before softmax; 0 (default): 1/sqrt(head_dim) */
    uint64_t budget_bytes;     /* for chunks, metadata and workspace (docs/library.md, "Memory"); default 1 GiB */
    int32_t n_threads;         /* workers; 0 (default): one for each CPU this process may use */
    const char *level;         /* highest kernel level to use, one of cattn_level_name(); NULL (default): the CPU's best.
                                  The environment variable CATTN_LEVEL lowers it further. */
    cattn_allocator allocator; /* default: aligned_alloc and free */
    cattn_parallel parallel;   /* default: the library's own threads; with a hook, n_threads must be set */
    /*
     * Options of the model's attention; zero or NULL: off. A score is first capped, then biased, then masked. Arrays are
     * copied.
     */
    const int32_t *windows;    /* [n_layers] number of positions that a row sees, its own the last; 0: all */
    int32_t n_sink_tokens;     /* number of first tokens that stay visible under any window */
    float softcap;             /* s becomes softcap * tanh(s / softcap), s = scale * q.k; 0.001 to 1e6 */
    const float *sink_logits;  /* [n_layers][n_heads] a logit that joins the softmax's denominator (and lse), with no value of
                                  its own; in the unit of s, within +-1e6; -INFINITY: that head has none */
    const float *alibi_slopes; /* [n_heads] s += slope * (key position - query position), in the unit of s, within +-1e6 */
#ifdef CATTN_EXPERIMENTAL
    int32_t cuda_device; /* keep K and V, and attend, on this CUDA device (chunkattn_cuda.h); -1 (default): on the CPU */
#else
    int32_t experimental; /* as cattn_config_init sets it */
#endif
    int32_t reserved;   /* 0 */
    uint64_t pin_bytes; /* of budget_bytes, for chunks that pins cover (cattn_seq_pin); 0 (default): a quarter */
    /*
     * The file tier: a file in which K/V of full chunks stay when they are evicted and when the process ends. Only on a CPU,
     * and not with CATTN_PRIVATE or CATTN_RETAIN_NONE. One cache at a time uses a file; its name is the hash of everything on
     * which K/V depend: this library's version, the level, the fields above, and the fingerprint.
     */
    const char *tier_dir;         /* folder of the file; created if its parent exists; NULL (default): no tier. Copied. */
    uint64_t tier_bytes;          /* of the file, at most; required with tier_dir */
    uint64_t tier_fingerprint[2]; /* of the model and of the caller's program: a hash of everything beside the tokens that
                                     changes K/V, such as the weights and the machine code that computes with them; exports
                                     and imports require it, also without tier_dir */
} cattn_config;

/* Fill *config with the defaults above; shape fields are zero and must be set. */
CATTN_API void cattn_config_init(cattn_config *config);

/* Name of the i-th kernel level this CPU can run, lowest ("ref") first; NULL past the last. Static storage. */
CATTN_API const char *cattn_level_name(int32_t i);

/* ---- Cache --------------------------------------------------------------------------------------------------------- */

typedef struct cattn_cache cattn_cache;

/*
 * Create an empty cache. *config is borrowed for the call only.
 *
 * Errors: CATTN_ERR_ARG names the field in the message; CATTN_ERR_NOMEM; CATTN_ERR_BUDGET if the budget does not hold one chunk
 * and the metadata; CATTN_ERR_UNSUPPORTED for a level or kv_type that this CPU lacks, and where the CUDA backend or driver is
 * missing, there is no device, or the device cannot run the kernels; CATTN_ERR_ARG if no device has the number cuda_device.
 * Of the file tier: CATTN_ERR_ARG names tier_dir or tier_bytes if the file cannot be opened, another cache has it, tier_bytes
 * holds no chunk, or the cache retains nothing; CATTN_ERR_UNSUPPORTED on a device; CATTN_ERR_NOMEM if the tier's threads
 * cannot be started. *cache is NULL then.
 */
CATTN_API cattn_status cattn_cache_create(const cattn_config *config, cattn_cache **cache, cattn_error *error);

/*
 * Free everything and set *cache to NULL; its sequences end. With a file tier, chunks of sequences that have left are still
 * written, for at most 5 seconds; sequences that are to be written must leave before. NULL and pointers to NULL are ignored.
 */
CATTN_API void cattn_cache_destroy(cattn_cache **cache);

/* The kernel level in use; static storage. NULL for NULL. */
CATTN_API const char *cattn_cache_level(const cattn_cache *cache);

/*
 * Make memory for n_chunks free chunks resident before the steps that write them: the first write to a page waits until the
 * system has found and cleared it, which in a virtual machine may take longer than computing the tokens. A call prepares at
 * most 2 MB, so that an idle caller can return to other work, and returns 1; it returns 0 if nothing is left to do, the budget
 * holds no more, or the system cannot do it (Linux before 5.14). CATTN_ERR_ARG for NULL or a negative n_chunks.
 */
CATTN_API int cattn_cache_prefault(cattn_cache *cache, int64_t n_chunks);

/*
 * Evict all tokens that no sequence covers, and return the memory to the system as far as nothing is reserved in it: for
 * instance when the model's weights change, or before another process needs the memory. They count as tokens_evicted. On a CPU
 * the workspace that the last step left is freed too.
 *
 * Errors: CATTN_ERR_ARG for NULL; CATTN_ERR_STATE while a step is open.
 */
CATTN_API cattn_status cattn_cache_drop_retained(cattn_cache *cache, cattn_error *error);

/*
 * Change the byte budget while the cache is in use, up to the configured budget_bytes. Memory that exceeds a lower budget
 * returns to the system at once, as far as eviction empties it. Chunks that are live or reserved stay, and calls that need
 * further chunks fail with CATTN_ERR_BUDGET until sequences have left or the budget is raised. cattn_cache_can_fit still
 * answers for the configured budget.
 *
 * Errors: CATTN_ERR_ARG for NULL or more than configured; CATTN_ERR_STATE while a step is open; CATTN_ERR_UNSUPPORTED on a
 * device.
 */
CATTN_API cattn_status cattn_cache_set_budget(cattn_cache *cache, uint64_t budget_bytes, cattn_error *error);

/*
 * Wait until a read of the file tier has ended, for at most `seconds`: for a caller whose next step would have no rows, since
 * all tokens that it could compute are on the way. Returns 1 if a read has ended: its tokens are ready then, or, if it failed,
 * can be claimed by a step. Returns 0 if the time is over or no token is on the way, CATTN_ERR_ARG for NULL or negative
 * seconds, CATTN_ERR_STATE while a step is open.
 */
CATTN_API int cattn_cache_wait(cattn_cache *cache, double seconds);

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

/* Fill *stats; also while a step is open. Errors: CATTN_ERR_ARG for NULL or a struct_size that is not set. */
CATTN_API cattn_status cattn_cache_stats(const cattn_cache *cache, cattn_stats *stats);

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
 * Errors: CATTN_ERR_BUDGET when the request does not fit; CATTN_ERR_ARG names the field. May be called while a step is open,
 * and from another thread while other calls on the cache run, since all that it reads is constant from creation to destruction.
 */
CATTN_API cattn_status cattn_cache_can_fit(const cattn_cache *cache, const cattn_fit_request *request, cattn_fit_result *result,
                                           cattn_error *error);

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
    uint64_t first_seq;    /* the sequences it covers are [first_seq, first_seq + n_seqs) in depth-first order; 0 in a walk */
    uint64_t n_seqs;       /* 0: retained only */
    uint64_t n_pins;       /* of these sequences, pins */
    uint64_t n_step_seqs;  /* of these sequences, those with rows in the open step, or in the last one if none is open */
    uint64_t n_hits;       /* joins that have matched tokens of it since its first token was added */
    int64_t n_coming;      /* tokens after the first n_ready that are on the way from the file tier */
    uint64_t own_bytes;    /* of the chunks to which no other node refers */
    double idle_seconds;   /* since a sequence that covers it joined or left */
} cattn_node_info;

/*
 * Call fn for each node in depth-first order (parent before child) until it returns non-zero. fn must not call the cache.
 * Returns what the last fn returned, 0 for an empty tree, CATTN_ERR_ARG where cache or fn is NULL.
 */
CATTN_API int cattn_cache_visit(const cattn_cache *cache, int (*fn)(void *ctx, const cattn_node_info *node), void *ctx);

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
 * As cattn_cache_visit, but a part of the tree at a time, so that other calls can come between: the time of one call is
 * bounded, whatever the size of the tree. It visits at most 4 * max_nodes nodes, and once the path of each sequence.
 *
 * cursor: in 0 to begin a walk, or what the last call of the walk has left there; out: for the next call, 0 at the end.
 *
 * The tree may change between the calls. Each node that exists from the beginning of the walk to its end is reported once. A
 * node that is added meanwhile may be reported or not, and so may the parent of a node that is reported: where a node is cut,
 * its upper part keeps the id, and the lower part becomes a new node between it and its children. A node that
 * has a single token for a while may be missed, or reported twice.
 *
 * The cache remembers the CATTN_MAX_WALKS walks that were continued last; a walk need not be ended. A call allocates nothing,
 * and may be made while a step is open.
 *
 * If fn returns non-zero the call ends after this node, and the walk can continue behind it. options and error may be NULL.
 *
 * Errors: CATTN_ERR_ARG names the option, also if there is no node node_id; CATTN_ERR_STATE if the cache has no walk with this
 * cursor any more: begin again.
 */
CATTN_API cattn_status cattn_cache_walk(const cattn_cache *cache, const cattn_walk_options *options, uint64_t *cursor,
                                        int (*fn)(void *ctx, const cattn_node_info *node), void *ctx, cattn_error *error);

/* ---- Sequences ------------------------------------------------------------------------------------------------------ */

/* A running sequence. Values are never reused, so a sequence that has left is recognised. 0 is never valid. */
typedef uint64_t cattn_seq;

enum { CATTN_JOIN_NO_TIER = 1 }; /* neither the sequence nor its forks are read from the file tier or written to it */

typedef struct cattn_join_options {
    size_t struct_size;     /* set by cattn_join_options_init */
    uint32_t domain;        /* only sequences of one domain share; default 0 */
    int64_t reserve_tokens; /* reserve chunks for this many tokens after those of the join; default 0 */
    uint64_t flags;         /* 0 (default) or CATTN_JOIN_NO_TIER */
} cattn_join_options;

CATTN_API void cattn_join_options_init(cattn_join_options *options);

typedef struct cattn_join_result {
    int64_t n_matched; /* leading tokens found in the tree, or on the way from the file tier: even, at most n_tokens - 1 */
    int64_t n_ready;   /* leading tokens, of the matched ones, whose K/V exist already */
} cattn_join_result;

/*
 * Start a sequence of n_tokens >= 1 tokens. The longest prefix in the tree is shared; the other tokens enter the tree at once,
 * and steps compute their K/V. Tokens that match but are not ready are computed once, by the sequence that claims them in a
 * step. If the budget has no room for all of that prefix, since branches may need copies, less of it is shared. *tokens is
 * borrowed for the call only. options and result may be NULL.
 *
 * Errors: CATTN_ERR_ARG (entry: index of a negative token); CATTN_ERR_BUDGET with needed and available chunks;
 * CATTN_ERR_NOMEM; CATTN_ERR_STATE while a step is open. *seq is 0 then.
 */
CATTN_API cattn_status cattn_seq_join(cattn_cache *cache, const int32_t *tokens, int64_t n_tokens,
                                      const cattn_join_options *options, cattn_seq *seq, cattn_join_result *result,
                                      cattn_error *error);

/*
 * How much of a prompt would be shared if it joined now; nothing changes. *result is what cattn_seq_join would report, where
 * the budget has room for all of the shared prefix. tokens, n_tokens, options (may be NULL) as for join, all borrowed for the
 * call only; may be called while a step is open.
 *
 * Errors: CATTN_ERR_ARG (entry: index of a negative token).
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
    size_t struct_size;  /* set by the caller to sizeof(cattn_explanation) */
    int64_t n_matched;   /* as cattn_join_result, but without tokens that a join would begin to read from the file tier */
    int64_t n_ready;     /* the same */
    int64_t n_coming;    /* of the matched tokens after the first n_ready, those on the way from the file tier */
    int64_t n_in_tier;   /* tokens of full chunks after the ready ones and those on the way that the file tier has */
    cattn_match_end end; /* why it does not match further */
    int32_t reserved;    /* 0 */
    uint64_t node_id;    /* of the node where the match ends; 0: nothing matches */
    /*
     * Of CATTN_MATCH_DIFFERS and CATTN_MATCH_EVICTED: the position of the first token that the tree has otherwise, n_matched or
     * one more, since a match is even; -1: it has none there.
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
    /* The other domain, of the first 256, that has the most tokens of the prompt; the smallest of equals. 0 tokens: none. */
    int64_t n_other_matched;
    uint32_t other_domain;
    int32_t reserved2; /* 0 */
} cattn_explanation;

/*
 * Say how much of a prompt would be shared if it joined now, as cattn_cache_match, and why not more; nothing changes.
 *
 * The cache remembers hashes of some thousand prefixes that it has evicted, so whether and when tokens were evicted is known
 * for a while, and not for certain: at a rate of 1 in 2^32 for each token a hash is another prefix's. Time: as a join, and a
 * few ns more for each token that does not match. Allocates nothing; may be called while a step is open.
 *
 * Errors: CATTN_ERR_ARG, also for a struct_size that is not set (entry: index of a negative token).
 */
CATTN_API cattn_status cattn_cache_explain(const cattn_cache *cache, const int32_t *tokens, int64_t n_tokens,
                                           const cattn_join_options *options, cattn_explanation *explanation,
                                           cattn_error *error);

/*
 * Add n_tokens >= 1 tokens at the end; steps compute their K/V. The tree is not searched for the same tokens. Errors as join.
 */
CATTN_API cattn_status cattn_seq_append(cattn_cache *cache, cattn_seq seq, const int32_t *tokens, int64_t n_tokens,
                                        cattn_error *error);

/*
 * Keep the first n_tokens (1 <= n_tokens <= length) tokens and remove the others, for instance drafts that were not accepted.
 * One token is copied if n_tokens is odd and other sequences continue to use its chunk. Errors as join.
 */
CATTN_API cattn_status cattn_seq_truncate(cattn_cache *cache, cattn_seq seq, int64_t n_tokens, cattn_error *error);

/*
 * Start a second sequence with the same tokens, sharing everything so far; both may be appended to. reserve_tokens is as
 * for join. In CATTN_PRIVATE mode the K/V are copied. Errors as join.
 */
CATTN_API cattn_status cattn_seq_fork(cattn_cache *cache, cattn_seq seq, int64_t reserve_tokens, cattn_seq *fork,
                                      cattn_error *error);

/*
 * Reserve chunks for n_tokens >= 0 tokens beyond the present length; this replaces an earlier reservation. Errors as join.
 */
CATTN_API cattn_status cattn_seq_reserve(cattn_cache *cache, cattn_seq seq, int64_t n_tokens, cattn_error *error);

/*
 * End *seq and set it to 0. Its tokens stay for later joins or are dropped, as the cache's retention says.
 * Errors: CATTN_ERR_ARG; CATTN_ERR_STATE while a step is open.
 */
CATTN_API cattn_status cattn_seq_leave(cattn_cache *cache, cattn_seq *seq, cattn_error *error);

/*
 * Keep the first n_tokens tokens of a running sequence in the cache, also after all sequences with them have left. A pin is a
 * sequence that covers them and never gets a row: *pin counts in n_seqs, its chunks are live, and cattn_cache_unpin ends it.
 * All other calls that change a sequence refuse it. n_tokens is even, from 2 to the tokens of the sequence that are ready.
 * cattn_cache_can_fit answers as if there were no pins.
 *
 * Errors: CATTN_ERR_ARG; CATTN_ERR_BUDGET if the chunks of all pins would exceed pin_bytes, and as cattn_seq_fork;
 * CATTN_ERR_NOMEM; CATTN_ERR_STATE while a step is open; CATTN_ERR_UNSUPPORTED in CATTN_PRIVATE mode. *pin is 0 then.
 */
CATTN_API cattn_status cattn_seq_pin(cattn_cache *cache, cattn_seq seq, int64_t n_tokens, cattn_seq *pin, cattn_error *error);

/* End *pin and set it to 0. Its tokens are retained like those of a sequence that leaves. Errors as cattn_seq_leave. */
CATTN_API cattn_status cattn_cache_unpin(cattn_cache *cache, cattn_seq *pin, cattn_error *error);

typedef struct cattn_seq_info {
    size_t struct_size; /* set by the caller to sizeof(cattn_seq_info) */
    uint32_t domain;
    int64_t n_tokens;
    int64_t n_ready;    /* leading tokens whose K/V exist; computed by this sequence or another */
    int64_t n_reserved; /* tokens beyond n_tokens for which chunks are reserved */
    int64_t n_coming;   /* tokens after the first n_ready that are on the way from the file tier; no step computes them */
} cattn_seq_info;

/* Fill *info; also while a step is open. CATTN_ERR_ARG for a sequence that does not run, or a struct_size that is too small. */
CATTN_API cattn_status cattn_seq_get_info(const cattn_cache *cache, cattn_seq seq, cattn_seq_info *info, cattn_error *error);

/*
 * Copy the sequence's tokens at positions [first, first + n_tokens) to tokens [n_tokens], which may be NULL if n_tokens is 0.
 * The length is in cattn_seq_info. May be called while a step is open.
 *
 * Errors: CATTN_ERR_ARG for a sequence that does not run, or positions beyond its length.
 */
CATTN_API cattn_status cattn_seq_get_tokens(const cattn_cache *cache, cattn_seq seq, int64_t first, int64_t n_tokens,
                                            int32_t *tokens, cattn_error *error);

/* ---- Export and import ----------------------------------------------------------------------------------------------- */

/*
 * The K/V of a sequence's first tokens can leave a cache as bytes, an export, and enter a cache of the same kind: that of
 * another process, or of a later one. An export holds the tokens, the K/V, checksums (XXH3), and what K/V depend on:
 * tier_fingerprint, the version of this library, the kernel level, and K/V type, shape and options of cattn_config. A cache of
 * the same kind has the same of all of these. Sharing mode, retention, budget, threads and domain may differ.
 *
 * Equal tokens give equal bytes, however the exporting cache shares and stores them. Numbers are in the byte order of the
 * machine. The checksums find damage, not forgery: who can change an export can make the importing cache attend over any K/V.
 */

/* Bytes of an export of n_tokens tokens from this cache. 0 for NULL, n_tokens < 1, and a cache on a device. */
CATTN_API uint64_t cattn_cache_export_bytes(const cattn_cache *cache, int64_t n_tokens);

/*
 * Export the first n_tokens tokens of a running sequence, from 1 to those that are ready. `write` gets the bytes in their
 * order, in pieces of at most cattn_stats.chunk_bytes + 4096 bytes, each borrowed for the call of `write`. It returns 0, or
 * anything else to stop the export, and must not call the cache. Allocates memory for one piece, which is freed at the end and
 * does not count against the budget. The sequence and its tokens stay as they are.
 *
 * Errors: CATTN_ERR_ARG, also where tier_fingerprint is 0; CATTN_ERR_NOMEM; CATTN_ERR_WRITE if `write` has stopped the export;
 * CATTN_ERR_STATE while a step is open; CATTN_ERR_UNSUPPORTED on a device.
 */
CATTN_API cattn_status cattn_seq_export(cattn_cache *cache, cattn_seq seq, int64_t n_tokens,
                                        int (*write)(void *ctx, const void *bytes, size_t n_bytes), void *ctx,
                                        cattn_error *error);

/*
 * Start a sequence with the tokens of an export, all of them ready: as cattn_seq_join, after which no step needs to compute
 * them. Tokens that are ready in the cache already are shared and stay as they are, all others get their K/V from the export,
 * for all sequences that cover them. Tokens that were on the way from the file tier do so, too, and their reads stop. The
 * sequence can be appended to, or leave, after which joins match its tokens.
 *
 * bytes: [n_bytes] a whole export, which must not change during the call; of any alignment, such as a file that is mapped. All
 *        of it is verified before the cache changes.
 * options, result: as for cattn_seq_join; the domain need not be that of the exported sequence. *result says what was in the
 *        cache before. options, result and error may be NULL.
 *
 * Errors: CATTN_ERR_DATA, with a message that says what is damaged or differs, and the index of a damaged record as entry;
 * CATTN_ERR_ARG, also where tier_fingerprint is 0; CATTN_ERR_BUDGET and CATTN_ERR_NOMEM as cattn_seq_join; CATTN_ERR_STATE
 * while a step is open; CATTN_ERR_UNSUPPORTED on a device. *seq is 0 then.
 */
CATTN_API cattn_status cattn_seq_import(cattn_cache *cache, const void *bytes, size_t n_bytes,
                                        const cattn_join_options *options, cattn_seq *seq, cattn_join_result *result,
                                        cattn_error *error);

/* ---- Steps ----------------------------------------------------------------------------------------------------------- */

/*
 * One sequence in a step's batch. A row is one token of one sequence whose K/V are to be computed. The rows of a step are
 * those of entry 0, then of entry 1, ...: that is the row order of k, v, q and out below.
 */
typedef struct cattn_entry {
    cattn_seq seq;
    int64_t max_rows;  /* in: at most this many rows; >= 1 */
    int64_t first_pos; /* out: position of the first row */
    int64_t n_rows;    /* out: number of rows, at positions first_pos .. first_pos + n_rows - 1 */
} cattn_entry;

/*
 * Open a step. The entries get rows in their order: each claims its sequence's next tokens that are neither ready nor claimed
 * by an earlier entry, at most max_rows, and at most row_limit (0: no limit) over all entries. All rows of a step can read the
 * K/V that it writes, so two sequences with the same new prefix are prefilled together, and the prefix is computed once. An
 * entry may get 0 rows, if others have computed or are computing its tokens, if the next one is on the way from the file tier
 * (cattn_cache_wait), or if the limit was reached.
 *
 * This is the only call of a step that may allocate: workspace, if a batch is larger than any before it.
 *
 * Errors: CATTN_ERR_ARG (entry: the one that is foreign, listed twice or has max_rows < 1); CATTN_ERR_STATE when a step is
 * open already; CATTN_ERR_NOMEM; CATTN_ERR_BUDGET for the workspace, and retained tokens may have been evicted for it. No step
 * is open then, and the entries' out fields are undefined.
 */
CATTN_API cattn_status cattn_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n_entries, int64_t row_limit,
                                        cattn_error *error);

/*
 * A tensor [rows][heads][dim] of the caller's. Strides are in elements, each at least dim; the last dimension is contiguous.
 * Rows or heads may be the outer dimension.
 *
 * Each view may be f32, f16 or bf16, whatever the others and kv_type are. Inputs are widened to f32, which is exact, and
 * outputs are rounded once, to nearest even, from the f32 result. So the bits are those that f32 views give where the caller
 * converts.
 */
typedef struct cattn_view {
    void *data;      /* aligned to the element's size; inputs are only read */
    cattn_type type; /* CATTN_F32, CATTN_F16 or CATTN_BF16 */
    int64_t row_stride;
    int64_t head_stride;
} cattn_view;

/*
 * Write K and V of the step's rows for one layer.
 * k: [rows][n_kv_heads][head_dim], v: [rows][n_kv_heads][head_dim_v], of any view type. Borrowed for the call only.
 * Errors: CATTN_ERR_ARG; CATTN_ERR_STATE without an open step; CATTN_ERR_UNSUPPORTED for a type that no view may have.
 */
CATTN_API cattn_status cattn_step_write(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v,
                                        cattn_error *error);

/*
 * Attend each row of the step over all tokens of its sequence up to and including its own, or over those that it sees under the
 * layer's window and n_sink_tokens. Call it after cattn_step_write for the layer; it may be called again with other queries.
 *
 * q: [rows][n_heads][head_dim]; out: [rows][n_heads][head_dim_v], must not overlap q; of any view type each.
 * lse: [rows][n_heads] f32 contiguous, log-sum-exp in base 2 of the scores after scale and options, with the sink logit if
 *      there is one; may be NULL.
 * Query head i uses KV head i / (n_heads / n_kv_heads).
 *
 * Borrows its arguments for the call only; allocates nothing. Errors as cattn_step_write.
 * Source: ChunkAttention (arXiv 2402.15220), two-phase partition.
 */
CATTN_API cattn_status cattn_step_attend(cattn_cache *cache, int32_t layer, const cattn_view *q, const cattn_view *out,
                                         float *lse, cattn_error *error);

/*
 * Close the step: the claimed tokens are ready for all. The caller has written every layer. CATTN_ERR_ARG for NULL;
 * CATTN_ERR_STATE without an open step.
 */
CATTN_API cattn_status cattn_step_end(cattn_cache *cache, cattn_error *error);

/*
 * Close the step without making anything ready; the tokens can be claimed again, by any sequence that covers them. Errors as
 * cattn_step_end.
 */
CATTN_API cattn_status cattn_step_abort(cattn_cache *cache, cattn_error *error);

#ifdef __cplusplus
}
#endif

#endif
