/* Reads the lines of a file, of which each has a limited length. */
#ifndef SERVE_BATCHES_LINES_H
#define SERVE_BATCHES_LINES_H

#include <stdint.h>

#include "chunkllama/common/error.h"

typedef enum lines_status { LINES_OK, LINES_END, LINES_TOO_LONG, LINES_NO_MEMORY, LINES_FAILED } lines_status;

typedef struct batch_lines {
    int fd;     /* borrowed */
    size_t max; /* bytes of a line, without its end */

    /* The line that was returned last: */
    char *text; /* [size], without the line's end; owned */
    size_t size, capacity;
    int64_t number;      /* from 1 */
    int64_t place, next; /* where it begins in the file, and where the one behind it does, in bytes */

    char piece[16 << 10]; /* bytes of the file that were read: those from piece_begin to piece_end are not in a line yet */
    size_t piece_begin, piece_end;
} batch_lines;

/* Read the lines of an open file from the byte `place` on, where one begins. fd: borrowed until lines_free. */
void lines_begin(batch_lines *l, int fd, int64_t place, size_t max);

/* Go to the next line that is not blank. LINES_TOO_LONG: there is no text, but it counts as a line. LINES_FAILED: errno. */
lines_status lines_next(batch_lines *l);

void lines_free(batch_lines *l);

/*
 * Read a line of `size` bytes at `place` again, to *text, [*capacity] owned by the caller, which grows. CL_ERR_FILE,
 * CL_ERR_NOMEM.
 */
cl_status lines_read(int fd, int64_t place, size_t size, char **text, size_t *capacity, cl_error *error);

#endif
