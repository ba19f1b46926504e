/* Reads the lines of a file, of which each has a limited length. */
#ifndef SERVE_BATCHES_LINES_H
#define SERVE_BATCHES_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lines_status { LINES_OK, LINES_END, LINES_TOO_LONG, LINES_NO_MEMORY, LINES_FAILED } lines_status;

typedef struct lines {
    int fd;            /* borrowed; read from `offset` on with pread */
    int64_t offset;    /* of the next byte that is read into the buffer */
    size_t max;        /* bytes of a line, without its end */
    char *buffer;      /* [capacity] */
    size_t begin, end; /* the bytes that were read and not returned yet */
    size_t capacity;
    int64_t number; /* of the line that was returned last, from 1 */
} lines;

/* Read the lines of an open file from its beginning. */
void lines_begin(lines *l, int fd, size_t max);

/*
 * The next line that is not blank: [*size] bytes without the line's end, valid until the next call. LINES_TOO_LONG: the line is
 * skipped, and the next call goes on behind it. LINES_FAILED: errno says why.
 */
lines_status lines_next(lines *l, const char **text, size_t *size);

/* Let the next call return the line `text` again, which the last call has returned. */
void lines_back(lines *l, const char *text);

void lines_free(lines *l);

#endif
