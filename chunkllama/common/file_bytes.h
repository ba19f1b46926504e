/*
 * The bytes of a file, each at its address in a range as large as the file; they are read into it, or elsewhere, when they are
 * needed. The file is not mapped: a mapping of a file that is truncated later ends the process with SIGBUS, and one of a file
 * that is written to shows the new contents.
 */
#ifndef CHUNKLLAMA_COMMON_FILE_BYTES_H
#define CHUNKLLAMA_COMMON_FILE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "error.h"

/* With on_disk false it is memory of the caller's, and only `data` and `size` count. */
typedef struct cl_file_bytes {
    const unsigned char *data; /* [size] addresses of the file's bytes, valid until cl_file_bytes_close */
    size_t size;
    bool on_disk;             /* bytes from n_fetched on must be fetched or copied before they are read */
    size_t n_fetched;         /* bytes from the start */
    int fd;                   /* owned; -1 once it is closed */
    struct timespec modified; /* when the file was opened */
} cl_file_bytes;

/* What ends the message about a file that is shorter than it says itself. */
#define CL_CUT_SHORT "; the file is cut short or damaged: download it again"

/*
 * Open a regular file. CL_ERR_FILE: it cannot be opened; CL_ERR_FORMAT: it is empty, or a pointer of Git LFS; CL_ERR_NOMEM.
 * Messages name the path.
 */
cl_status cl_file_bytes_open(const char *path, cl_file_bytes *file, cl_error *error);
void cl_file_bytes_close(cl_file_bytes *file);

/*
 * Read the bytes before `end`, at most `size`, to their addresses, where they stay. For one thread at a time. CL_ERR_FILE: the
 * file is shorter by now, or cannot be read. The message does not name the path.
 */
cl_status cl_file_bytes_fetch(cl_file_bytes *file, size_t end, cl_error *error);

/* Copy the n bytes whose address is `from` to `to`. False: the file is shorter by now, or cannot be read. Thread-safe. */
bool cl_file_bytes_copy(const cl_file_bytes *file, const void *from, size_t n, void *to);

/* Close the file itself. What was fetched stays; nothing more can be read. */
void cl_file_bytes_release(cl_file_bytes *file);

/* Whether the open file still has the size and the time of modification that it had when it was opened. */
bool cl_file_bytes_unchanged(const cl_file_bytes *file);

#endif
