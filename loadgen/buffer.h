/* Bytes that grow at their end, up to a limit: they come from an endpoint, which may never stop. */
#ifndef LOADGEN_BUFFER_H
#define LOADGEN_BUFFER_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct buffer {
    char *bytes; /* terminated by a zero that size does not count; NULL while empty */
    size_t size, capacity;
} buffer;

enum { BUFFER_MAX = 16 << 20 };

static inline bool buffer_has_room(const buffer *b, size_t size) { return size <= BUFFER_MAX - b->size; }

/* False without memory or beyond BUFFER_MAX; the buffer is as it was. */
static inline bool buffer_add(buffer *b, const char *bytes, size_t size) {
    if (!buffer_has_room(b, size)) return false;
    if (b->size + size + 1 > b->capacity) {
        const size_t capacity = 2 * (b->size + size) + 64;
        char *grown = realloc(b->bytes, capacity);
        if (!grown) return false;
        b->bytes = grown;
        b->capacity = capacity;
    }
    if (size) memcpy(b->bytes + b->size, bytes, size);
    b->size += size;
    b->bytes[b->size] = '\0';
    return true;
}

/* Empty, memory kept. */
static inline void buffer_clear(buffer *b) { b->size = 0; }

static inline void buffer_free(buffer *b) {
    free(b->bytes);
    *b = (buffer){0};
}

#endif
