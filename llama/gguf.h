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

/* Tensor types by their number in the file; only those that can be read. */
typedef enum gguf_tensor_type {
    GGUF_F32 = 0,
    GGUF_F16 = 1,
    GGUF_Q4_0 = 2,
    GGUF_Q4_1 = 3,
    GGUF_Q8_0 = 8,
    GGUF_BF16 = 30,
} gguf_tensor_type;

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

/* Bytes in the mapping; not terminated. */
typedef struct gguf_string {
    const char *data;
    size_t size;
} gguf_string;

typedef struct gguf_tensor {
    gguf_string name;
    uint32_t type;    /* as in the file; may be one that is not in gguf_tensor_type */
    int32_t n_dims;   /* 1..4 */
    int64_t ne[4];    /* elements, fastest dimension first; 1 where unused */
    const void *data; /* NULL when the type is not in gguf_tensor_type */
    size_t bytes;
} gguf_tensor;

typedef struct gguf gguf;

cl_status gguf_open(const char *path, gguf **file, cl_error *error);
/* Same over bytes of the caller's, which must outlive the handle (tests, fuzzing). */
cl_status gguf_open_memory(const void *data, size_t size, gguf **file, cl_error *error);
void gguf_close(gguf **file);

uint32_t gguf_version(const gguf *file);
size_t gguf_n_tensors(const gguf *file);
const gguf_tensor *gguf_tensor_at(const gguf *file, size_t i);
const gguf_tensor *gguf_find_tensor(const gguf *file, const char *name); /* NULL if absent */
const char *gguf_type_name(uint32_t type);                               /* "Q4_1"; "type 99" style for unknown ones */

/* Metadata. False: the key is absent or of another type; integers of all widths convert when the value fits. */
bool gguf_get_u64(const gguf *file, const char *key, uint64_t *value);
bool gguf_get_f64(const gguf *file, const char *key, double *value);
bool gguf_get_bool(const gguf *file, const char *key, bool *value);
bool gguf_get_string(const gguf *file, const char *key, gguf_string *value);

/* An array's element type and length; false if the key is absent or not an array. Elements of fixed size lie at *data
 * unaligned. */
bool gguf_get_array(const gguf *file, const char *key, gguf_value_type *type, size_t *n, const void **data);
/* The i-th string of an array of strings. */
gguf_string gguf_array_string(const gguf *file, const char *key, size_t i);

/* For `info`: the i-th key in file order, its type, and its value printed as text (arrays shortened). */
size_t gguf_n_keys(const gguf *file);
gguf_string gguf_key_at(const gguf *file, size_t i, gguf_value_type *type);
void gguf_print_value(const gguf *file, size_t i, char *buf, size_t size);

#endif
