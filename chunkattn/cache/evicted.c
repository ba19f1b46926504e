/* The memory of what was evicted: see evicted.h. */
#include "evicted.h"

enum { PER_CHUNK = 16, BUDGET_SHARE = 1024, LEAST = 64, MOST = 32768 };

int ca_evicted_init(ca_evicted *evicted, ca_alloc *alloc, size_t n_chunks, size_t chunk_bytes) {
    const size_t most_bytes = n_chunks * chunk_bytes / BUDGET_SHARE;
    size_t n = LEAST;
    while (n < MOST && n / PER_CHUNK < n_chunks && 2 * n * sizeof *evicted->entries <= most_bytes) n *= 2;
    *evicted = (ca_evicted){.entries = ca_new_zero(alloc, n, sizeof *evicted->entries), .n = n};
    if (evicted->entries) return 0;
    evicted->n = 0;
    return -1;
}

void ca_evicted_free(ca_evicted *evicted, ca_alloc *alloc) {
    ca_delete(alloc, evicted->entries, evicted->n, sizeof *evicted->entries);
    *evicted = (ca_evicted){0};
}
