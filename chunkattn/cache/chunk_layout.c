/* The tiles of a chunk: the shapes of the layers, and where each layer's tiles begin. */
#include "chunk_layout.h"

#include <assert.h>
#include <math.h>

static int32_t value_of(const int32_t *by_layer, int32_t of_all, int32_t layer) { return by_layer ? by_layer[layer] : of_all; }

ca_heads ca_heads_of(const cattn_config *c, int32_t layer) {
    ca_heads h = {.n_heads = value_of(c->layer_n_heads, c->n_heads, layer),
                  .n_kv_heads = value_of(c->layer_n_kv_heads, c->n_kv_heads, layer),
                  .d_k = value_of(c->layer_head_dim, c->head_dim, layer),
                  .d_v = value_of(c->layer_head_dim_v, c->head_dim_v, layer),
                  .scale = c->layer_scale ? c->layer_scale[layer] : c->scale};
    if (h.d_v == 0) h.d_v = h.d_k;
    if (h.scale == 0) h.scale = (float)(1 / sqrt((double)h.d_k));
    return h;
}

static bool is_shape_of(const ca_shape *s, const ca_heads *h) {
    return s->n_heads == h->n_heads && s->n_kv_heads == h->n_kv_heads && s->tiles.d_k == h->d_k && s->tiles.d_v == h->d_v &&
           s->scale == h->scale;
}

/* The index of the shape with these heads, which is added if no layer has had it yet. */
static int32_t find_shape(ca_chunk_layout *l, const ca_heads *h) {
    int32_t i = 0;
    while (i < l->n_shapes && !is_shape_of(&l->shapes[i], h)) i++;
    if (i < l->n_shapes) return i;
    ca_shape *s = &l->shapes[l->n_shapes++];
    *s = (ca_shape){.n_heads = h->n_heads, .n_kv_heads = h->n_kv_heads, .scale = h->scale};
    ca_layout_init(&s->tiles, l->type, h->d_k, h->d_v, l->c);
    l->has_open = l->has_open || s->tiles.open_words > 0;
    if (s->tiles.tile_bytes > l->tile_bytes) l->tile_bytes = s->tiles.tile_bytes;
    return i;
}

static void add_layer(ca_chunk_layout *l, const cattn_config *config, int32_t i) {
    const ca_heads heads = ca_heads_of(config, i);
    ca_layer *layer = &l->layers[i];
    *layer = (ca_layer){.shape = find_shape(l, &heads),
                        .source = value_of(config->kv_source, i, i),
                        .first_head = l->n_heads,
                        .begin = l->chunk_bytes};
    l->n_heads += heads.n_heads;
    if (layer->source == i)
        l->chunk_bytes += (size_t)heads.n_kv_heads * l->shapes[layer->shape].tiles.tile_bytes;
    else
        layer->begin = l->layers[layer->source].begin;
}

cattn_status ca_chunk_layout_init(ca_chunk_layout *l, const cattn_config *config, int c, ca_alloc *alloc) {
    assert(config->n_layers > 0);
    const size_t n = (size_t)config->n_layers;
    *l = (ca_chunk_layout){.type = config->kv_type, .c = c, .log2_c = __builtin_ctz((unsigned)c), .n_layers = config->n_layers};
    l->layers = ca_new(alloc, n, sizeof *l->layers);
    l->shapes = ca_new(alloc, n, sizeof *l->shapes);
    if (!l->layers || !l->shapes) {
        ca_chunk_layout_free(l, alloc);
        return CATTN_ERR_NOMEM;
    }
    for (int32_t i = 0; i < l->n_layers; i++) add_layer(l, config, i);
    return CATTN_OK;
}

void ca_chunk_layout_free(ca_chunk_layout *l, ca_alloc *alloc) {
    ca_delete(alloc, l->layers, (size_t)l->n_layers, sizeof *l->layers);
    ca_delete(alloc, l->shapes, (size_t)l->n_layers, sizeof *l->shapes);
    *l = (ca_chunk_layout){0};
}
