/*
 * The memory of what was evicted: hashes of prefixes and the times at which their last tokens went, so that it can be said why
 * a prompt that was in the cache is not any more (explain.c). A new entry takes the place of an older one.
 */
#ifndef CHUNKATTN_CACHE_EVICTED_H
#define CHUNKATTN_CACHE_EVICTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkattn/base/alloc.h"

typedef struct ca_evicted_entry {
    uint32_t hash; /* of all tokens up to a position among the evicted ones, or to their end (reuse.h) */
    uint32_t time; /* the tree's time then, and one more; 0: the entry is free */
} ca_evicted_entry;

/* Zero: nothing is remembered. */
typedef struct ca_evicted {
    ca_evicted_entry *entries; /* [n], each at its hash modulo n */
    size_t n;                  /* a power of two; 0 */
} ca_evicted;

/*
 * For a cache of n_chunks chunks of chunk_bytes bytes: 16 entries for each, in at most a 1024th of these bytes, but from 64
 * entries (512 bytes) to 32768 (256 KB). 0, or -1 without memory.
 */
int ca_evicted_init(ca_evicted *evicted, ca_alloc *alloc, size_t n_chunks, size_t chunk_bytes);
void ca_evicted_free(ca_evicted *evicted, ca_alloc *alloc);

static inline void ca_evicted_note(ca_evicted *evicted, uint32_t hash, uint32_t time) {
    if (evicted->n > 0) evicted->entries[hash & (evicted->n - 1)] = (ca_evicted_entry){hash, time + 1};
}

/* Whether the prefix with this hash is known to have been evicted, and when. */
static inline bool ca_evicted_find(const ca_evicted *evicted, uint32_t hash, uint32_t *time) {
    if (evicted->n == 0) return false;
    const ca_evicted_entry *entry = &evicted->entries[hash & (evicted->n - 1)];
    *time = entry->time - 1;
    return entry->time > 0 && entry->hash == hash;
}

#endif
