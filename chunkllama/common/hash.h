/* Hashing for the contents of model files: hashes under a random key, and a map from byte strings to numbers. */
#ifndef CHUNKLLAMA_COMMON_HASH_H
#define CHUNKLLAMA_COMMON_HASH_H

#include <stddef.h>
#include <stdint.h>

/* ---- Keyed hashes ---- */

typedef struct cl_hash_key {
    uint64_t sum, factor;
} cl_hash_key;

/* A random key, so that nobody can make a file whose strings collide. */
cl_hash_key cl_hash_new_key(void);

static inline uint64_t cl_hash_mix(cl_hash_key key, uint64_t x) {
    const unsigned __int128 product = (unsigned __int128)(x ^ key.sum) * key.factor;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/*
 * Mixed twice, because with some factors equally spaced numbers, such as ids, collide: 105 of 20000 keys with one mixing, none
 * of 60000 with two.
 */
static inline uint64_t cl_hash_u64(cl_hash_key key, uint64_t x) { return cl_hash_mix(key, cl_hash_mix(key, x)); }

uint64_t cl_hash_bytes(cl_hash_key key, const char *data, size_t size);

/* ---- Map from strings ---- */

typedef struct cl_str_map_slot {
    const char *data; /* [size] borrowed; NULL: the slot is empty */
    size_t size;
    uint64_t hash;
    int32_t value;
} cl_str_map_slot;

typedef struct cl_str_map {
    cl_str_map_slot *slots; /* [mask + 1] at most half of them full; owned */
    size_t mask;
    cl_hash_key key;
} cl_str_map;

/* An empty map with capacity for n strings. Returns 0, or -1 if memory is lacking. */
int cl_str_map_init(cl_str_map *map, size_t n);
void cl_str_map_free(cl_str_map *map);

/* The value of a string, or -1. */
int32_t cl_str_map_get(const cl_str_map *map, const char *data, size_t size);

/* Add a string, which is borrowed, with a value >= 0 and return -1. If the map has it, change nothing and return its value. */
int32_t cl_str_map_add(cl_str_map *map, const char *data, size_t size, int32_t value);

#endif
