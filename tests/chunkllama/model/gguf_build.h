/* Writes GGUF files into memory, byte by byte, for tests. */
#ifndef TESTS_CHUNKLLAMA_MODEL_GGUF_BUILD_H
#define TESTS_CHUNKLLAMA_MODEL_GGUF_BUILD_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/file/model_file.h"

typedef struct gguf_bytes {
    unsigned char *data;
    size_t size, capacity;
} gguf_bytes;

static inline void put(gguf_bytes *b, const void *p, size_t n) {
    if (b->size + n > b->capacity) {
        b->capacity = 2 * (b->size + n);
        b->data = realloc(b->data, b->capacity);
        if (!b->data) abort();
    }
    if (n) memcpy(b->data + b->size, p, n);
    b->size += n;
}

static inline void put_u32(gguf_bytes *b, uint32_t v) { put(b, &v, sizeof v); }
static inline void put_u64(gguf_bytes *b, uint64_t v) { put(b, &v, sizeof v); }
static inline void put_f32(gguf_bytes *b, float v) { put(b, &v, sizeof v); }
static inline void put_bytes(gguf_bytes *b, const char *s, size_t n) {
    put_u64(b, n);
    put(b, s, n);
}
static inline void put_string(gguf_bytes *b, const char *s) { put_bytes(b, s, strlen(s)); }

static inline void put_header(gguf_bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
    put(b, "GGUF", 4);
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_keys);
}

static inline void put_key(gguf_bytes *b, const char *name, cl_meta_type type) {
    put_string(b, name);
    put_u32(b, type);
}
static inline void put_key_u32(gguf_bytes *b, const char *name, uint32_t v) {
    put_key(b, name, CL_META_U32);
    put_u32(b, v);
}
static inline void put_key_bool(gguf_bytes *b, const char *name, unsigned char v) {
    put_key(b, name, CL_META_BOOL);
    put(b, &v, 1);
}
static inline void put_key_string(gguf_bytes *b, const char *name, const char *v) {
    put_key(b, name, CL_META_STRING);
    put_string(b, v);
}
static inline void put_array(gguf_bytes *b, const char *name, cl_meta_type elem, uint64_t n) {
    put_key(b, name, CL_META_ARRAY);
    put_u32(b, elem);
    put_u64(b, n);
}

static inline void put_tensor(gguf_bytes *b, const char *name, uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t offset) {
    put_string(b, name);
    put_u32(b, 2);
    put_u64(b, ne0);
    put_u64(b, ne1);
    put_u32(b, type);
    put_u64(b, offset);
}
static inline void put_padding(gguf_bytes *b, size_t alignment) {
    while (b->size % alignment) put(b, "", 1);
}

#endif
