/* A hash map from byte strings to numbers: the keys of a file, the texts of a vocabulary. */
#ifndef LLAMA_COMMON_STR_MAP_H
#define LLAMA_COMMON_STR_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "hash.h"

typedef struct cl_str_map_slot {
    const char *data; /* borrowed; NULL: empty */
    size_t size;
    uint64_t hash;
    int32_t value;
} cl_str_map_slot;

typedef struct cl_str_map {
    cl_str_map_slot *slots; /* a power of two of them, at most half full */
    size_t mask;
    cl_hash_key key;
} cl_str_map;

/* An empty map with room for n strings. Returns 0, or -1 without memory. */
int cl_str_map_init(cl_str_map *map, size_t n);
void cl_str_map_free(cl_str_map *map);

/* The string's value, or -1. */
int32_t cl_str_map_get(const cl_str_map *map, const char *data, size_t size);

/* Add a string that is not there yet (value >= 0) and return -1; where it is there, change nothing and return its value. */
int32_t cl_str_map_add(cl_str_map *map, const char *data, size_t size, int32_t value);

#endif
