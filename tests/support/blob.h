/* The bytes of an export, gathered as they are written: for calls that take a function `write`. */
#ifndef TESTS_SUPPORT_BLOB_H
#define TESTS_SUPPORT_BLOB_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Zeroed at first, and freed with blob_free. */
typedef struct blob {
    char *bytes;    /* [n], at an odd address, as bytes in a file may be */
    char *memory;   /* which has them */
    size_t n, most; /* blob_add stops the writer before more bytes than `most`, unless that is 0 */
} blob;

static inline int blob_add(void *ctx, const void *bytes, size_t n) {
    blob *b = ctx;
    if (b->most > 0 && b->n + n > b->most) return 1;
    b->memory = realloc(b->memory, b->n + n + 1);
    b->bytes = b->memory + 1;
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
    return 0;
}

static inline void blob_free(blob *b) {
    free(b->memory);
    *b = (blob){0};
}

#endif
