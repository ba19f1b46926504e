/* An allocator that fails after some allocations, for chunkattn.h and for ca_alloc. */
#ifndef TESTS_SUPPORT_FAILING_ALLOC_H
#define TESTS_SUPPORT_FAILING_ALLOC_H

#include <stddef.h>
#include <stdlib.h>

/* The allocator's context. */
typedef struct failing {
    int left;  /* allocations that succeed before the first failure; it counts on below 0 */
    int times; /* how many fail, one after the other; later ones succeed again */
} failing;

static inline void *failing_alloc(void *ctx, size_t size, size_t align) {
    failing *f = ctx;
    const int left = f->left--;
    return left <= 0 && left > -f->times ? NULL : aligned_alloc(align, (size + align - 1) / align * align);
}

static inline void failing_free(void *ctx, void *p, size_t size, size_t align) {
    (void)ctx, (void)size, (void)align;
    free(p);
}

#endif
