/* The file of requests. */
#ifndef CLI_BATCH_INPUT_H
#define CLI_BATCH_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/error.h"

typedef struct batch_input {
    int fd;          /* a regular file; -1: none is open */
    bool borrowed;   /* it is standard input */
    int64_t start;   /* where its first line begins: another program may have read those before */
    int64_t made_at; /* the time of its last change, in seconds since 1970 */
} batch_input;

/*
 * Open the file `path`; "-" is standard input. What is no regular file, such as a pipe, is read to its end and kept in a
 * scratch file. *in may be closed also after a failure.
 */
cl_status batch_input_open(batch_input *in, const char *path, cl_error *error);
void batch_input_close(batch_input *in);

/* Whether `path` is the same file. */
bool batch_input_is(const batch_input *in, const char *path);

/* Open a file without a name, in TMPDIR or else /tmp, that only this process can read. -1 with *error filled if it fails. */
int batch_scratch_open(cl_error *error);

#endif
