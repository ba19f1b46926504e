/* A whole file in memory, read-only. */
#ifndef LLAMA_FILE_FILE_MAP_H
#define LLAMA_FILE_FILE_MAP_H

#include <stddef.h>

#include "llama/common/error.h"

typedef struct cl_file_map {
    const unsigned char *data; /* NULL: none */
    size_t size;
} cl_file_map;

/* Messages name the path. CL_ERR_FORMAT for an empty file. */
cl_status cl_file_map_open(const char *path, cl_file_map *map, cl_error *error);
void cl_file_map_close(cl_file_map *map);

/* The whole pages among these bytes of the map leave the process's memory; they come back from the file when read again. */
void cl_file_map_drop(const cl_file_map *map, const void *data, size_t size);

#endif
