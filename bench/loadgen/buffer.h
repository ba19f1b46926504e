/* Bytes that grow at their end up to a limit, because an endpoint may send without end. */
#ifndef BENCH_LOADGEN_BUFFER_H
#define BENCH_LOADGEN_BUFFER_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Zero-initialise; free with buffer_free. */
typedef struct buffer {
    char *bytes; /* [size] and a zero behind them, owned; NULL until the first byte is added */
    size_t size, capacity;
} buffer;

enum { BUFFER_MAX = 16 << 20 }; /* bytes */

static inline bool buffer_has_room(const buffer *b, size_t size) { return size <= BUFFER_MAX - b->size; }

/* Append a copy of `size` bytes. False: memory is lacking or BUFFER_MAX exceeded; the buffer is unchanged. */
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

/* Make the buffer empty, but keep its memory. */
static inline void buffer_clear(buffer *b) { b->size = 0; }

static inline void buffer_free(buffer *b) {
    free(b->bytes);
    *b = (buffer){0};
}

#endif
