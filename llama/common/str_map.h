/* A hash map from byte strings to numbers: the keys of a file, the texts of a vocabulary. */
#ifndef LLAMA_COMMON_STR_MAP_H
#define LLAMA_COMMON_STR_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "hash.h"

typedef struct str_map_slot {
    const char *data; /* borrowed; NULL: empty */
    size_t size;
    uint64_t hash;
    int32_t value;
} str_map_slot;

typedef struct str_map {
    str_map_slot *slots; /* a power of two of them, at most half full */
    size_t mask;
    hash_key key;
} str_map;

/* An empty map with room for n strings. Returns 0, or -1 without memory. */
int str_map_init(str_map *map, size_t n);
void str_map_free(str_map *map);

/* The string's value, or -1. */
int32_t str_map_get(const str_map *map, const char *data, size_t size);

/* Add a string that is not there yet (value >= 0) and return -1; where it is there, change nothing and return its value. */
int32_t str_map_add(str_map *map, const char *data, size_t size, int32_t value);

#endif
