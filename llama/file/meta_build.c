/* Fills handles. */
#include "meta_build.h"

#include <assert.h>
#include <stdlib.h>

cl_status meta_init(model_file *file, cl_error *error) {
    file->keys = calloc(META_MAX_KEYS, sizeof *file->keys);
    if (!file->keys || str_map_init(&file->key_map, META_MAX_KEYS) != 0)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for a model's metadata");
    return CL_OK;
}

static void *take(model_file *file, size_t size) {
    void *p = arena_alloc(&file->memory, size);
    file->no_memory |= !p;
    return p;
}

str meta_copy(model_file *file, str text) {
    char *copy = take(file, text.size);
    if (!copy) return (str){"", 0};
    if (text.size > 0) memcpy(copy, text.data, text.size);
    return (str){copy, text.size};
}

/* The new key, with room for its value; NULL without memory. */
static meta_key *put(model_file *file, const char *name, meta_type type, size_t size) {
    assert(file->n_keys < META_MAX_KEYS);
    const str copy = meta_copy(file, str_of(name));
    unsigned char *raw = take(file, size);
    if (file->no_memory) return NULL;
    meta_key *key = &file->keys[file->n_keys];
    *key = (meta_key){.name = copy, .type = type, .raw = raw};
    const int32_t before = str_map_add(&file->key_map, copy.data, copy.size, (int32_t)file->n_keys++);
    assert(before < 0);
    (void)before;
    return key;
}

static void put_value(model_file *file, const char *name, meta_type type, const void *value) {
    const meta_key *key = put(file, name, type, meta_size(type));
    if (key) memcpy((void *)key->raw, value, meta_size(type));
}

void meta_put_u32(model_file *file, const char *name, uint32_t value) { put_value(file, name, META_U32, &value); }
void meta_put_f64(model_file *file, const char *name, double value) { put_value(file, name, META_FLOAT64, &value); }
void meta_put_bool(model_file *file, const char *name, bool value) { put_value(file, name, META_BOOL, &(char){value}); }

void meta_put_string(model_file *file, const char *name, str value) {
    meta_key *key = put(file, name, META_STRING, 0);
    str *strings = malloc(sizeof *strings);
    file->no_memory |= !strings;
    if (strings) *strings = meta_copy(file, value);
    if (key)
        key->strings = strings;
    else
        free(strings);
}

void *meta_put_array(model_file *file, const char *name, meta_type elem, size_t n) {
    meta_key *key = put(file, name, META_ARRAY, n * meta_size(elem));
    if (!key) return NULL;
    key->elem = elem;
    key->n = n;
    return (void *)key->raw;
}

str *meta_put_strings(model_file *file, const char *name, size_t n) {
    meta_key *key = put(file, name, META_ARRAY, 0);
    if (!key) return NULL;
    key->elem = META_STRING;
    key->strings = calloc(n + 1, sizeof *key->strings);
    file->no_memory |= !key->strings;
    key->n = key->strings ? n : 0;
    return key->strings;
}
