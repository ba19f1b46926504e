/* Prefetching some slots of a K and a V tile at once. Kernels prefetch whole tiles, little by little. */
#ifndef CHUNKATTN_ATTN_PREFETCH_H
#define CHUNKATTN_ATTN_PREFETCH_H

#include "chunkattn/cache/layout.h"

/* gcc 12 drops calls of a function that only prefetches, as if it had no effect; so such functions are always inlined. */
#define CA_PREFETCH static inline __attribute__((always_inline))

CA_PREFETCH void ca_prefetch_bytes(const char *from, size_t bytes) {
    enum { CACHE_LINE = 64 };
    const char *end = from + bytes;
    for (const char *p = from - (uintptr_t)from % CACHE_LINE; p < end; p += CACHE_LINE) __builtin_prefetch(p);
}

/* Slots [begin, end) of K in one slot group: part of each line or, if it is open, a line for each slot and block of words. */
CA_PREFETCH void ca_prefetch_group(const ca_layout *l, const char *k, uint32_t open, int begin, int end) {
    const size_t size = ca_type_size(l->type);
    const int per = (int)ca_type_neighbours(l->type), closed = open & ca_slot_group_bit(begin) ? l->open_words * per : 0;
    for (int i = closed; i < l->d_k; i += per)
        ca_prefetch_bytes(k + ca_layout_k_index(l, open, begin, i) * size, (size_t)((end - begin) * per) * size);
    for (int slot = begin; slot < end; slot++)
        for (int i = 0; i < closed; i += CA_SLOT_GROUP * per)
            __builtin_prefetch(k + ca_layout_k_index(l, open, slot, i) * size);
}

/* Slots [0, n), n > 0, of the tiles k, with its open groups, and v (layout.h). */
CA_PREFETCH void ca_prefetch_slots(const ca_layout *l, const char *k, uint32_t open, const char *v, int n) {
    for (int slot = 0; slot < n; slot += CA_SLOT_GROUP)
        ca_prefetch_group(l, k, open, slot, n - slot < CA_SLOT_GROUP ? n : slot + CA_SLOT_GROUP);
    ca_prefetch_bytes(v, (ca_layout_v_index(l, n - 1, l->d_v - 1) + 1) * ca_type_size(l->type));
    if (l->type != CATTN_I8) return;
    ca_prefetch_bytes(k + ca_layout_scales(l->d_k, l->c), (size_t)n * sizeof(float));
    ca_prefetch_bytes(v + ca_layout_scales(l->d_v, l->c), (size_t)n * sizeof(float));
}

#endif
