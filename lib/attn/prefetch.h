/* Asking memory for some slots of a K and V tile at once. Whole tiles are asked for little by little, by the kernels. */
#ifndef LIB_ATTN_PREFETCH_H
#define LIB_ATTN_PREFETCH_H

#include "lib/cache/layout.h"

static inline void ca_prefetch_bytes(const char *from, size_t bytes) {
    enum { CACHE_LINE = 64 };
    const char *end = from + bytes;
    for (const char *p = from - (uintptr_t)from % CACHE_LINE; p < end; p += CACHE_LINE) __builtin_prefetch(p);
}

/* Slots [begin, end), begin < end, of the tiles k and v (layout.h): part of each line of K, and some lines of V. */
static inline void ca_prefetch_slots(const ca_layout *l, const char *k, const char *v, int begin, int end) {
    const size_t size = ca_type_size(l->type),
                 k_bytes = (ca_layout_k_index(l, end - 1, 0) - ca_layout_k_index(l, begin, 0) + 1) * size;
    const int per_line = (int)ca_type_neighbours(l->type);
    for (int i = 0; i < l->d_k; i += per_line) ca_prefetch_bytes(k + ca_layout_k_index(l, begin, i) * size, k_bytes);
    const size_t from = ca_layout_v_index(l, begin, 0) * size, to = (ca_layout_v_index(l, end - 1, l->d_v - 1) + 1) * size;
    ca_prefetch_bytes(v + from, to - from);
    if (l->type != CATTN_I8) return;
    const size_t first = (size_t)begin * sizeof(float), scale_bytes = (size_t)(end - begin) * sizeof(float);
    ca_prefetch_bytes(k + ca_layout_scales(l->d_k, l->c) + first, scale_bytes);
    ca_prefetch_bytes(v + ca_layout_scales(l->d_v, l->c) + first, scale_bytes);
}

#endif
