/* Reading K and V: see read.h. */
#include "read.h"

#include <string.h>

#include "chunkattn/attn/view.h"

enum { MAX_DIM = 512 };

typedef struct reading {
    const cattn_cache *cache;
    int32_t layer;
    int64_t first_pos;
    const cattn_view *k, *v; /* NULL: not wanted */
} reading;

/* Store x [dim] as a row's head of a view. */
static void put(const reading *r, const cattn_view *view, int64_t row, int32_t head, const float *x, int32_t dim) {
    void *to = ca_view_at(view, row, head);
    if (view->type == CATTN_F32)
        memcpy(to, x, (size_t)dim * sizeof *x);
    else
        r->cache->compute.attn.kernel->narrow(view->type, x, dim, to);
}

/* The tokens of a place, in one KV head. start: the position of the chunk's first slot. */
static void read_head(const reading *r, const ca_place *place, int64_t start, int32_t head) {
    const ca_layout *l = &ca_shape_of(&r->cache->layout, r->layer)->tiles;
    const char *tile = ca_chunk_tile(r->cache->pool, place->chunk, ca_tile_of(&r->cache->layout, r->layer, head));
    const uint32_t open = ca_chunk_open(r->cache->pool, place->chunk);
    float x[MAX_DIM];
    for (int32_t slot = place->begin; slot < place->end; slot++) {
        const int64_t row = start + slot - r->first_pos;
        if (r->k) {
            ca_layout_read_k(l, tile, open, slot, x);
            put(r, r->k, row, head, x, l->d_k);
        }
        if (r->v) {
            ca_layout_read_v(l, tile + l->k_bytes, slot, x);
            put(r, r->v, row, head, x, l->d_v);
        }
    }
}

void ca_read(cattn_cache *c, const ca_seq *seq, int32_t layer, int64_t first_pos, int64_t n_tokens, const cattn_view *k,
             const cattn_view *v) {
    const reading r = {c, layer, first_pos, k, v};
    const int64_t size = c->layout.c, last = first_pos + n_tokens;
    ca_kv_carry_out(ca_tree_pending(c->tree)); /* what is copied must be there */
    for (int64_t begin = first_pos, end; begin < last; begin = end) {
        const int64_t start = begin / size * size;
        end = ca_min(start + size, last);
        ca_place places[CA_MAX_PLACES];
        const int32_t n = ca_path_places(c->tree, seq->leaf, begin, end, places);
        for (int32_t i = 0; i < n; i++)
            for (int32_t head = 0; head < ca_shape_of(&c->layout, layer)->n_kv_heads; head++)
                read_head(&r, &places[i], start, head);
    }
}
