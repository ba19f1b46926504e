/*
 * A backend: what keeps K and V, writes them and attends to them. It is one table of functions, through which the public calls
 * go, for caches and for foreign pages; no other code asks which backend a handle has. The tables are ca_backend_cpu
 * (chunkattn/api/backend_cpu.c) and ca_backend_cuda (chunkattn/api/backend_cuda.c).
 *
 * An entry is NULL where the backend lacks it. The entry's comment says what that means: nothing is to be done, or the call is
 * refused (chunkattn/api/backends.h).
 *
 * A `stream` is what orders a device's work; it is NULL on the CPU. Unless an entry says otherwise, its arguments have been
 * checked, it returns CATTN_OK or fills *error, and a failure changes nothing. Threads: as the public calls.
 */
#ifndef CHUNKATTN_ATTN_BACKEND_H
#define CHUNKATTN_ATTN_BACKEND_H

#include "attn.h"
#include "chunkattn.h"
#include "chunkattn/base/threads.h"

typedef struct ca_backend ca_backend;
struct cattn_pages; /* chunkattn_pages.h, as the next one */
struct cattn_page_view;
struct ca_device;          /* chunkattn/cuda/device.h */
struct ca_file_tier_hooks; /* chunkattn/api/file_tier.h */

/* The part of a cache, or of a cattn_pages, that its backend computes with. */
typedef struct ca_compute {
    const ca_backend *backend;
    int32_t cuda_device; /* -1: on the CPU */
    const char *level;
    int32_t n_threads;        /* on the CPU, as the next three */
    ca_pool *threads;         /* owned; NULL with a cattn_parallel hook */
    cattn_parallel parallel;  /* the hook, or that of `threads` */
    ca_attn attn;             /* without workers before it is initialised */
    struct ca_device *device; /* owned; NULL on the CPU */
} ca_compute;

/* Public calls whose names begin alike, for messages. */
typedef struct ca_calls {
    const char *prefix, *header;
} ca_calls;

struct ca_backend {
    const char *name;      /* in messages, with the number of a device behind it */
    const char *choice;    /* what to do to get a handle on it */
    ca_calls steps, pages; /* its public calls */
    int64_t max_tokens;    /* of a sequence */

    /* ---- Caches and foreign pages ---- */

    /*
     * Free what create_cache and create_pages put into *compute, which may be partly filled, or zero. inherited: this process
     * is a child of the one that has created it, where there are no threads, and no device may be used.
     */
    void (*destroy)(ca_compute *compute, bool inherited);

    /* How plans are made for layers of a shape, by its index, without a window. */
    ca_plan_config (*plan_config)(const ca_compute *compute, const cattn_config *config, int32_t shape);

    /* One more plan, for layers of a shape, will be updated. Returns 0, or -1 without memory. NULL: nothing is kept for a plan.
     */
    int (*add_plan)(ca_compute *compute, int32_t shape);

    /* Check the alignment of a view that is otherwise right; `name` is the argument's. NULL: any will do. */
    cattn_status (*check_alignment)(const char *name, const cattn_view *view, int64_t n_rows, int32_t n_heads,
                                    cattn_error *error);

    /* ---- Caches ---- */

    /* The part of a budget that is for chunks, whose memory create_cache gets. NULL: all of it, and the pool has the memory. */
    uint64_t (*chunk_budget)(uint64_t budget_bytes);

    /*
     * Fill cache->compute, which is as ca_compute_for returns it. Layout and pool are there; the config is resolved.
     * CATTN_ERR_ARG or CATTN_ERR_UNSUPPORTED for what the backend or the machine cannot do; CATTN_ERR_NOMEM. `destroy` frees
     * what a failure leaves.
     */
    cattn_status (*create_cache)(cattn_cache *cache, const cattn_config *config, cattn_error *error);

    /* Bytes beside the chunks that count against the budget. */
    uint64_t (*other_bytes)(const cattn_cache *cache);

    /* A ca_kv_executor's `run`; ctx is the cache. NULL: K/V commands wait for a step. */
    void (*execute)(void *ctx, const ca_kv_command *commands, size_t n);

    /*
     * The most bytes of workspace that a step of n_rows rows of one sequence of n_tokens tokens needs and does not have. NULL:
     * the budget is not for workspace.
     */
    size_t (*most_bytes)(const cattn_cache *cache, int64_t n_tokens, int64_t n_rows);

    /*
     * Get the memory that the updated plans need, after the cache had bytes_before bytes; n_after is the most K/V commands
     * behind the rows. may_exceed: the step begins even where the budget has no room. CATTN_ERR_BUDGET or CATTN_ERR_NOMEM.
     * Chunks may have been evicted.
     */
    cattn_status (*reserve)(cattn_cache *cache, size_t bytes_before, size_t n_after, bool may_exceed, cattn_error *error);

    /* Queue what comes before the step's rows, whose places are known now. NULL: nothing is queued. */
    cattn_status (*begin)(cattn_cache *cache, cattn_error *error);

    /* Write and attend the rows, at least one, of the open step in one layer. Views as in cattn_step_write and _attend. */
    cattn_status (*write)(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v, void *stream,
                          cattn_error *error);
    cattn_status (*attend)(cattn_cache *cache, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse,
                           void *stream, cattn_error *error);

    /* Whether the open step has written a layer. NULL: it is not known, since the caller may have replayed a graph. */
    bool (*has_written)(const cattn_cache *cache, int32_t layer);

    /* The open step ends, or is aborted if not `ready`. NULL: nothing is left to do. */
    void (*end)(cattn_cache *cache, bool ready);

    /* Free what steps keep for the next one; a step begins. */
    void (*release)(ca_compute *compute);

    /* Free it between two steps, with the step's own memory. NULL: it stays, since only a step has a stream. */
    void (*trim)(cattn_cache *cache);

    /* cattn_cache_set_budget, with a budget that is below the configured one. NULL: refused. */
    void (*set_budget)(cattn_cache *cache, uint64_t budget_bytes);

    /* ca_export and ca_import (chunkattn/api/export.h). NULL: refused. */
    cattn_status (*export_seq)(cattn_cache *cache, const ca_seq *seq, int64_t n_tokens,
                               int (*write)(void *ctx, const void *bytes, size_t n_bytes), void *ctx, cattn_error *error);
    cattn_status (*import_seq)(cattn_cache *cache, const void *bytes, size_t n_bytes, const cattn_join_options *options,
                               cattn_seq *seq, cattn_join_result *result, cattn_error *error);

    /* As cattn_seq_read, for at least one token; k and v may be NULL (chunkattn/api/read.h). NULL: refused. */
    void (*read_seq)(cattn_cache *cache, const ca_seq *seq, int32_t layer, int64_t first_pos, int64_t n_tokens,
                     const cattn_view *k, const cattn_view *v);

    /* ca_file_tier_open (chunkattn/api/file_tier.h). NULL: a config with a tier is refused. */
    cattn_status (*open_tier)(cattn_cache *cache, const cattn_config *config, const struct ca_file_tier_hooks *hooks,
                              cattn_error *error);

    /* ---- Foreign pages ---- */

    /* As create_cache, for pages->compute and what else attends to foreign pages. */
    cattn_status (*create_pages)(struct cattn_pages *pages, const cattn_config *config, cattn_error *error);

    /* Check the alignment of a view of pages. NULL: any will do. */
    cattn_status (*check_page_alignment)(const struct cattn_pages *pages, const char *name, const struct cattn_page_view *view,
                                         int32_t n_kv_heads, cattn_error *error);

    /* Attend the rows, at least one, of the plan in one layer. Views as in cattn_pages_attend. */
    cattn_status (*attend_pages)(struct cattn_pages *pages, int32_t layer, const struct cattn_page_view *k,
                                 const struct cattn_page_view *v, const cattn_view *q, const cattn_view *out, float *lse,
                                 void *stream, cattn_error *error);
};

#endif
