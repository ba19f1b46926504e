/* Memory that is freed all at once. */
#ifndef LLAMA_COMMON_ARENA_H
#define LLAMA_COMMON_ARENA_H

#include <stddef.h>

typedef struct cl_arena {
    struct cl_arena_block *blocks;
    size_t used; /* of the newest block */
} cl_arena;

/* size bytes, zero, aligned to 64; NULL without memory. */
void *cl_arena_alloc(cl_arena *a, size_t size);
void cl_arena_free(cl_arena *a);

#endif
