/*
 * int8 chunks that come in several pieces, put together in one tile.
 *
 * Pieces begin at even slots, so one may begin in the middle of a quad of V, which dot products take whole. Copying costs less
 * than a second form of each product, and such chunks are few: one a branch.
 */
#ifndef LIB_ATTN_X86_GATHER_H
#define LIB_ATTN_X86_GATHER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/attn/kernels.h"
#include "lib/cache/layout.h"

static inline size_t int8_tile_bytes(int32_t d, int32_t c) { return ca_layout_scales(d, c) + (size_t)c * sizeof(float); }

/* The scales [c] behind an int8 tile. */
static inline const float *int8_scales(const void *tile, int32_t d, int32_t c) {
    return (const float *)((const char *)tile + ca_layout_scales(d, c));
}

/* Slots [begin, end) of V, begin even. The rest of the last quad comes along: later pieces write over it, or no row sees it. */
static inline void gather_values(char *to, const char *from, int32_t d_v, int32_t begin, int32_t end) {
    const ptrdiff_t quad_bytes = (ptrdiff_t)d_v * 4;
    ptrdiff_t quad = begin / 4;
    if (begin % 4 != 0) {
        uint16_t *pairs = (uint16_t *)(to + quad * quad_bytes);
        const uint16_t *pairs_from = (const uint16_t *)(from + quad * quad_bytes);
        for (int32_t i = 1; i < 2 * d_v; i += 2) pairs[i] = pairs_from[i];
        quad++;
    }
    for (; quad * 4 < end; quad++) memcpy(to + quad * quad_bytes, from + quad * quad_bytes, (size_t)quad_bytes);
}

/* One piece of all, up to slot `end`, in room for a K and a V tile. */
static inline ca_piece gather_pieces(const ca_tile *t, int32_t end, char *room) {
    const ptrdiff_t c = t->c;
    const size_t k_scales = ca_layout_scales(t->d_k, t->c), v_scales = ca_layout_scales(t->d_v, t->c);
    char *k = room, *v = room + int8_tile_bytes(t->d_k, t->c);
    for (const ca_piece *p = t->pieces; p < t->pieces + t->n_pieces && p->begin < end; p++) {
        const char *from_k = p->k, *from_v = p->v;
        const int32_t last = p->end < end ? p->end : end;
        const size_t at = (size_t)p->begin * 4, bytes = (size_t)(last - p->begin) * 4; /* of a quad line, and of scales */
        for (ptrdiff_t line = 0; line < t->d_k * c; line += 4 * c) memcpy(k + line + at, from_k + line + at, bytes);
        memcpy(k + k_scales + at, from_k + k_scales + at, bytes);
        memcpy(v + v_scales + at, from_v + v_scales + at, bytes);
        gather_values(v, from_v, t->d_v, p->begin, last);
    }
    return (ca_piece){k, v, 0, end};
}

#endif
