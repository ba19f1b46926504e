/* Appends to text, and reads files into it. */
#include "text_buffer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cl_status text_buffer_append(cli_text *t, const char *data, size_t size, cl_error *error) {
    if (size >= t->capacity - t->size) {
        const size_t capacity = 2 * t->capacity + size + 1;
        char *grown = realloc(t->data, capacity);
        if (!grown) return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu bytes of text", capacity);
        t->data = grown;
        t->capacity = capacity;
    }
    memcpy(t->data + t->size, data, size);
    t->size += size;
    t->data[t->size] = 0;
    return CL_OK;
}

cl_status text_buffer_read(cli_text *t, const char *path, cl_error *error) {
    FILE *in = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    if (!in) return cl_fail(error, CL_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    char buf[65536];
    cl_status status = text_buffer_append(t, "", 0, error);
    for (size_t n; status == CL_OK && (n = fread(buf, 1, sizeof buf, in)) > 0;) status = text_buffer_append(t, buf, n, error);
    if (status == CL_OK && ferror(in)) status = cl_fail(error, CL_ERR_FILE, "cannot read %s: %s", path, strerror(errno));
    if (in != stdin) fclose(in);
    return status;
}

void text_buffer_free(cli_text *t) {
    free(t->data);
    *t = (cli_text){0};
}
