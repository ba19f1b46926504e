/* Asking memory for some slots of a K and V tile at once. Whole tiles are asked for little by little, by the kernels. */
#ifndef LIB_ATTN_PREFETCH_H
#define LIB_ATTN_PREFETCH_H

#include "lib/cache/layout.h"

/* A call of a function that does nothing but prefetch is taken for one without effect, and dropped (gcc 12). */
#define CA_PREFETCH static inline __attribute__((always_inline))

CA_PREFETCH void ca_prefetch_bytes(const char *from, size_t bytes) {
    enum { CACHE_LINE = 64 };
    const char *end = from + bytes;
    for (const char *p = from - (uintptr_t)from % CACHE_LINE; p < end; p += CACHE_LINE) __builtin_prefetch(p);
}

/* Slots [begin, end), begin < end, of the tiles k and v (layout.h): part of each line of K, and some lines of V. */
CA_PREFETCH void ca_prefetch_slots(const ca_layout *l, const char *k, const char *v, int begin, int end) {
    const size_t unit = ca_type_neighbours(l->type) * ca_type_size(l->type), line = (size_t)l->c * unit;
    const size_t lines = (size_t)l->d_k / ca_type_neighbours(l->type);
    for (size_t i = 0; i < lines; i++) ca_prefetch_bytes(k + i * line + (size_t)begin * unit, (size_t)(end - begin) * unit);
    const size_t from = ca_layout_v_index(l, begin, 0), to = ca_layout_v_index(l, end - 1, l->d_v - 1) + 1;
    ca_prefetch_bytes(v + from * ca_type_size(l->type), (to - from) * ca_type_size(l->type));
    if (l->type != CATTN_I8) return;
    const size_t first = (size_t)begin * sizeof(float), scale_bytes = (size_t)(end - begin) * sizeof(float);
    ca_prefetch_bytes(k + ca_layout_scales(l->d_k, l->c) + first, scale_bytes);
    ca_prefetch_bytes(v + ca_layout_scales(l->d_v, l->c) + first, scale_bytes);
}

#endif
