/* Text that grows at its end, and reading it from files and standard input. */
#ifndef CLI_TEXT_BUFFER_H
#define CLI_TEXT_BUFFER_H

#include <stddef.h>

#include "chunkllama/common/error.h"

/* Zero-initialise; free with text_buffer_free. */
typedef struct cli_text {
    char *data;            /* [size] any bytes, and a zero behind them; NULL until the first append */
    size_t size, capacity; /* bytes */
} cli_text;

/* Append a copy of `size` bytes. CL_ERR_NOMEM: *t is unchanged. */
cl_status text_buffer_append(cli_text *t, const char *data, size_t size, cl_error *error);

/*
 * Append a whole file; "-" is standard input. CL_ERR_FILE: it cannot be opened or read; CL_ERR_NOMEM. After an error *t holds
 * what was read before.
 */
cl_status text_buffer_read(cli_text *t, const char *path, cl_error *error);

/* Free the bytes; *t is empty afterwards. */
void text_buffer_free(cli_text *t);

#endif
