/* The parts of a cattn_pages, reading the caller's batch, and checking the arguments of an attend. */
#ifndef CHUNKATTN_PAGES_HANDLE_H
#define CHUNKATTN_PAGES_HANDLE_H

#include "chunkattn/attn/attn.h"
#include "chunkattn/base/threads.h"
#include "chunkattn/cache/layout.h"
#include "chunkattn/cuda/device.h"
#include "chunkattn_pages.h"
#include "page_plan.h"

/* A worker's packed tile, and the page that it will pack next. */
typedef struct ca_page_worker {
    _Alignas(64) char *tile; /* K, with V behind it */
    int32_t next_head, next_page;
    int32_t n_next; /* tokens of it; 0: none is announced */
} ca_page_worker;

typedef CA_ARRAY(ca_page_seq) ca_page_seqs;

struct cattn_pages {
    ca_alloc alloc;
    const char *level;
    int32_t n_threads;
    int64_t most_ids;    /* ids from here on are refused */
    int32_t most_tokens; /* of a sequence */
    ca_pool *threads;    /* NULL where the caller brings its own, and on a device */
    cattn_parallel parallel;
    ca_layout layout;       /* of packed tiles; a chunk is a page */
    ca_layout chunk_layout; /* of the plan's chunks: the same, but on a device they have 64 slots */
    ca_attn attn;           /* on a device only `group` is set */
    ca_tile_source source;
    ca_page_worker *workers;    /* [n_threads]; NULL on a device */
    ca_device *device;          /* owned; NULL: on the CPU */
    ca_page_source page_source; /* on a device */
    ca_page_seqs seqs;          /* of the batch being planned */
    int64_t n_rows;             /* of the last plan, as is `plan` */
    ca_page_plan plan;
    int32_t *layer_plan;  /* [n_layers] index in plan.plans */
    cattn_page_view k, v; /* during an attend */
};

/*
 * Check a batch and put its sequences into pages->seqs. *n_rows: rows of all. CATTN_ERR_ARG with the sequence at fault, or
 * CATTN_ERR_NOMEM.
 */
cattn_status ca_pages_read_batch(cattn_pages *pages, const cattn_pages_batch *batch, int64_t *n_rows, cattn_error *error);

/*
 * Whether the handle is where a call expects it: on a device, or on the CPU. CATTN_ERR_ARG names the call to use, which ends in
 * `call` on both.
 */
cattn_status ca_pages_check_place(const cattn_pages *pages, bool on_device, const char *call, cattn_error *error);

/*
 * Check what attends on CPU and device have in common: that there is a plan, the layer, and both views of pages unless the plan
 * has no rows. Errors as cattn_pages_attend.
 */
cattn_status ca_pages_check_attend(const cattn_pages *pages, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                   cattn_error *error);

#endif
