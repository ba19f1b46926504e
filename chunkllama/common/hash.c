/* Keyed hashing of strings, and the map: open addressing with linear probing, from which nothing is removed. */
#include "hash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- Keyed hashes ---- */

cl_hash_key cl_hash_new_key(void) {
    cl_hash_key key;
    /* Without random bytes from the system everything works, but a file could be made to load slowly. */
    if (getrandom(&key, sizeof key, 0) != sizeof key) key = (cl_hash_key){0x243f6a8885a308d3u, 0x13198a2e03707345u};
    key.factor |= 1; /* an even factor would lose bits */
    return key;
}

uint64_t cl_hash_bytes(cl_hash_key key, const char *data, size_t size) {
    uint64_t hash = 0, word;
    for (; size >= sizeof word; data += sizeof word, size -= sizeof word) {
        memcpy(&word, data, sizeof word);
        hash = cl_hash_mix(key, hash ^ word);
    }
    word = (uint64_t)size << 56; /* above the at most seven bytes that are left: so "a" differs from "a\0" */
    for (size_t i = 0; i < size; i++) word |= (uint64_t)(unsigned char)data[i] << 8 * i;
    return cl_hash_u64(key, hash ^ word);
}

/* ---- Map from strings ---- */

int cl_str_map_init(cl_str_map *map, size_t n) {
    size_t n_slots = 16;
    while (n_slots / 2 < n) n_slots *= 2;
    map->slots = calloc(n_slots, sizeof *map->slots);
    map->mask = n_slots - 1;
    map->key = cl_hash_new_key();
    return map->slots ? 0 : -1;
}

void cl_str_map_free(cl_str_map *map) {
    free(map->slots);
    map->slots = NULL;
}

/* The slot of a string, or the empty slot for it. */
static cl_str_map_slot *find(const cl_str_map *map, const char *data, size_t size, uint64_t hash) {
    size_t i = hash & map->mask;
    while (map->slots[i].data) {
        const cl_str_map_slot *s = &map->slots[i];
        if (s->hash == hash && s->size == size && memcmp(s->data, data, size) == 0) break;
        i = (i + 1) & map->mask;
    }
    return &map->slots[i];
}

int32_t cl_str_map_get(const cl_str_map *map, const char *data, size_t size) {
    const cl_str_map_slot *slot = find(map, data, size, cl_hash_bytes(map->key, data, size));
    return slot->data ? slot->value : -1;
}

int32_t cl_str_map_add(cl_str_map *map, const char *data, size_t size, int32_t value) {
    const uint64_t hash = cl_hash_bytes(map->key, data, size);
    cl_str_map_slot *slot = find(map, data, size, hash);
    if (slot->data) return slot->value;
    *slot = (cl_str_map_slot){data, size, hash, value};
    return -1;
}
