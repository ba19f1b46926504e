/*
 * Where each element of K and V sits in a chunk: the packed layout, version 2. Does not depend on the instruction set.
 *
 * A chunk holds c consecutive positions of all layers and K/V heads. Position p sits in slot p mod c. For each layer and K/V
 * head there is a K tile and behind it a V tile, each aligned to 64 bytes (where, chunk_pool.h knows):
 *
 *   bf16      K [d_k/2][c][2]   V [c/2][d_v][2]   two neighbours in d (K) or in c (V) make a pair for bf16 dot products
 *   f16, f32  K [d_k][c]        V [c][d_v]
 *   int8      K [d_k/4][c][4]   V [c/4][d_v][4]   four make a quad for int8 dot products; behind each tile [c] scales, f32
 *
 * In K tokens run across vector lanes, in V head dimensions do.
 *
 * So a single token's K is one word (4 bytes: a float, pair or quad) of each line, far from each other. While tokens come one
 * by one, a group of CA_GROUP slots is therefore open: 16 neighbouring words of a token stand together, a cache line. Every
 * block of 16 x 16 words is transposed:
 *
 *   closed   word 16 j + i of slot 16 g + s in line 16 j + i, at slot 16 g + s
 *   open                                    in line 16 j + s, at slot 16 g + i      for words below open_words
 *
 * V, scales, and the words from open_words on, which fill no block, are the same in both. Which groups of a chunk are open is a
 * set of bits beside the chunk (ca_chunk). There are no open groups of f16, nor where c < CA_GROUP: open_words is 0.
 *
 * int8: a token's k or v of one head is n[i] * scale with -127 <= n[i] <= 127 and scale = max |x| / 127: a scale a token and
 * head, never a chunk, so that what is stored of a token does not depend on its neighbours. V holds n, a signed byte; K holds
 * n + 128, unsigned, since int8 dot products multiply unsigned bytes with signed ones. Drawn for d_k = 8, c = 8, byte by byte
 * (slot.dimension; 4-byte scales):
 *
 *   K    0: 0.0 0.1 0.2 0.3  1.0 1.1 1.2 1.3 ... 7.3      V    0: 0.0 1.0 2.0 3.0  0.1 1.1 2.1 3.1 ... 3.7
 *       32: 0.4 0.5 0.6 0.7  1.4 1.5 1.6 1.7 ... 7.7          32: 4.0 5.0 6.0 7.0  4.1 5.1 6.1 7.1 ... 7.7
 *       64: scale of slot 0, of slot 1, ...                   64: scale of slot 0, of slot 1, ...
 *
 * Where max |x| / 127 is below the smallest normal float, scale and n are 0. Where any x is NaN or infinite, scale is NaN and
 * n is 0: every row that sees the token gets NaN.
 */
#ifndef LIB_CACHE_LAYOUT_H
#define LIB_CACHE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "chunkattn.h"

enum {
    CA_GROUP = 16,    /* slots that are open, or closed, together */
    CA_SEGMENT = 1024 /* positions over which one state is summed; a multiple of every chunk size */
};

typedef struct ca_layout {
    cattn_type type;
    int n_layers, n_kv_heads, d_k, d_v;
    int c; /* slots a chunk, a power of two, at most 32 groups */
    int log2_c;
    int open_words;     /* of a token's K, those that stand together in an open group; a multiple of CA_GROUP */
    size_t k_bytes;     /* one K tile */
    size_t v_bytes;     /* one V tile */
    size_t tile_bytes;  /* both */
    size_t n_tiles;     /* of both, a chunk: one for each layer and head */
    size_t chunk_bytes; /* all of them */
} ca_layout;

void ca_layout_init(ca_layout *l, cattn_type type, int n_layers, int n_kv_heads, int d_k, int d_v, int c);

/* Bytes of an element, without its share of a scale. */
static inline size_t ca_type_size(cattn_type type) { return type == CATTN_F32 ? 4 : type == CATTN_I8 ? 1 : 2; }

/* Number of the K tile of (layer, head), and the V tile behind it, in a chunk. */
static inline size_t ca_layout_tile(const ca_layout *l, int layer, int head) {
    return (size_t)layer * (size_t)l->n_kv_heads + (size_t)head;
}

/* Elements that stand together before the next lane's: neighbours in d (K) or in c (V). */
static inline size_t ca_type_neighbours(cattn_type type) { return type == CATTN_I8 ? 4 : type == CATTN_BF16 ? 2 : 1; }

/* A slot's group among a chunk's open ones, and the groups that slots [0, n) are in. */
static inline uint32_t ca_group_bit(int slot) { return UINT32_C(1) << slot / CA_GROUP; }
static inline uint32_t ca_group_bits(int n) { return n > 0 ? 2 * ca_group_bit(n - 1) - 1 : 0; }

/* Index, in elements, of dimension i of the token in a slot, within its K or V tile. */
static inline size_t ca_layout_k_index(const ca_layout *l, uint32_t open, int slot, int i) {
    const int n = (int)ca_type_neighbours(l->type), word = i / n;
    const int turned = word < l->open_words && (open & ca_group_bit(slot)) ? slot % CA_GROUP - word % CA_GROUP : 0;
    return (size_t)(((word + turned) * l->c + slot - turned) * n + i % n);
}
static inline size_t ca_layout_v_index(const ca_layout *l, int slot, int i) {
    const size_t n = ca_type_neighbours(l->type), at = (size_t)slot;
    return (at / n * (size_t)l->d_v + (size_t)i) * n + at % n;
}

/* Offset in bytes of the scales [c] of an int8 tile of d dimensions, K or V. */
static inline size_t ca_layout_scales(int d, int c) { return (size_t)d * (size_t)c; }

/*
 * Write one token's k [d_k] and v [d_v], f32, into the tiles at k_tile and v_tile, rounded to the type to nearest even. For
 * int8 n[i] is x[i] * (127 / max |x|), rounded. `open`: the K tile's open groups. The result depends on nothing else, not on
 * the floating-point mode either where no x is denormal.
 */
void ca_layout_write(const ca_layout *l, void *k_tile, void *v_tile, uint32_t open, int slot, const float *k, const float *v);

#endif
