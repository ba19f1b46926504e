/*
 * Memory from a caller's allocator, counted in bytes.
 *
 * One thread at a time may use a ca_alloc, since the count is not atomic.
 */
#ifndef CHUNKATTN_BASE_ALLOC_H
#define CHUNKATTN_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* `alloc` returns NULL on failure. `free` is called with the size and align of the allocation. `ctx` is borrowed. */
typedef struct ca_alloc {
    void *(*alloc)(void *ctx, size_t size, size_t align);
    void (*free)(void *ctx, void *ptr, size_t size, size_t align);
    void *ctx;
    size_t bytes; /* allocated and not freed, as requested: without padding */
} ca_alloc;

/* An allocator that calls aligned_alloc and free. */
ca_alloc ca_alloc_default(void);

/*
 * Allocate n * size bytes, aligned to 64 and not cleared. NULL on failure, on overflow, and for 0 bytes. The caller frees them
 * with ca_delete.
 */
void *ca_new(ca_alloc *a, size_t n, size_t size);

/* The same, with all bytes zero. */
void *ca_new_zero(ca_alloc *a, size_t n, size_t size);

/* Free memory from ca_new or ca_new_zero with the same n and size. NULL is ignored. */
void ca_delete(ca_alloc *a, void *p, size_t n, size_t size);

/*
 * Make room for at least `need` elements of `size` bytes in *array, which has room for *capacity; *array is NULL if that is 0.
 * An array that must grow at least doubles and keeps its contents. Returns 0, or -1 without memory; then *array and *capacity
 * are unchanged.
 */
int ca_grow(ca_alloc *a, void **array, size_t *capacity, size_t need, size_t size);

/* As ca_grow, but an array that must grow gets room for exactly `need` elements. */
int ca_grow_exactly(ca_alloc *a, void **array, size_t *capacity, size_t need, size_t size);

/* Bytes that ca_grow would add. */
size_t ca_growth(size_t capacity, size_t need, size_t size);

#endif
