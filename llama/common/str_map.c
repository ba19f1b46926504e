/* Open addressing with linear probing; strings are never removed. */
#include "str_map.h"

#include <stdlib.h>
#include <string.h>

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

/* The string's slot, or the empty one where it belongs. */
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
