/* A list of blocks; what does not fit the newest one opens another. */
#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, BLOCK = 1 << 18 };

struct cl_arena_block {
    struct cl_arena_block *next;
    size_t size; /* with this header, which takes ALIGN bytes */
};

void *cl_arena_alloc(cl_arena *a, size_t size) {
    if (size > PTRDIFF_MAX / 2) return NULL;
    const size_t need = (size + ALIGN - 1) / ALIGN * ALIGN;
    if (!a->blocks || a->blocks->size - a->used < need) {
        const size_t bytes = ALIGN + (need > BLOCK ? need : BLOCK);
        struct cl_arena_block *block = aligned_alloc(ALIGN, bytes);
        if (!block) return NULL;
        *block = (struct cl_arena_block){a->blocks, bytes};
        a->blocks = block;
        a->used = ALIGN;
    }
    void *p = (char *)a->blocks + a->used;
    a->used += need;
    return memset(p, 0, need);
}

void cl_arena_free(cl_arena *a) {
    while (a->blocks) {
        struct cl_arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
}
