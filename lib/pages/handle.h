/* The parts of a cattn_pages, and reading the caller's batch. */
#ifndef LIB_PAGES_HANDLE_H
#define LIB_PAGES_HANDLE_H

#include "base/threads.h"
#include "chunkattn_pages.h"
#include "lib/attn/attn.h"
#include "lib/cache/layout.h"
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
    int32_t n_pages;  /* as configured */
    ca_pool *threads; /* NULL where the caller brings its own */
    cattn_parallel parallel;
    ca_layout layout; /* of packed tiles; a chunk is a page */
    ca_attn attn;
    ca_tile_source source;
    ca_page_worker *workers; /* [n_threads] */
    ca_page_seqs seqs;       /* of the batch being planned */
    int64_t n_rows;          /* of the last plan, as is `plan` */
    ca_page_plan plan;
    int32_t *layer_plan;  /* [n_layers] index in plan.plans */
    cattn_page_view k, v; /* during an attend */
};

/*
 * Check a batch and put its sequences into pages->seqs. *n_rows: rows of all. CATTN_ERR_ARG with the sequence at fault, or
 * CATTN_ERR_NOMEM.
 */
cattn_status ca_pages_read_batch(cattn_pages *pages, const cattn_pages_batch *batch, int64_t *n_rows, cattn_error *error);

#endif
