/* Memory that is freed all at once. */
#ifndef LLAMA_COMMON_ARENA_H
#define LLAMA_COMMON_ARENA_H

#include <stddef.h>

typedef struct arena {
    struct arena_block *blocks;
    size_t used; /* of the newest block */
} arena;

/* size bytes, zero, aligned to 64; NULL without memory. */
void *arena_alloc(arena *a, size_t size);
void arena_free(arena *a);

#endif
