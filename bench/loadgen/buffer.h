/* Bytes that grow at their end up to a limit, because an endpoint may send without end. */
#ifndef BENCH_LOADGEN_BUFFER_H
#define BENCH_LOADGEN_BUFFER_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Zero-initialise; free with load_buffer_free. */
typedef struct load_buffer {
    char *bytes; /* [size] and a zero behind them, owned; NULL until the first byte is added */
    size_t size, capacity;
} load_buffer;

enum { LOAD_BUFFER_MAX = 16 << 20 }; /* bytes */

static inline bool load_buffer_has_room(const load_buffer *b, size_t size) { return size <= LOAD_BUFFER_MAX - b->size; }

/* Append a copy of `size` bytes. False: memory is lacking or LOAD_BUFFER_MAX exceeded; the buffer is unchanged. */
static inline bool load_buffer_add(load_buffer *b, const char *bytes, size_t size) {
    if (!load_buffer_has_room(b, size)) return false;
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
static inline void load_buffer_clear(load_buffer *b) { b->size = 0; }

static inline void load_buffer_free(load_buffer *b) {
    free(b->bytes);
    *b = (load_buffer){0};
}

#endif
