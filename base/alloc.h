/* Memory through a caller's allocator, counted in bytes. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* alloc returns NULL on failure; free gets what alloc was called with. */
typedef struct ca_alloc {
    void *(*alloc)(void *ctx, size_t size, size_t align);
    void (*free)(void *ctx, void *ptr, size_t size, size_t align);
    void *ctx;
    size_t bytes; /* handed out and not freed */
} ca_alloc;

/* aligned_alloc and free. */
ca_alloc ca_alloc_default(void);

/* n * size bytes aligned to 64, not cleared; NULL on failure or overflow. n == 0 gives NULL. */
void *ca_new(ca_alloc *a, size_t n, size_t size);

/* Same, all bytes zero. */
void *ca_new_zero(ca_alloc *a, size_t n, size_t size);

/* Free what ca_new gave for the same n and size. NULL is ignored. */
void ca_delete(ca_alloc *a, void *p, size_t n, size_t size);

/*
 * Make room for at least `need` elements of *array, which holds *capacity: at least doubles, keeps the contents. Returns 0,
 * or -1 without memory, with *array and *capacity as before.
 */
int ca_grow(ca_alloc *a, void **array, size_t *capacity, size_t need, size_t size);

/* Bytes that it would add. */
size_t ca_growth(size_t capacity, size_t need, size_t size);

#endif
