/* Attention over foreign pages on the CPU: workers pack pages into tiles, from which the kernels read: see backend_cpu.h. */
#include "backend_cpu.h"
#include "chunkattn/attn/prefetch.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/pages/handle.h"

/* ---- Tiles ---- */

enum { QUARTER = CA_PAGE_CHUNK / CA_PAGE_QUARTERS }; /* tokens that lie in one page */

/* The rows of a quarter of a chunk, of K or of V: the first token's; NULL if the table ends before it. */
static const char *rows_of(const cattn_pages *p, const cattn_page_view *view, ca_chunk_id chunk, int32_t quarter,
                           int32_t head) {
    const int64_t place = ca_page_plan_find(&p->plan, chunk, quarter), size = (int64_t)ca_type_size(p->layout.type);
    if (place < 0) return NULL;
    const int64_t page = place >> p->plan.log2_quarters, slot = (place - (page << p->plan.log2_quarters)) * QUARTER;
    return (const char *)view->data + (page * view->page_stride + slot * view->token_stride + head * view->head_stride) * size;
}

CA_PREFETCH void prefetch_rows(const cattn_pages *p, const cattn_page_view *view, const char *rows, int32_t n, int32_t d) {
    const size_t size = ca_type_size(p->layout.type);
    for (int32_t i = 0; i < n; i++) ca_prefetch_bytes(rows + i * view->token_stride * (ptrdiff_t)size, (size_t)d * size);
}

static int32_t tokens_of(int32_t n_slots, int32_t quarter) {
    const int32_t left = n_slots - quarter * QUARTER;
    return left < 0 ? 0 : left < QUARTER ? left : QUARTER;
}

/* As ca_tile_source.announce: the chunk is only noted here, and prefetched while the next one is packed. */
static void announce(const void *ctx, int32_t worker, int32_t head, ca_chunk_id chunk, int32_t n_slots) {
    ca_page_worker *w = &((const cattn_pages *)ctx)->workers[worker];
    w->next_head = head;
    w->next_chunk = chunk;
    w->n_next = n_slots;
}

/* Prefetch a quarter of the chunk that was announced. */
static void prefetch_next(const cattn_pages *p, const ca_page_worker *w, const ca_layout *l, int32_t quarter) {
    const int32_t n = tokens_of(w->n_next, quarter);
    if (n == 0) return;
    prefetch_rows(p, &p->k, rows_of(p, &p->k, w->next_chunk, quarter, w->next_head), n, l->d_k);
    prefetch_rows(p, &p->v, rows_of(p, &p->v, w->next_chunk, quarter, w->next_head), n, l->d_v);
}

/* As ca_tile_source.pack. Tokens that no row sees are packed up to a multiple of 8, for the kernels write 8 at once. */
static const char *pack(const void *ctx, int32_t worker, int32_t head, ca_chunk_id chunk, int32_t n_slots) {
    const cattn_pages *p = ctx;
    ca_page_worker *w = &p->workers[worker];
    const ca_layout *l = &ca_shape_of(&p->layout, p->layer)->tiles;
    ca_write to = {.d_k = l->d_k,
                   .d_v = l->d_v,
                   .c = l->c,
                   .type = l->type,
                   .k_stride = p->k.token_stride,
                   .v_stride = p->v.token_stride,
                   .k_tile = w->tile,
                   .v_tile = w->tile + l->k_bytes};
    for (int32_t quarter = 0; quarter < CA_PAGE_QUARTERS; quarter++) {
        prefetch_next(p, w, l, quarter);
        to.slot = quarter * QUARTER;
        to.n = (tokens_of(n_slots, quarter) + 7) / 8 * 8;
        if (to.n == 0) continue;
        to.k = rows_of(p, &p->k, chunk, quarter, head);
        to.v = rows_of(p, &p->v, chunk, quarter, head);
        p->compute.attn.kernel->write(&to);
    }
    w->n_next = 0;
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
    p->source = (ca_tile_source){pack, announce, p, 1};
    const cattn_status s = ca_cpu_start(&p->compute, config, &p->layout, NULL, &p->source, &p->alloc, error);
    if (s) return s;
    if (create_workers(p)) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the workers' scratch");
    return CATTN_OK;
}

/*
 * Heads of a token that lie behind one another. A head's rows in pages of which each has a token of all heads are in many pages
 * of memory, whose addresses take longer to translate than the rows to read.
 */
static int32_t heads_together(const cattn_pages *p, const cattn_page_view *k) {
    const ca_shape *s = ca_shape_of(&p->layout, p->layer);
    return k->head_stride == s->tiles.d_k && k->token_stride > k->head_stride ? s->n_kv_heads : 1;
}

cattn_status ca_cpu_attend_pages(cattn_pages *p, int32_t layer, const cattn_page_view *k, const cattn_page_view *v,
                                 const cattn_view *q, const cattn_view *out, float *lse, void *stream, cattn_error *error) {
    (void)stream, (void)error;
    p->layer = layer;
    p->k = *k;
    p->v = *v;
    p->source.heads_together = heads_together(p, k);
    ca_attn_run(&p->compute.attn, &p->plan.plans.at[p->layer_plan[layer]], layer, q, out, lse);
    return CATTN_OK;
}
