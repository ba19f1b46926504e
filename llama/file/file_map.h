/* A whole file mapped into memory, read-only. Safe from any number of threads once it is open. */
#ifndef LLAMA_FILE_FILE_MAP_H
#define LLAMA_FILE_FILE_MAP_H

#include <stddef.h>

#include "llama/common/error.h"

typedef struct cl_file_map {
    const unsigned char *data; /* [size] bytes, valid until cl_file_map_close; NULL: no file is mapped */
    size_t size;
} cl_file_map;

/* Map a regular file. CL_ERR_FILE: it cannot be opened or mapped; CL_ERR_FORMAT: it is empty. Messages name the path. */
cl_status cl_file_map_open(const char *path, cl_file_map *map, cl_error *error);
void cl_file_map_close(cl_file_map *map);

/*
 * Drop the pages that lie entirely within these bytes from the process's memory. They are read from the file again on the
 * next access. Bytes outside the map are ignored.
 */
void cl_file_map_drop(const cl_file_map *map, const void *data, size_t size);

#endif
