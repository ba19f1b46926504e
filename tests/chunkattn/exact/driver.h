/*
 * Runs a world: first each sequence alone, each of its query heads alone where that is possible, which gives what is expected
 * of every row, and agrees with double precision (reference.h); then all rounds of the plan, whose rows must have the same
 * bits.
 */
#ifndef TESTS_CHUNKATTN_EXACT_DRIVER_H
#define TESTS_CHUNKATTN_EXACT_DRIVER_H

#include "world.h"

#include "chunkattn_pages.h"

/* Where K and V are and attention is computed: the calls that depend on it, and its memory. */
typedef struct backend {
    const struct cattn_cuda_config *cuda; /* NULL: the CPU */
    uint64_t budget_bytes;
    int most_rows;    /* of a sequence in a batch over foreign pages; 0: no limit */
    int most_pending; /* layers that may be computed later */
    bool aligned;     /* tensors are as aligned as memory is; otherwise as their elements */
    int page_gap;     /* elements between tokens in the layout of pages with gaps */
    void *(*alloc)(size_t bytes, const char *name);
    void (*free)(void *p);
    void (*finish)(void); /* until all that was begun has been computed */

    /* A round begins, all of its memory has been freed, and its device has another stream; NULL: nothing is to be done. */
    void (*open)(const plan_round *how);
    void (*close)(const plan_round *how, int64_t *counts);
    void (*other_stream)(void);
    bool (*allocation_failed)(void); /* one of the device's memory has, in this round; NULL: it has none */
    bool counts_wgmma;               /* `close` counts the products by wgmma, so rows may require some */

    cattn_status (*begin)(cattn_cache *cache, cattn_entry *entries, int32_t n, int64_t row_limit, cattn_error *error);
    cattn_status (*write)(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v, cattn_error *error);
    cattn_status (*attend)(cattn_cache *cache, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse,
                           cattn_error *error);
    cattn_status (*plan_pages)(cattn_pages *pages, const cattn_pages_batch *batch, cattn_error *error);
    cattn_status (*attend_pages)(cattn_pages *pages, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                 const cattn_view *q, const cattn_view *out, float *lse, cattn_error *error);
} backend;

/* What runs did, summed up, but for the largest error. */
typedef enum count {
    COUNT_ROWS, /* that were compared */
    COUNT_RESTORED,
    COUNT_WRITTEN,
    COUNT_REFUSED,
    COUNT_ERRORS,
    COUNT_WAITS,
    COUNT_PROMPT_ENDS, /* times that a restore was seen whose prompt ends with its last chunk */
    COUNT_SHARED_RUNS, /* of foreign pages */
    COUNT_KEPT,        /* plans of foreign pages in which only positions had changed */
    COUNT_IMPORTED,
    COUNT_FAILED, /* calls, for lack of memory */
    COUNT_FAULTY, /* rounds in which an allocation has failed */
    COUNT_WGMMA,
    COUNT_WORST_ERROR, /* in thousandths of what is allowed */
    N_COUNTS,
} count;

extern const char *const count_names[N_COUNTS];

/* Run a plan, and add to counts [N_COUNTS]. Ends with plan_fail when something is wrong. */
void world_run(const plan *p, const backend *b, int64_t *counts);

#endif
