/* The parts of a cattn_pages, and what its calls have in common on all backends (chunkattn/api/pages.c, pages_batch.c). */
#ifndef CHUNKATTN_PAGES_HANDLE_H
#define CHUNKATTN_PAGES_HANDLE_H

#include "chunkattn/attn/backend.h"
#include "chunkattn/base/guard.h"
#include "chunkattn_pages.h"
#include "page_plan.h"

/* A worker's packed tile, and the chunk that it will pack next. */
typedef struct ca_page_worker {
    _Alignas(64) char *tile; /* K, with V behind it */
    int32_t next_head;
    ca_chunk_id next_chunk;
    int32_t n_next; /* leading slots of it; 0: none is announced */
} ca_page_worker;

typedef CA_ARRAY(ca_page_seq) ca_page_seqs;

struct cattn_pages {
    ca_guard guard;
    ca_alloc alloc;
    ca_compute compute;
    int64_t most_ids;        /* ids from here on are refused */
    int32_t most_tokens;     /* of a sequence */
    ca_chunk_layout layout;  /* of the plan's chunks, into which a CPU packs pages */
    ca_tile_source source;   /* on the CPU, as the next one */
    ca_page_worker *workers; /* [n_threads] */
    ca_page_seqs seqs;       /* of the batch being planned */
    int64_t n_rows;          /* of the last plan, as is `plan` */
    ca_page_plan plan;
    int32_t *layer_plan; /* [n_layers] index in plan.plans */
    /* During an attend, on the CPU. */
    int32_t layer;
    cattn_page_view k, v;
};

/*
 * Check a call of backend `of` that plans a batch, and put the batch's sequences into pages->seqs. *n_rows: rows of all.
 * CATTN_ERR_ARG with the sequence at fault, or CATTN_ERR_NOMEM.
 */
cattn_status ca_pages_read_batch(cattn_pages *pages, const ca_backend *of, const cattn_pages_batch *batch, int64_t *n_rows,
                                 cattn_error *error);

/* As cattn_pages_attend, for a call of backend `of`. */
cattn_status ca_pages_attend(cattn_pages *pages, const ca_backend *of, int32_t layer, const cattn_page_view *k,
                             const cattn_page_view *v, const cattn_view *q, const cattn_view *out, float *lse, void *stream,
                             cattn_error *error);

#endif
