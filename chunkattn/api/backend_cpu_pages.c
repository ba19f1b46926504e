/* Attention over foreign pages on the CPU: workers pack pages into tiles, from which the kernels read: see backend_cpu.h. */
#include "backend_cpu.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/pages/handle.h"
#include "chunkattn/pages/page_pack.h"

/* ---- Tiles ---- */

static ca_page_rows rows_of(const cattn_pages *p, const cattn_page_view *view, int32_t page, int32_t head) {
    const int64_t size = (int64_t)ca_type_size(p->layout.type);
    return (ca_page_rows){(const char *)view->data + (page * view->page_stride + head * view->head_stride) * size,
                          view->token_stride * size};
}

/* As ca_tile_source.announce: the page is only noted here, and prefetched while the next one is packed. */
static void announce(const void *ctx, int32_t worker, int32_t head, ca_chunk_id page, int32_t n) {
    ca_page_worker *w = &((const cattn_pages *)ctx)->workers[worker];
    w->next_head = head;
    w->next_page = page;
    w->n_next = n;
}

/* As ca_tile_source.pack. */
static const char *pack(const void *ctx, int32_t worker, int32_t head, ca_chunk_id page, int32_t n) {
    const cattn_pages *p = ctx;
    ca_page_worker *w = &p->workers[worker];
    const ca_layout *l = &ca_shape_of(&p->layout, p->layer)->tiles;
    ca_page_pack copy = {.type = l->type,
                         .d_k = l->d_k,
                         .d_v = l->d_v,
                         .c = l->c,
                         .n = n,
                         .k = rows_of(p, &p->k, page, head),
                         .v = rows_of(p, &p->v, page, head),
                         .k_tile = w->tile,
                         .v_tile = w->tile + l->k_bytes,
                         .n_next = w->n_next};
    if (w->n_next > 0) {
        copy.next_k = rows_of(p, &p->k, w->next_page, w->next_head);
        copy.next_v = rows_of(p, &p->v, w->next_page, w->next_head);
    }
    w->n_next = 0;
    ca_pack_page(&copy);
    return w->tile;
}

/* ---- Entries of the table ---- */

static cattn_status create_workers(cattn_pages *p) {
    p->workers = ca_new_zero(&p->alloc, (size_t)p->compute.n_threads, sizeof *p->workers);
    if (!p->workers) return CATTN_ERR_NOMEM;
    for (int32_t i = 0; i < p->compute.n_threads; i++) {
        p->workers[i].tile = ca_new_zero(&p->alloc, 1, p->layout.tile_bytes);
        if (!p->workers[i].tile) return CATTN_ERR_NOMEM;
    }
    return CATTN_OK;
}

cattn_status ca_cpu_create_pages(cattn_pages *p, const cattn_config *config, cattn_error *error) {
    const cattn_status s = ca_cpu_start(&p->compute, config, &p->layout, NULL, &p->alloc, error);
    if (s) return s;
    if (create_workers(p)) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the workers' scratch");
    p->source = (ca_tile_source){pack, announce, p};
    p->compute.attn.source = &p->source;
    return CATTN_OK;
}

cattn_status ca_cpu_attend_pages(cattn_pages *p, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                 const cattn_view *q, const cattn_view *out, float *lse, void *stream, cattn_error *error) {
    (void)stream, (void)error;
    p->layer = layer;
    p->k = *k;
    p->v = *v;
    ca_attn_run(&p->compute.attn, &p->plan.plans.at[p->layer_plan[layer]], layer, q, out, lse);
    return CATTN_OK;
}
