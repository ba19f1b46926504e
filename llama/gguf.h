/*
 * GGUF v2 and v3 files: memory-mapped, every count, length, offset and type checked against the file before use.
 *
 * Everything returned points into the mapping or the handle and lives until gguf_close.
 */
#ifndef LLAMA_GGUF_H
#define LLAMA_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "tensor.h"

typedef enum gguf_value_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_FLOAT32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_FLOAT64,
} gguf_value_type;

typedef struct gguf gguf;

cl_status gguf_open(const char *path, gguf **file, cl_error *error);
/* Same over bytes of the caller's, which must outlive the handle (tests, fuzzing). */
cl_status gguf_open_memory(const void *data, size_t size, gguf **file, cl_error *error);
void gguf_close(gguf **file);

uint32_t gguf_version(const gguf *file);
size_t gguf_n_tensors(const gguf *file);
const tensor *gguf_tensor_at(const gguf *file, size_t i);
const tensor *gguf_find_tensor(const gguf *file, const char *name); /* NULL if absent */

/* Metadata. False: the key is absent or of another type; integers of all widths convert when the value fits. */
bool gguf_get_u64(const gguf *file, const char *key, uint64_t *value);
bool gguf_get_f64(const gguf *file, const char *key, double *value);
bool gguf_get_bool(const gguf *file, const char *key, bool *value);
bool gguf_get_string(const gguf *file, const char *key, str *value);

/* An array's element type and length; false if the key is absent or not an array. Elements of fixed size lie at *data
 * unaligned. */
bool gguf_get_array(const gguf *file, const char *key, gguf_value_type *type, size_t *n, const void **data);
/* The i-th string of an array of strings. */
str gguf_array_string(const gguf *file, const char *key, size_t i);

/* For `info`: the i-th key in file order, its type, and its value printed as text (arrays shortened). */
size_t gguf_n_keys(const gguf *file);
str gguf_key_at(const gguf *file, size_t i, gguf_value_type *type);
void gguf_print_value(const gguf *file, size_t i, char *buf, size_t size);

#endif
