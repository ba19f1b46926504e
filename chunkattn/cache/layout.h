/*
 * The packed layout of K and V: where each element of one KV head is in the tiles of a chunk. It does not depend on the
 * instruction set.
 *
 * A chunk holds c consecutive positions of all layers and KV heads. Position p has slot p mod c. For each layer and KV head
 * there is a K tile, followed by a V tile; each begins at a multiple of 64 bytes. chunk_layout.h says which tiles a chunk has,
 * and chunk_pool.h where they are.
 *
 *   bf16      K [d_k/2][c][2]   V [c/2][d_v][2]   neighbours in d (K) or in c (V) form a pair, for bf16 dot products
 *   f16, f32  K [d_k][c]        V [c][d_v]
 *   int8      K [d_k/4][c][4]   V [c/4][d_v][4]   quads, for int8 dot products; each tile is followed by its scales, f32 [c]
 *
 * In K, tokens run across vector lanes; in V, head dimensions do.
 *
 * A word is 4 bytes: a float, a pair or a quad; in f16, an element. The K of a single token is thus one word of each line, far
 * apart. While tokens are added one by one, a slot group (CA_SLOT_GROUP slots) is therefore open: 16 neighbouring words of a
 * token are contiguous and fill a cache line, because every block of 16 x 16 words is transposed:
 *
 *   closed   word 16 j + i of slot 16 g + s is in line 16 j + i, at slot 16 g + s
 *   open                                    is in line 16 j + s, at slot 16 g + i      for words below open_words
 *
 * V, scales, and the words from open_words on, which fill no block, are the same in open and closed groups. Which groups of a
 * chunk are open is a set of bits (ca_chunk.open). f16 and chunks of fewer than CA_SLOT_GROUP slots have no open groups:
 * open_words is 0.
 *
 * int8: the k or v of a token and head is n[i] * scale with -127 <= n[i] <= 127 and scale = max |x| / 127. There is one scale
 * for each token and head, and none for a chunk, so what is stored of a token does not depend on its neighbours. V holds n as a
 * signed byte. K holds n + 128 as an unsigned byte, since int8 dot products multiply unsigned bytes by signed ones. Drawn for
 * d_k = 8, c = 8, byte by byte (slot.dimension; scales have 4 bytes):
 *
 *   K    0: 0.0 0.1 0.2 0.3  1.0 1.1 1.2 1.3 ... 7.3      V    0: 0.0 1.0 2.0 3.0  0.1 1.1 2.1 3.1 ... 3.7
 *       32: 0.4 0.5 0.6 0.7  1.4 1.5 1.6 1.7 ... 7.7          32: 4.0 5.0 6.0 7.0  4.1 5.1 6.1 7.1 ... 7.7
 *       64: scale of slot 0, of slot 1, ...                   64: scale of slot 0, of slot 1, ...
 *
 * If max |x| / 127 is below the smallest normal float, scale and n are 0. If any x is NaN or infinite, scale is NaN and n is 0,
 * so every row that sees the token gets NaN.
 *
 * e4m3 is on CUDA devices only, which have layouts of their own (chunkattn/cuda/tile.cuh, chunkattn/cuda/e4m3.cuh). Only the
 * sizes here are theirs, too: elements and scales take as many bytes as those of int8.
 *
 * All functions may be called from any thread.
 */
#ifndef CHUNKATTN_CACHE_LAYOUT_H
#define CHUNKATTN_CACHE_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "chunkattn.h"

enum {
    CA_SLOT_GROUP = 16,               /* slots of a slot group, which are open or closed together */
    CA_LOG2_SEGMENT = 10,             /* of the next */
    CA_SEGMENT = 1 << CA_LOG2_SEGMENT /* positions over which one state is summed; a multiple of every chunk size */
};

typedef struct ca_layout {
    cattn_type type;
    int d_k, d_v;
    int c;             /* slots of a chunk: a power of two, at most 32 slot groups */
    int open_words;    /* words of a token's K that are transposed in an open group; a multiple of CA_SLOT_GROUP */
    size_t k_bytes;    /* of a K tile */
    size_t v_bytes;    /* of a V tile */
    size_t tile_bytes; /* of a K tile and its V tile */
} ca_layout;

/* d_k must be even; for int8, d_k and c must be multiples of 4. */
void ca_layout_init(ca_layout *l, cattn_type type, int d_k, int d_v, int c);

/* Bytes of an element, without its scale. */
static inline size_t ca_type_size(cattn_type type) {
    return type == CATTN_F32 ? 4 : type == CATTN_I8 || type == CATTN_E4M3 ? 1 : 2;
}

/* The name of a type in chunkattn.h, for messages. */
const char *ca_type_name(cattn_type type);

/* Elements of a pair or quad: neighbours in d (K) or in c (V); 1 if there are none. */
static inline size_t ca_type_neighbours(cattn_type type) { return type == CATTN_I8 ? 4 : type == CATTN_BF16 ? 2 : 1; }

/* The bit of a slot's group in a set of open groups, and the bits of all groups that slots [0, n) touch. */
static inline uint32_t ca_slot_group_bit(int slot) { return UINT32_C(1) << slot / CA_SLOT_GROUP; }
static inline uint32_t ca_slot_group_bits(int n) { return n > 0 ? 2 * ca_slot_group_bit(n - 1) - 1 : 0; }

/* Index, in elements, of dimension i of a slot's token in its K or V tile. `open`: the chunk's open groups. */
static inline size_t ca_layout_k_index(const ca_layout *l, uint32_t open, int slot, int i) {
    const int n = (int)ca_type_neighbours(l->type), word = i / n;
    const int transposed =
        word < l->open_words && (open & ca_slot_group_bit(slot)) ? slot % CA_SLOT_GROUP - word % CA_SLOT_GROUP : 0;
    return (size_t)(((word + transposed) * l->c + slot - transposed) * n + i % n);
}
static inline size_t ca_layout_v_index(const ca_layout *l, int slot, int i) {
    const size_t n = ca_type_neighbours(l->type), at = (size_t)slot;
    return (at / n * (size_t)l->d_v + (size_t)i) * n + at % n;
}

/* Offset, in bytes, of the scales [c] of an int8 tile of d dimensions, K or V. */
static inline size_t ca_layout_scales(int d, int c) { return (size_t)d * (size_t)c; }

/*
 * Write one token's k [d_k] and v [d_v], f32, to a slot of the tiles at k_tile and v_tile, rounded to nearest even. For int8,
 * n[i] is x[i] * (127 / max |x|), rounded. `open`: the chunk's open groups. The result depends on nothing else; not even on the
 * floating-point mode, unless some x is denormal.
 */
void ca_layout_write(const ca_layout *l, void *k_tile, void *v_tile, uint32_t open, int slot, const float *k, const float *v);

/* The same in reverse: the k [d_k] of a slot of the tile at k_tile, and the v [d_v] of one at v_tile, as kernels see them. */
void ca_layout_read_k(const ca_layout *l, const void *k_tile, uint32_t open, int slot, float *k);
void ca_layout_read_v(const ca_layout *l, const void *v_tile, int slot, float *v);

#endif
