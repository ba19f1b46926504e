/*
 * What a chunk holds: the tiles of all layers and KV heads. Layers may differ in their heads and head sizes, so tiles may
 * differ in their bytes. A layer that attends over the K/V of an earlier one has no tiles of its own.
 *
 *   layer 0: 2 KV heads of 64        layer 1: 1 KV head of 128        layer 2: kv_source is 0
 *   [K V][K V]                       [K   V   ]                       -
 *
 * All functions may be called from any thread.
 */
#ifndef CHUNKATTN_CACHE_CHUNK_LAYOUT_H
#define CHUNKATTN_CACHE_CHUNK_LAYOUT_H

#include <stdbool.h>

#include "chunkattn/base/alloc.h"
#include "layout.h"

/* The attention of a layer. Layers that are alike have the same one. */
typedef struct ca_shape {
    int32_t n_heads, n_kv_heads;
    float scale;     /* multiplies q.k before softmax */
    ca_layout tiles; /* of a KV head */
} ca_shape;

typedef struct ca_layer {
    int32_t shape;  /* index in shapes */
    int32_t source; /* the layer whose tiles it has: its own index, or that of an earlier layer of the same shape of tiles */
    int32_t first_head; /* query heads of all layers before it */
    size_t begin;       /* bytes of the tiles that stand before its first one in a chunk */
} ca_layer;

typedef struct ca_chunk_layout {
    cattn_type type;
    int c, log2_c;
    int32_t n_layers, n_shapes;
    ca_layer *layers;   /* [n_layers] */
    ca_shape *shapes;   /* [n_shapes] the different ones, in the order in which layers have them first */
    int32_t n_heads;    /* query heads of all layers */
    bool has_open;      /* some tiles have open slot groups */
    size_t tile_bytes;  /* of the largest K tile and its V tile */
    size_t chunk_bytes; /* of all tiles */
} ca_chunk_layout;

/* Where a KV head's tiles are in a chunk, and their bytes (ca_chunk_tile). */
typedef struct ca_tile_at {
    size_t begin, bytes;
} ca_tile_at;

/* The heads of a layer as a config says, with its defaults; n_heads and so on may be anything. */
typedef struct ca_heads {
    int32_t n_heads, n_kv_heads, d_k, d_v;
    float scale;
} ca_heads;
ca_heads ca_heads_of(const cattn_config *config, int32_t layer);

/*
 * Make the layout of a valid config with chunks of c slots. CATTN_ERR_NOMEM leaves *l empty. *alloc is borrowed;
 * ca_chunk_layout_free needs the same.
 */
cattn_status ca_chunk_layout_init(ca_chunk_layout *l, const cattn_config *config, int c, ca_alloc *alloc);
void ca_chunk_layout_free(ca_chunk_layout *l, ca_alloc *alloc);

static inline const ca_shape *ca_shape_of(const ca_chunk_layout *l, int32_t layer) {
    return &l->shapes[l->layers[layer].shape];
}

/* Whether a layer has tiles of its own. */
static inline bool ca_layer_stores(const ca_chunk_layout *l, int32_t layer) { return l->layers[layer].source == layer; }

/* The tiles that a KV head of a layer attends over. */
static inline ca_tile_at ca_tile_of(const ca_chunk_layout *l, int32_t layer, int32_t head) {
    const size_t bytes = ca_shape_of(l, layer)->tiles.tile_bytes;
    return (ca_tile_at){l->layers[layer].begin + (size_t)head * bytes, bytes};
}

/* The tiles of a chunk in their order, each once: *layer and *head begin as 0 and -1. False past the last. */
static inline bool ca_next_tile(const ca_chunk_layout *l, int32_t *layer, int32_t *head) {
    if (++*head < ca_shape_of(l, *layer)->n_kv_heads && ca_layer_stores(l, *layer)) return true;
    do ++*layer;
    while (*layer < l->n_layers && !ca_layer_stores(l, *layer));
    *head = 0;
    return *layer < l->n_layers;
}

#endif
