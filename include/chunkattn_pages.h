/*
 * libchunkattn for engines that keep K and V in pages of their own: attention over foreign pages.
 *
 * EXPERIMENTAL: this interface may still change between any two versions.
 *
 * An engine with a paged K/V cache (vLLM, FlashInfer, SGLang) has its own allocator and block tables. It keeps both. Once a
 * step it passes the block tables of its batch. The library compares page ids, finds the runs of pages that several sequences
 * have in common, and makes a plan. Each layer is then one call, which attends over the engine's pages in two phases: a page
 * that several sequences share is read once for all of their rows, then each sequence continues over its own pages.
 *
 *   cattn_pages_config_init(&config);                    set page_size, and the shape in config.common
 *   cattn_pages_create(&config, &pages, &error);
 *   for each step {
 *       cattn_pages_plan(pages, &batch, &error);         the block tables, once
 *       for each layer {
 *           the engine writes K and V of the step's rows into its pages
 *           cattn_pages_views(pages, layer, CATTN_PAGES_VLLM, kv[layer], n_pages, &k, &v, &error);
 *           cattn_pages_attend(pages, layer, &k, &v, &q, &out, lse, &error);
 *       }
 *   }
 *   cattn_pages_destroy(&pages);
 *
 * What is shared: two sequences share a page if and only if their tables have equal ids at its index and at all indices before
 * it. Equal ids at one index therefore mean equal K and V at the positions that both sequences have. A page that is still being
 * filled may be shared, as after a fork: each row sees the slots up to its own position. Ids may be reused for other content at
 * any time, since a plan depends on nothing but the tables that it gets. Attention passes over chunks of 64 tokens, which are
 * read once for the sequences that share all their pages: of smaller pages, up to 48 tokens before the first page that differs
 * are read by each sequence.
 *
 * Exact: the bits of a row's result are those that a cattn_cache with the default chunk_size, 64, gives for the same K and V.
 * They do not depend on the other rows and sequences of the batch, the threads, the sharing mode, page ids, or the size and
 * layout of the pages.
 *
 * What is kept from plan to plan: the tables, sorted by their ids. A plan compares each table with its previous contents (4
 * bytes for each page) and processes only the differences. Sequences may enter and leave the batch, grow, shrink and change
 * places in it. If no sequence has entered another page or another chunk, only positions are updated. A batch that is no larger
 * than those before it allocates nothing.
 *
 * Threads: owner, as chunkattn.h defines it; cattn_pages_config_init, cattn_pages_create and cattn_pages_level: any.
 *
 * Devices: with config.common.cuda the pages are in a CUDA device's memory, and cattn_cuda_pages_plan and
 * cattn_cuda_pages_attend of chunkattn_cuda.h replace cattn_pages_plan and cattn_pages_attend.
 *
 * Source: ChunkAttention (arXiv 2402.15220), two-phase partition. docs/library.md, "Foreign pages", is a guide.
 */
#ifndef CHUNKATTN_PAGES_H
#define CHUNKATTN_PAGES_H

#ifndef CATTN_EXPERIMENTAL
#error "chunkattn_pages.h may still change between any two versions; define CATTN_EXPERIMENTAL before it and chunkattn.h"
#endif

#include "chunkattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Configuration ------------------------------------------------------------------------------------------------- */

/* Fill with cattn_pages_config_init, set the shape, change what you need. */
typedef struct cattn_pages_config {
    int32_t page_size; /* tokens of a page: 16 (default), 32, 64 or 128 */
    int32_t n_pages;   /* ids from here on are refused; 0 (default): no limit but the device's */
    /*
     * Shape, options of the model's attention, threads, level, allocator and device, as for a cache, but:
     *   n_layers: those that have a shape or options of their own (layer_head_dim, windows, sink_logits, ...); default 1, which
     *     serves all layers.
     *   kv_type: the type of K and V in the pages, CATTN_F32, CATTN_F16 or CATTN_BF16.
     *   sharing: CATTN_SHARED: a shared page is read once. CATTN_SHARED_STORAGE: each sequence reads it for itself, neighbours
     *     one after the other. CATTN_PRIVATE: tables are not compared.
     *   chunk_size, retention, budget_bytes, pin_bytes, kv_source and the fields of the file tier have no meaning here.
     */
    cattn_config common;
} cattn_pages_config;

/* Fill *config with the defaults above; shape fields are zero and must be set. */
CATTN_API void cattn_pages_config_init(cattn_pages_config *config);

/* ---- Handle -------------------------------------------------------------------------------------------------------- */

/* The tables and the plan of the present batch, with workspace and threads. It holds no K and V. */
typedef struct cattn_pages cattn_pages;

/*
 * Create a handle without a plan. *config is borrowed for the call only.
 *
 * Errors: CATTN_ERR_ARG names the field in the message; CATTN_ERR_NOMEM; CATTN_ERR_UNSUPPORTED for a level that this CPU lacks,
 * and where the CUDA backend or driver is missing, there is no device, or the device cannot run the kernels;
 * CATTN_ERR_ARG if no device has the number common.cuda->device. *pages is NULL then.
 */
CATTN_API cattn_status cattn_pages_create(const cattn_pages_config *config, cattn_pages **pages, cattn_error *error);

/* Free everything and set *pages to NULL. NULL and pointers to NULL are ignored. */
CATTN_API void cattn_pages_destroy(cattn_pages **pages);

/* The kernel level in use, "cuda" on a device; static storage. NULL for NULL. */
CATTN_API const char *cattn_pages_level(const cattn_pages *pages);

/* ---- Plan: once a step ---------------------------------------------------------------------------------------------- */

/*
 * The sequences of a step. A row is one new token of a sequence. The rows of sequence i are its last ones: with length n and r
 * rows they are at positions n - r to n - 1, and a row sees all positions up to its own (causal). Any mixture of decoding,
 * prefill segments and verification of drafts is one batch. Row order is that of the sequences: all rows of sequence 0 first.
 *
 * The table of sequence i has an id for each page_size positions from 0 on. Entries behind its last page may be anything.
 *
 * Zero the struct, set struct_size and the pointers. All arrays are borrowed for the call only.
 *
 *                   vLLM                             FlashInfer
 *   page_ids        block_table                      kv_page_indices
 *   page_stride     block_table.stride(0)            0
 *   page_indptr     NULL                             kv_page_indptr
 *   seq_lens        seq_lens                         NULL, or lengths
 *   last_page_lens  NULL                             kv_last_page_len, or NULL
 *   query_indptr    query_start_loc                  qo_indptr; NULL for decoding
 */
typedef struct cattn_pages_batch {
    size_t struct_size;         /* set by the caller to sizeof(cattn_pages_batch) */
    int32_t n_seqs;             /* >= 0 */
    const int32_t *page_ids;    /* [n_seqs][page_stride], or [page_indptr[n_seqs]] */
    int64_t page_stride;        /* elements from one sequence's table to the next; without page_indptr */
    const int32_t *page_indptr; /* [n_seqs + 1] ascending: sequence i has ids [page_indptr[i], page_indptr[i + 1]); or NULL */
    const int32_t *seq_lens;    /* [n_seqs] tokens, those of the step's rows included */
    const int32_t *last_page_lens; /* [n_seqs] tokens in the last page, 1 to page_size: with page_indptr, instead of seq_lens */
    const int32_t *query_indptr; /* [n_seqs + 1] ascending: sequence i has query_indptr[i + 1] - query_indptr[i] rows, which may
                                    be 0; NULL: one row each */
} cattn_pages_batch;

/*
 * Plan the attention of a batch: find what its sequences share and divide the work among the threads. K and V are not read, so
 * the engine may write them before or after this call.
 *
 * Call it whenever lengths, tables or rows have changed: before the first layer of each step. It allocates only if the batch is
 * larger than those before it, or its sequences are longer.
 *
 * Errors: CATTN_ERR_ARG (entry: the sequence at fault) for an id that is negative or not below n_pages, a length beyond the
 * sequence's pages, more rows than tokens, an indptr that descends, or a missing array; CATTN_ERR_ARG without an entry if the
 * number of sequences times the chunks of the longest one exceeds 2^31; CATTN_ERR_NOMEM. After an error the previous plan
 * remains, unless there is no memory left for its workspace; then there is no plan.
 */
CATTN_API cattn_status cattn_pages_plan(cattn_pages *pages, const cattn_pages_batch *batch, cattn_error *error);

/* What the last plan shares. The two counts of pages are for one layer and KV head: each reference and each read counts. */
typedef struct cattn_pages_info {
    size_t struct_size;       /* set by the caller to sizeof(cattn_pages_info) */
    int64_t n_rows;           /* of the batch */
    int64_t pages_referenced; /* sum over the sequences with rows of the pages that hold their positions */
    int64_t pages_read;       /* the same with each shared page once, if sharing is CATTN_SHARED; windows are not considered,
                                 nor that chunks of 64 tokens are read */
    int64_t shared_runs;      /* runs of consecutive pages that the same sequences, at least two, have in common */
    int64_t shared_pages;     /* pages of these runs, each once */
    int64_t n_plans;          /* plans made so far */
    int64_t n_kept;           /* of those, plans in which only positions within pages had changed */
} cattn_pages_info;

/* Fill *info; zeros without a plan. Errors: CATTN_ERR_ARG for NULL or a struct_size that is not set. */
CATTN_API cattn_status cattn_pages_get_info(const cattn_pages *pages, cattn_pages_info *info);

/* ---- Attend: once a layer ------------------------------------------------------------------------------------------- */

/*
 * K or V of one layer in the caller's pages: the first of the d consecutive elements of KV head h in slot t of page p is
 * data[p * page_stride + t * token_stride + h * head_stride]. Strides in elements; d is head_dim for K, head_dim_v for V.
 * d = head size, H = n_kv_heads, S = page_size, N = number of pages:
 *
 *   memory                            page_stride   token_stride   head_stride   V begins at
 *   vLLM         [2][N][S][H][d]      S H d         H d            d             N S H d
 *   vLLM, HND    [2][N][H][S][d]      S H d         d              S d           N S H d
 *   FlashInfer   [N][2][S][H][d]      2 S H d       H d            d             S H d
 *   FlashInfer   [N][2][H][S][d]      2 S H d       d              S d           S H d
 *   SGLang       K, V: [N S][H][d]    S H d         H d            d             its own tensor
 *
 * cattn_pages_views fills the first four. Rows of d elements are plain: what kernels of a CPU backend have packed within a page
 * for themselves cannot be read.
 */
typedef struct cattn_page_view {
    const void *data; /* of the config's kv_type */
    int64_t page_stride;
    int64_t token_stride; /* at least d */
    int64_t head_stride;  /* at least d */
} cattn_page_view;

typedef enum cattn_page_layout {
    CATTN_PAGES_VLLM = 0,     /* [2][n_pages][page_size][n_kv_heads][head_dim] */
    CATTN_PAGES_NHD = 1,      /* [n_pages][2][page_size][n_kv_heads][head_dim] */
    CATTN_PAGES_HND = 2,      /* [n_pages][2][n_kv_heads][page_size][head_dim] */
    CATTN_PAGES_VLLM_HND = 3, /* [2][n_pages][n_kv_heads][page_size][head_dim] */
} cattn_page_layout;

/*
 * Fill the views of K and V for a layer's pages at kv, contiguous in one of the layouts above. n_pages: the pages of that
 * memory.
 *
 * Errors: CATTN_ERR_ARG for NULL, a layer or layout that does not exist, n_pages < 1, or head_dim_v other than head_dim.
 */
CATTN_API cattn_status cattn_pages_views(const cattn_pages *pages, int32_t layer, cattn_page_layout layout, const void *kv,
                                         int64_t n_pages, cattn_page_view *k, cattn_page_view *v, cattn_error *error);

/*
 * Attend the rows of the last plan in one layer. The caller has written K and V of all positions below the sequences' lengths;
 * slots behind them may hold anything. May be called any number of times after one plan, for different layers or queries.
 *
 * layer: whose windows and sink_logits count, 0 to n_layers - 1.
 * k, v:  pages of this layer.
 * q:     [rows][n_heads][head_dim], of any view type.
 * out:   [rows][n_heads][head_dim_v], of any view type. No byte of it may be one of q, of lse, or of another element of out;
 *        nor may it be one of the pages, which is not checked.
 * lse:   [rows][n_heads] f32 contiguous, log-sum-exp in base 2 of the scores after scale and options, with the sink logit if
 *        there is one, as FlashInfer's; NULL if not wanted.
 * Query head i uses KV head i / (n_heads / n_kv_heads).
 *
 * Borrows its arguments for the call only; allocates nothing. A plan without rows writes nothing.
 *
 * Errors: CATTN_ERR_ARG names the argument; CATTN_ERR_STATE without a plan; CATTN_ERR_UNSUPPORTED for a type of q or out that
 * is not offered. out and lse are untouched then.
 */
CATTN_API cattn_status cattn_pages_attend(cattn_pages *pages, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                          const cattn_view *q, const cattn_view *out, float *lse, cattn_error *error);

#ifdef __cplusplus
}
#endif

#endif
