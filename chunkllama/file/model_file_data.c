/* Fills the handle of a model file with metadata that another format has under other names. */
#include "model_file_data.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Memory that is freed with the handle ---- */

enum { ALIGN = 64, BLOCK = 1 << 18 };

struct cl_arena_block {
    struct cl_arena_block *next;
    size_t size; /* bytes, including this header with ALIGN bytes */
};

void *cl_arena_alloc(cl_arena *a, size_t size) {
    if (size > PTRDIFF_MAX / 2) return NULL;
    const size_t need = (size + ALIGN - 1) / ALIGN * ALIGN;
    if (!a->blocks || a->blocks->size - a->used < need) {
        const size_t bytes = ALIGN + (need > BLOCK ? need : BLOCK);
        struct cl_arena_block *block = aligned_alloc(ALIGN, bytes);
        if (!block) return NULL;
        *block = (struct cl_arena_block){a->blocks, bytes};
        a->blocks = block;
        a->used = ALIGN;
    }
    void *p = (char *)a->blocks + a->used;
    a->used += need;
    return memset(p, 0, need);
}

void cl_arena_free(cl_arena *a) {
    while (a->blocks) {
        struct cl_arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
}

/* ---- Metadata ---- */

cl_status cl_meta_init(cl_model_file *file, cl_error *error) {
    file->keys = calloc(CL_META_MAX_KEYS, sizeof *file->keys);
    if (!file->keys || cl_str_map_init(&file->key_map, CL_META_MAX_KEYS) != 0)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for a model's metadata");
    return CL_OK;
}

static void *take(cl_model_file *file, size_t size) {
    void *p = cl_arena_alloc(&file->memory, size);
    file->no_memory |= !p;
    return p;
}

cl_str cl_meta_copy(cl_model_file *file, cl_str text) {
    char *copy = take(file, text.size);
    if (!copy) return (cl_str){"", 0};
    if (text.size > 0) memcpy(copy, text.data, text.size);
    return (cl_str){copy, text.size};
}

/* Add a key with memory for its value. NULL if memory is lacking. */
static cl_meta_key *put(cl_model_file *file, const char *name, cl_meta_type type, size_t size) {
    assert(file->n_keys < CL_META_MAX_KEYS);
    const cl_str copy = cl_meta_copy(file, cl_str_of(name));
    unsigned char *raw = take(file, size);
    if (file->no_memory) return NULL;
    cl_meta_key *key = &file->keys[file->n_keys];
    *key = (cl_meta_key){.name = copy, .type = type, .raw = raw};
    const int32_t before = cl_str_map_add(&file->key_map, copy.data, copy.size, (int32_t)file->n_keys++);
    assert(before < 0);
    (void)before;
    return key;
}

static void put_value(cl_model_file *file, const char *name, cl_meta_type type, const void *value) {
    const cl_meta_key *key = put(file, name, type, cl_meta_size(type));
    if (key) memcpy((void *)key->raw, value, cl_meta_size(type));
}

void cl_meta_put_u32(cl_model_file *file, const char *name, uint32_t value) { put_value(file, name, CL_META_U32, &value); }
void cl_meta_put_f64(cl_model_file *file, const char *name, double value) { put_value(file, name, CL_META_FLOAT64, &value); }
void cl_meta_put_bool(cl_model_file *file, const char *name, bool value) {
    put_value(file, name, CL_META_BOOL, &(char){value});
}

void cl_meta_put_string(cl_model_file *file, const char *name, cl_str value) {
    cl_meta_key *key = put(file, name, CL_META_STRING, 0);
    cl_str *strings = malloc(sizeof *strings);
    file->no_memory |= !strings;
    if (strings) *strings = cl_meta_copy(file, value);
    if (key)
        key->strings = strings;
    else
        free(strings);
}

void *cl_meta_put_array(cl_model_file *file, const char *name, cl_meta_type elem, size_t n) {
    cl_meta_key *key = put(file, name, CL_META_ARRAY, n * cl_meta_size(elem));
    if (!key) return NULL;
    key->elem = elem;
    key->n = n;
    return (void *)key->raw;
}

cl_str *cl_meta_put_strings(cl_model_file *file, const char *name, size_t n) {
    cl_meta_key *key = put(file, name, CL_META_ARRAY, 0);
    if (!key) return NULL;
    key->elem = CL_META_STRING;
    key->strings = calloc(n + 1, sizeof *key->strings);
    file->no_memory |= !key->strings;
    key->n = key->strings ? n : 0;
    return key->strings;
}
