/* Open addressing with linear probing; strings are never removed. */
#include "str_map.h"

#include <stdlib.h>
#include <string.h>

int str_map_init(str_map *map, size_t n) {
    size_t n_slots = 16;
    while (n_slots / 2 < n) n_slots *= 2;
    map->slots = calloc(n_slots, sizeof *map->slots);
    map->mask = n_slots - 1;
    map->key = hash_new_key();
    return map->slots ? 0 : -1;
}

void str_map_free(str_map *map) {
    free(map->slots);
    map->slots = NULL;
}

/* The string's slot, or the empty one where it belongs. */
static str_map_slot *find(const str_map *map, const char *data, size_t size, uint64_t hash) {
    size_t i = hash & map->mask;
    while (map->slots[i].data) {
        const str_map_slot *s = &map->slots[i];
        if (s->hash == hash && s->size == size && memcmp(s->data, data, size) == 0) break;
        i = (i + 1) & map->mask;
    }
    return &map->slots[i];
}

int32_t str_map_get(const str_map *map, const char *data, size_t size) {
    const str_map_slot *slot = find(map, data, size, hash_bytes(map->key, data, size));
    return slot->data ? slot->value : -1;
}

int32_t str_map_add(str_map *map, const char *data, size_t size, int32_t value) {
    const uint64_t hash = hash_bytes(map->key, data, size);
    str_map_slot *slot = find(map, data, size, hash);
    if (slot->data) return slot->value;
    *slot = (str_map_slot){data, size, hash, value};
    return -1;
}
