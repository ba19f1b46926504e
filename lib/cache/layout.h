/*
 * Where each element of K and V sits in a chunk: the packed layout, version 1. Does not depend on the instruction set.
 *
 * A chunk holds c consecutive positions of all layers and K/V heads. Position p sits in slot p mod c. For each layer, then
 * each K/V head, there is a K tile and behind it a V tile, each aligned to 64 bytes:
 *
 *   bf16      K [d_k/2][c][2]   V [c/2][d_v][2]   two neighbours in d (K) or in c (V) make a pair for bf16 dot products
 *   f16, f32  K [d_k][c]        V [c][d_v]
 *
 * In K tokens run across vector lanes, in V head dimensions do.
 */
#ifndef LIB_CACHE_LAYOUT_H
#define LIB_CACHE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "chunkattn.h"

enum {
    CA_LAYOUT_VERSION = 1,
    CA_SEGMENT = 1024 /* positions over which one state is summed; a multiple of every chunk size */
};

typedef struct ca_layout {
    cattn_type type;
    int n_layers, n_kv_heads, d_k, d_v;
    int c; /* slots a chunk, a power of two */
    int log2_c;
    size_t k_bytes;     /* one K tile */
    size_t v_bytes;     /* one V tile */
    size_t chunk_bytes; /* all layers and heads */
} ca_layout;

void ca_layout_init(ca_layout *l, cattn_type type, int n_layers, int n_kv_heads, int d_k, int d_v, int c);

static inline size_t ca_type_size(cattn_type type) { return type == CATTN_F32 ? 4 : 2; }

/* Offset in a chunk of the K tile of (layer, head); the V tile is k_bytes behind it. */
static inline size_t ca_layout_k(const ca_layout *l, int layer, int head) {
    return ((size_t)layer * (size_t)l->n_kv_heads + (size_t)head) * (l->k_bytes + l->v_bytes);
}
static inline size_t ca_layout_v(const ca_layout *l, int layer, int head) { return ca_layout_k(l, layer, head) + l->k_bytes; }

/* Index, in elements, of dimension i of the token in a slot, within its K or V tile. */
static inline size_t ca_layout_k_index(const ca_layout *l, int slot, int i) {
    if (l->type == CATTN_BF16) return ((size_t)(i / 2) * (size_t)l->c + (size_t)slot) * 2 + (size_t)(i % 2);
    return (size_t)i * (size_t)l->c + (size_t)slot;
}
static inline size_t ca_layout_v_index(const ca_layout *l, int slot, int i) {
    if (l->type == CATTN_BF16) return ((size_t)(slot / 2) * (size_t)l->d_v + (size_t)i) * 2 + (size_t)(slot % 2);
    return (size_t)slot * (size_t)l->d_v + (size_t)i;
}

/* Copy K and V of one slot, all layers and heads, from one chunk to the same slot of another. */
void ca_layout_copy_slot(const ca_layout *l, void *dst, const void *src, int slot);

/* Write one token's k [d_k] and v [d_v], f32, into the tiles at k_tile and v_tile, rounded to the type to nearest even. */
void ca_layout_write(const ca_layout *l, void *k_tile, void *v_tile, int slot, const float *k, const float *v);

#endif
