/* Bytes from a file, the command line or standard input. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stddef.h>

#include "llama/common/error.h"

/* Growing bytes, terminated; zero-initialise, free `data`. */
typedef struct text {
    char *data;
    size_t size, capacity;
} text;

cl_status text_append(text *t, const char *data, size_t size, cl_error *error);

/* The whole file; "-" is standard input. */
cl_status text_read(text *t, const char *path, cl_error *error);

#endif
