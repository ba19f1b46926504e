/* Counts, clears and grows what an allocator gives: see alloc.h. */
#include "alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 }; /* a cache line and a zmm register */

static void *default_alloc(void *ctx, size_t size, size_t align) {
    (void)ctx;
    const size_t padded = (size + align - 1) & ~(align - 1); /* aligned_alloc requires a multiple */
    return padded < size ? NULL : aligned_alloc(align, padded);
}

static void default_free(void *ctx, void *ptr, size_t size, size_t align) {
    (void)ctx, (void)size, (void)align;
    free(ptr);
}

ca_alloc ca_alloc_default(void) { return (ca_alloc){.alloc = default_alloc, .free = default_free}; }

void *ca_new(ca_alloc *a, size_t n, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || bytes == 0) return NULL;
    void *p = a->alloc(a->ctx, bytes, ALIGN);
    if (p) a->bytes += bytes;
    return p;
}

void *ca_new_zero(ca_alloc *a, size_t n, size_t size) {
    void *p = ca_new(a, n, size);
    if (p) memset(p, 0, n * size);
    return p;
}

void ca_delete(ca_alloc *a, void *p, size_t n, size_t size) {
    if (!p) return;
    assert(a->bytes >= n * size);
    a->bytes -= n * size;
    a->free(a->ctx, p, n * size, ALIGN);
}

/* The capacity that holds `need` elements: at least doubled if it must grow. */
static size_t grown_capacity(size_t capacity, size_t need) {
    if (need <= capacity) return capacity;
    const size_t doubled = capacity > SIZE_MAX / 2 ? SIZE_MAX : capacity * 2;
    return need > doubled ? need : doubled;
}

size_t ca_growth(size_t capacity, size_t need, size_t size) { return (grown_capacity(capacity, need) - capacity) * size; }

int ca_grow_exactly(ca_alloc *a, void **array, size_t *capacity, size_t need, size_t size) {
    if (need <= *capacity) return 0;
    void *grown = ca_new(a, need, size);
    if (!grown) return -1;
    if (*array) memcpy(grown, *array, *capacity * size);
    ca_delete(a, *array, *capacity, size);
    *array = grown;
    *capacity = need;
    return 0;
}

int ca_grow(ca_alloc *a, void **array, size_t *capacity, size_t need, size_t size) {
    return ca_grow_exactly(a, array, capacity, grown_capacity(*capacity, need), size);
}
