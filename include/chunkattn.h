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
 * Source: ChunkAttention (arXiv 2402.15220): prefix-aware K/V cache and two-phase partition. docs/library.md is a guide.
 *
 * ---- Where to start ----
 *
 * Simple: one sequence. docs/decode.c is a program of this kind, with two.
 *   cattn_config_init       then set the shape of the model in the config
 *   cattn_cache_create
 *   cattn_seq_join          with the tokens of the prompt
 *   cattn_step_begin        with one cattn_entry, whose max_rows is the length of the prompt
 *     cattn_step_write      in each layer: K and V of the step's rows
 *     cattn_step_attend     in each layer: the attention of the step's rows
 *   cattn_step_end          the tokens of the rows are ready now
 *   cattn_seq_append        the token that the model's output gives; then a step with max_rows 1 computes it, and so on
 *   cattn_seq_leave         later joins match what the sequence leaves in the cache
 *   cattn_cache_destroy
 *
 * Batched: many sequences, which come and go between any two steps.
 *   cattn_step_begin        with an entry for each sequence: decoding (a row), a segment of a prompt (many rows) and drafts
 *                           (some rows) go together; row_limit is the most rows of the step, earlier entries first
 *   cattn_step_rows         token, position and entry of each row, and whether it is the last one of its sequence
 *   cattn_seqs_append       the next tokens of all sequences in one call
 *   cattn_seq_reserve       or reserve_tokens of a join: appends within the reservation cannot fail for lack of memory
 *   cattn_seq_fork          for several completions of a prompt
 *   cattn_seq_recompute_last   a row for the last token, where another sequence or an import has brought its K/V
 *   cattn_seq_truncate      removes drafts that were not accepted
 *   domain of a join        separates tenants, between which nothing is shared
 *   CATTN_ERR_BUDGET        from any call: let a sequence leave, then repeat the call; a step may also begin with a smaller
 *                           row_limit, and with 1 it always does
 *
 * Advanced:
 *   cattn_seq_pin           keeps a prompt in the cache
 *   cattn_cache_set_budget, cattn_cache_drop_retained, cattn_cache_prefault: memory while the cache is in use
 *   cattn_config.tier_dir   a file for K/V that memory cannot hold; then also cattn_cache_wait
 *   cattn_seq_export, cattn_seq_import: K/V go to another process
 *   cattn_seq_read          K and V of some tokens as numbers
 *   extra_hash and extras of a join: tokens whose K/V depend on more than tokens, such as images and adapters
 *   cattn_config.parallel, .allocator: threads and memory of the caller's own
 *   chunkattn_inspect.h     looking at the cache: cattn_stats, cattn_seq_info, its nodes, what a prompt would match
 *                           (cattn_cache_match, cattn_cache_explain), whether a request fits (cattn_cache_can_fit)
 *   chunkattn_pages.h       attention over an engine's own pages instead of a cache; experimental
 *   chunkattn_cuda.h        K and V on a CUDA device; experimental
 *
 * ---- Platforms ----
 *
 * Linux on x86-64 or aarch64, GCC or clang. Kernels for AVX2 and better are chosen at run time; on other CPUs, aarch64 among
 * them, portable ones run, which are slow.
 *
 * The environment variable CATTN_LEVEL limits the kernel level, as `level` of cattn_config does; CUDA_VISIBLE_DEVICES, which
 * CUDA reads, limits the devices. No other variable counts. The library neither prints nor exits.
 *
 * ---- Threads ----
 *
 * Each group of functions has a line "Threads":
 *   any     any thread may call them at any time, also while other calls on the same object run
 *   owner   calls on one object must not overlap, whichever threads make them; different objects are independent
 *
 * A call of an owner that overlaps another one on the same object, from a second thread or from a callback or hook that runs
 * inside a call, is refused with CATTN_ERR_STATE and changes nothing; a destroy that overlaps does nothing and leaves the
 * pointer as it is. The check costs one atomic exchange a call.
 *
 * The threads of a cache block all signals, and are named cattn-worker and cattn-tier.
 *
 * ---- fork(2) ----
 *
 * A child of fork(2) has a copy of each cache, and none of its threads. It may destroy the copy, which frees the child's memory
 * and touches neither the parent nor the file of the tier; cattn_cache_level, cattn_cache_export_bytes and cattn_cache_can_fit
 * answer as before, and every other call is refused with CATTN_ERR_STATE. If another thread of the parent was inside a call at
 * the fork, destroy only sets the pointer to NULL, and the memory stays until the child ends. A child may create caches of its
 * own. This holds for cattn_pages, too. Children that were not made by fork(2), but by clone(2) or _Fork, are not recognised.
 */
#ifndef CHUNKATTN_H
#define CHUNKATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CATTN_VERSION_MAJOR 0
#define CATTN_VERSION_MINOR 1
#define CATTN_VERSION_PATCH 0

/* A program that parses this header for a binding may define it to nothing. */
#ifndef CATTN_API
#define CATTN_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version, status, errors ------------------------------------------------------------------------------------- */

/* Threads: any. */

/* Version of the running library as "major.minor.patch"; static storage. Compare with CATTN_VERSION_* of this header. */
CATTN_API const char *cattn_version(void);

/* Zero is success, everything else negative. */
typedef enum cattn_status {
    CATTN_OK = 0,
    CATTN_ERR_ARG = -1,         /* an argument is out of range, foreign or contradictory */
    CATTN_ERR_NOMEM = -2,       /* the allocator or the operating system has no memory */
    CATTN_ERR_BUDGET = -3,      /* the cache's byte budget has no room, even after eviction */
    CATTN_ERR_STATE = -4,       /* a step is open, or none is, and the call needs the opposite; or "Threads" and "fork(2)" */
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
 * An impossible struct_size is CATTN_ERR_ARG. All other structs keep their fields as they are, but for those of the
 * experimental headers, which may change between any two versions and need CATTN_EXPERIMENTAL to be defined.
 */

/* ---- Configuration ------------------------------------------------------------------------------------------------ */

/* Threads: any. */

typedef enum cattn_type {
    CATTN_F32 = 0,
    CATTN_F16 = 1,
    CATTN_BF16 = 2,
    CATTN_I8 = 3, /* of kv_type only: 8-bit integers with a scale for each token and KV head, its largest |x| / 127 */
    /*
     * Of kv_type only, and on a CUDA device only (cattn_config.cuda): e4m3, 8-bit floats of 4 bits of exponent and 3 of
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
    const float *sink_logits;  /* [n_layers][n_heads of the layer] a logit that joins the softmax's denominator (and lse), with
                                  no value of its own; in the unit of s, within +-1e6; -INFINITY: that head has none */
    const float *alibi_slopes; /* [n_heads] s += slope * (key position - query position), in the unit of s, within +-1e6; not
                                  where layers differ in n_heads */
    /* Keep K and V, and attend, on a CUDA device: see chunkattn_cuda.h; NULL (default): on the CPU. Copied. */
    const struct cattn_cuda_config *cuda;
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
    /*
     * Layers that differ. Each array is [n_layers], copied, and replaces the field above whose name it has; NULL: that field
     * holds for all layers. A zero in layer_head_dim_v or layer_scale is the layer's default.
     */
    const int32_t *layer_n_heads;
    const int32_t *layer_n_kv_heads;
    const int32_t *layer_head_dim;
    const int32_t *layer_head_dim_v;
    const float *layer_scale;
    /*
     * [n_layers] the layer whose K and V a layer attends over: its own index or, where a model computes no K and V in it, that
     * of an earlier layer with as many KV heads of the same sizes, which has its own. Such a layer takes no memory, and is not
     * written. NULL: each layer has its own.
     */
    const int32_t *kv_source;
} cattn_config;

/* Fill *config with the defaults above; shape fields are zero and must be set. */
CATTN_API void cattn_config_init(cattn_config *config);

/* Name of the i-th kernel level this CPU can run, lowest ("ref") first; NULL past the last. Static storage. */
CATTN_API const char *cattn_level_name(int32_t i);

/* ---- Cache --------------------------------------------------------------------------------------------------------- */

/* Threads: owner, but cattn_cache_create and cattn_cache_level: any. */
typedef struct cattn_cache cattn_cache;

/*
 * Create an empty cache. *config is borrowed for the call only.
 *
 * Errors: CATTN_ERR_ARG names the field in the message; CATTN_ERR_NOMEM; CATTN_ERR_BUDGET if the budget does not hold one chunk
 * and the metadata; CATTN_ERR_UNSUPPORTED for a level or kv_type that this CPU lacks, and where the CUDA backend or driver is
 * missing, there is no device, or the device cannot run the kernels; CATTN_ERR_ARG if no device has the number cuda->device.
 * Of the file tier: CATTN_ERR_ARG names tier_dir or tier_bytes if the file cannot be opened, another cache has it, tier_bytes
 * holds no chunk, or the cache retains nothing; CATTN_ERR_UNSUPPORTED on a device; CATTN_ERR_NOMEM if the tier's threads
 * cannot be started. *cache is NULL then.
 */
CATTN_API cattn_status cattn_cache_create(const cattn_config *config, cattn_cache **cache, cattn_error *error);

/*
 * Free everything and set *cache to NULL; its sequences end. With a file tier, chunks of sequences that have left are still
 * written, for at most 5 seconds; sequences that are to be written must leave before. NULL and pointers to NULL are ignored.
 * "Threads" and "fork(2)" above say what it does while another call runs, and in a child process.
 */
CATTN_API void cattn_cache_destroy(cattn_cache **cache);

/* The kernel level in use; static storage. NULL for NULL. */
CATTN_API const char *cattn_cache_level(const cattn_cache *cache);

/*
 * Make memory for n_chunks free chunks resident before the steps that write them: the first write to a page waits until the
 * system has found and cleared it, which in a virtual machine may take longer than computing the tokens. A call prepares at
 * most 2 MB, so that an idle caller can return to other work. *more: whether it has prepared something; false if nothing is
 * left to do, the budget holds no more, or the system cannot do it (Linux before 5.14).
 *
 * Errors: CATTN_ERR_ARG for NULL or a negative n_chunks.
 */
CATTN_API cattn_status cattn_cache_prefault(cattn_cache *cache, int64_t n_chunks, bool *more, cattn_error *error);

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
 * further chunks fail with CATTN_ERR_BUDGET until sequences have left or the budget is raised. So may steps whose workspace
 * must grow, but not those of one row (cattn_step_begin). cattn_cache_can_fit still answers for the configured budget.
 *
 * Errors: CATTN_ERR_ARG for NULL or more than configured; CATTN_ERR_STATE while a step is open; CATTN_ERR_UNSUPPORTED on a
 * device.
 */
CATTN_API cattn_status cattn_cache_set_budget(cattn_cache *cache, uint64_t budget_bytes, cattn_error *error);

/*
 * Wait until a read of the file tier has ended, for at most `seconds`: for a caller whose next step would have no rows, since
 * all tokens that it could compute are on the way. *ended (may be NULL): whether a read has ended, whose tokens are ready then,
 * or, if it failed, can be claimed by a step; false if the time is over or no token is on the way.
 *
 * Errors: CATTN_ERR_ARG for NULL or negative seconds; CATTN_ERR_STATE while a step is open.
 */
CATTN_API cattn_status cattn_cache_wait(cattn_cache *cache, double seconds, bool *ended, cattn_error *error);

/* ---- Sequences ------------------------------------------------------------------------------------------------------ */

/* Threads: owner. */

/*
 * A running sequence. Values are never reused, so a sequence that has left is recognised; nor do two of the last 65,535 caches
 * of a process have a value in common, so one of another cache is, too. 0 is never valid.
 */
typedef uint64_t cattn_seq;

enum { CATTN_JOIN_NO_TIER = 1 }; /* neither the sequence nor its forks are read from the file tier or written to it */

/* A run of tokens whose K/V depend on more than tokens. */
typedef struct cattn_extra {
    int64_t first_pos; /* position of the first token */
    int64_t n_tokens;  /* >= 1 */
    uint64_t hash;     /* of what the K/V depend on, such as an image; not 0, which stands for none */
} cattn_extra;

enum { CATTN_MAX_ACCOUNTS = 256 };

typedef struct cattn_join_options {
    size_t struct_size;     /* set by cattn_join_options_init */
    uint32_t domain;        /* only sequences of one domain share; default 0 */
    int64_t reserve_tokens; /* reserve chunks for this many tokens after those of the join; default 0 */
    uint64_t flags;         /* 0 (default) or CATTN_JOIN_NO_TIER */
    /*
     * Two sequences share a token only if the extra hashes of it and of all tokens before it are equal, too. extra_hash is that
     * of the whole sequence, such as the hash of an adapter; extras are those of runs of tokens, such as the places of images,
     * ascending and without overlap. Tokens that are appended have none but with cattn_seqs_append. The hashes are the
     * caller's, and with 64 bits they are trusted: where a client could choose them, use a keyed hash. Files of the tier and
     * exports keep them. Both 0 (default): none.
     */
    uint64_t extra_hash;
    const cattn_extra *extras; /* [n_extras] borrowed for the call only */
    int64_t n_extras;
    /*
     * A join is refused if the budget, beside all chunks that are live or reserved then, would have no room for the plan and
     * workspace of a step of this many of its rows, or of all if it has fewer; 0 (default): 64; -1: no room is left, for
     * callers that repeat a step with fewer rows or let a sequence leave. Where no other sequence is in the cache it does not
     * count: cattn_cache_can_fit answers for that. Later appends, forks and reservations may take the room; steps of one row
     * begin all the same (cattn_step_begin).
     */
    int64_t max_step_rows;
    /*
     * For whom tokens of the sequence count while they are retained, from 0 (default) to CATTN_MAX_ACCOUNTS - 1: they count for
     * the account of the sequence that left with them last. Forks and pins have the account of their sequence. When memory is
     * needed, the worth of a leaf (with CATTN_RETAIN_LRU, 1 / age) is multiplied by its account's weight over the number of
     * that account's retained chunks. So an account that fills the cache evicts its own tokens first, and nothing is kept free
     * for one that is not used. With one account eviction is as without. Accounts share as the domains say, of which they are
     * independent; who may choose domains, such as a client with its salt, need not have an account for each.
     */
    uint32_t account;
    float account_weight; /* of the account from now on, 1e-6 to 1e6; 0 (default): what it was, and at first 1 */
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
 * Errors: CATTN_ERR_ARG (entry: index of a negative token, or of the extra at fault); CATTN_ERR_BUDGET with needed and
 * available chunks, or because no room would be left for a step (max_step_rows); CATTN_ERR_NOMEM; CATTN_ERR_STATE while a step
 * is open. *seq is 0 then. A call with extra hashes that fails may have evicted retained tokens for its table of them.
 */
CATTN_API cattn_status cattn_seq_join(cattn_cache *cache, const int32_t *tokens, int64_t n_tokens,
                                      const cattn_join_options *options, cattn_seq *seq, cattn_join_result *result,
                                      cattn_error *error);

/*
 * Add n_tokens >= 1 tokens at the end; steps compute their K/V. The tree is not searched for the same tokens. Errors as join.
 */
CATTN_API cattn_status cattn_seq_append(cattn_cache *cache, cattn_seq seq, const int32_t *tokens, int64_t n_tokens,
                                        cattn_error *error);

/* Tokens to add to a sequence. */
typedef struct cattn_append {
    cattn_seq seq;
    const int32_t *tokens; /* [n_tokens] */
    int64_t n_tokens;      /* >= 1 */
    uint64_t extra_hash;   /* of all of these tokens, as in cattn_extra; 0: none */
} cattn_append;

/*
 * As cattn_seq_append for n >= 0 sequences, in their order; one may occur several times. appends and tokens are borrowed for
 * the call only.
 *
 * All arguments are checked before anything changes. Without memory or budget for one of them, the call ends: those before it
 * are done. *n_done (may be NULL): how many are. Errors: as join; entry: the index of the append at fault.
 */
CATTN_API cattn_status cattn_seqs_append(cattn_cache *cache, const cattn_append *appends, int32_t n, int32_t *n_done,
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
 * Let the last token of a sequence be computed once more, by the sequence itself: it gets a row for the token in a step, whose
 * logits are those of the next token. For sequences that would get no such row: one that was imported whole, and a fork, whose
 * last token another sequence has computed or is to compute. The K/V of the other tokens stay shared.
 *
 * Errors: CATTN_ERR_ARG, also for a sequence of one token: let it leave and join with the token again; otherwise as join. With
 * CATTN_ERR_NOMEM the sequence may lack its last token.
 */
CATTN_API cattn_status cattn_seq_recompute_last(cattn_cache *cache, cattn_seq seq, cattn_error *error);

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

/* Threads: owner. */

/* Bytes of an export of n_tokens tokens from this cache. 0 for NULL, n_tokens < 1, and a cache on a device. */
CATTN_API uint64_t cattn_cache_export_bytes(const cattn_cache *cache, int64_t n_tokens);

/*
 * Export the first n_tokens tokens of a running sequence, from 1 to those that are ready. `write` gets the bytes in their
 * order, in parts of at most cattn_stats.chunk_bytes + 4096 bytes, each borrowed for the call of `write`. It returns 0, or
 * anything else to stop the export, and must not call the cache. Allocates memory for one part, which is freed at the end and
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
 * options, result: as for cattn_seq_join; the domain need not be that of the exported sequence. The export has its extra
 * hashes, so extra_hash and n_extras are 0. *result says what was in the cache before. options, result and error may be NULL.
 *
 * Errors: CATTN_ERR_DATA, with a message that says what is damaged or differs, and the index of a damaged record as entry;
 * CATTN_ERR_ARG, also where tier_fingerprint is 0; CATTN_ERR_BUDGET and CATTN_ERR_NOMEM as cattn_seq_join; CATTN_ERR_STATE
 * while a step is open; CATTN_ERR_UNSUPPORTED on a device. *seq is 0 then.
 */
CATTN_API cattn_status cattn_seq_import(cattn_cache *cache, const void *bytes, size_t n_bytes,
                                        const cattn_join_options *options, cattn_seq *seq, cattn_join_result *result,
                                        cattn_error *error);

/* ---- K and V as numbers ----------------------------------------------------------------------------------------------- */

/* Threads: owner. */

typedef struct cattn_view cattn_view; /* below */

/*
 * Copy K and V of the ready tokens [first_pos, first_pos + n_tokens) of a running sequence in one layer, as kernels see them:
 * what was written, rounded to kv_type. With CATTN_I8 a number is an integer times its token's scale.
 *
 * k: [n_tokens][n_kv_heads][head_dim], v: [n_tokens][n_kv_heads][head_dim_v], of any view type, to which the f32 numbers are
 * rounded to nearest even; each NULL if it is not wanted. They must not overlap. With n_tokens 0 nothing happens. Allocates
 * nothing.
 *
 * Errors: CATTN_ERR_ARG, also for tokens that are not ready; CATTN_ERR_STATE while a step is open; CATTN_ERR_UNSUPPORTED on a
 * device. k and v are untouched then.
 */
CATTN_API cattn_status cattn_seq_read(cattn_cache *cache, cattn_seq seq, int32_t layer, int64_t first_pos, int64_t n_tokens,
                                      const cattn_view *k, const cattn_view *v, cattn_error *error);

/* ---- Steps ----------------------------------------------------------------------------------------------------------- */

/* Threads: owner. */

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
 * On a CPU a step of at most one row never fails with CATTN_ERR_BUDGET: its plan and workspace exceed the budget if that has no
 * room for them, even after eviction. So whatever calls have succeeded before, a step of any entries begins with some
 * row_limit.
 *
 * Errors: CATTN_ERR_ARG (entry: the one that is foreign, listed twice or has max_rows < 1); CATTN_ERR_STATE when a step is
 * open already; CATTN_ERR_NOMEM; CATTN_ERR_BUDGET for the workspace, and retained tokens may have been evicted for it. No step
 * is open then, and the entries' out fields are undefined.
 */
CATTN_API cattn_status cattn_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n_entries, int64_t row_limit,
                                        cattn_error *error);

/*
 * A tensor [rows][heads][dim] of the caller's. Strides are in elements, each at least dim; the last dimension is contiguous.
 * Rows or heads may be the outer dimension. In a step without rows a view may be NULL or hold anything.
 *
 * Each view may be f32, f16 or bf16, whatever the others and kv_type are. Inputs are widened to f32, which is exact, and
 * outputs are rounded once, to nearest even, from the f32 result. So the bits are those that f32 views give where the caller
 * converts.
 */
struct cattn_view {
    void *data;      /* aligned to the element's size; inputs are only read */
    cattn_type type; /* CATTN_F32, CATTN_F16 or CATTN_BF16 */
    int64_t row_stride;
    int64_t head_stride;
};

/* The rows of the open step in their order, as arrays of the caller's. Each array may be NULL. */
typedef struct cattn_rows {
    size_t struct_size; /* set by the caller to sizeof(cattn_rows) */
    int64_t capacity;   /* in: elements of the arrays; at least the rows of the step */
    int64_t n_rows;     /* out: rows of the step */
    int32_t *tokens;    /* [n_rows] out: the token whose K/V are computed */
    int64_t *positions; /* [n_rows] out: its position in its sequence */
    int32_t *entries;   /* [n_rows] out: the index of its entry */
    bool *is_last;      /* [n_rows] out: it is the last token of its sequence, so its logits are those of the next one */
} cattn_rows;

/*
 * Fill *rows, and the arrays that it names, for the open step; also of a cache on a device. Allocates nothing.
 *
 * Errors: CATTN_ERR_ARG for a capacity that is too small, in which case n_rows is the one that is needed, and for a struct_size
 * that is not set; CATTN_ERR_STATE without an open step. The arrays are untouched then.
 */
CATTN_API cattn_status cattn_step_rows(const cattn_cache *cache, cattn_rows *rows, cattn_error *error);

/*
 * Write K and V of the step's rows for one layer.
 * k: [rows][n_kv_heads][head_dim], v: [rows][n_kv_heads][head_dim_v], of any view type. They may overlap, or be the same, as in
 * models whose values are their keys. Borrowed for the call only. A layer that is written again has what was written last.
 * Errors: CATTN_ERR_ARG, also for a layer that has the K/V of an earlier one (kv_source); CATTN_ERR_STATE without an open step;
 * CATTN_ERR_UNSUPPORTED for a type that no view may have.
 */
CATTN_API cattn_status cattn_step_write(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v,
                                        cattn_error *error);

/*
 * Attend each row of the step over all tokens of its sequence up to and including its own, or over those that it sees under the
 * layer's window and n_sink_tokens. Call it after cattn_step_write for the layer, or for its kv_source; it may be called again
 * with other queries, and need not be called at all.
 *
 * q: [rows][n_heads][head_dim]; out: [rows][n_heads][head_dim_v]; of any view type each. No byte of out may be one of q, of
 * lse, or of another element of out; all three may be parts of one tensor. lse: [rows][n_heads] f32 contiguous, log-sum-exp in
 * base 2 of the scores after scale and options, with the sink logit if there is one; may be NULL. Query head i uses KV head i /
 * (n_heads / n_kv_heads).
 *
 * Borrows its arguments for the call only; allocates nothing. Errors as cattn_step_write, and CATTN_ERR_STATE if the layer was
 * not written in this step; out and lse are untouched then.
 * Source: ChunkAttention (arXiv 2402.15220), two-phase partition.
 */
CATTN_API cattn_status cattn_step_attend(cattn_cache *cache, int32_t layer, const cattn_view *q, const cattn_view *out,
                                         float *lse, cattn_error *error);

/*
 * Close the step: the claimed tokens are ready for all. If the step has rows, every layer that has K/V of its own must have
 * been written.
 *
 * Errors: CATTN_ERR_ARG for NULL; CATTN_ERR_STATE without an open step, and if a layer was not written: the step stays open, so
 * that the layer can be written or the step aborted. On a device that is not checked, since a graph may have written the layer.
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
