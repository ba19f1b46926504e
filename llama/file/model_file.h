/*
 * A model file, whatever its format: metadata by key and tensors by name, under the names that GGUF has for them. A tensor's
 * own name is the file's.
 *
 * Keys that GGUF does not have, and for which a GGUF file is refused: ARCH.rope.halves (bool: weights of Q and K are not
 * permuted), tokenizer.merge_ids (int32 [n][3]: left, right, result), tokenizer.space_prefix (string) and
 * tokenizer.fuse_unknown (bool), spm.h, and tokenizer.late_tokens (bool [n]; vocab.h).
 *
 * All of it is checked when the file is opened. What is returned points into the file or the handle and lives until
 * model_file_close. Immutable; safe from any number of threads.
 */
#ifndef LLAMA_FILE_MODEL_FILE_H
#define LLAMA_FILE_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama/common/error.h"
#include "tensor.h"

typedef enum meta_type {
    META_U8,
    META_I8,
    META_U16,
    META_I16,
    META_U32,
    META_I32,
    META_FLOAT32,
    META_BOOL,
    META_STRING,
    META_ARRAY,
    META_U64,
    META_I64,
    META_FLOAT64,
} meta_type;

typedef struct model_file model_file;

/* A GGUF file, or a folder as Hugging Face has them: safetensors, config.json, tokenizer.json. */
cl_status model_file_open(const char *path, model_file **file, cl_error *error);
void model_file_close(model_file **file);

/*
 * A model's name from its path: the file's without ".gguf", or the folder's. Goes into JSON, so bytes that are no UTF-8 are
 * U+FFFD. The caller frees it; NULL without memory.
 */
char *model_file_name(const char *path);

/* "GGUF version 3", "safetensors" */
const char *model_file_format(const model_file *file);
/* How the file calls a key or a tensor, for messages; valid until the thread's next call. */
const char *model_file_source_name(const model_file *file, const char *name);

size_t model_file_n_tensors(const model_file *file);
const tensor *model_file_tensor_at(const model_file *file, size_t i);
const tensor *model_file_find_tensor(const model_file *file, const char *name); /* NULL if absent */

/* The tensor's data need not stay in memory: they are read from the file again when they are asked for. */
void model_file_drop(const model_file *file, const tensor *tensor);

bool model_file_has(const model_file *file, const char *key);

/* Metadata. False: the key is absent or of another type; integers of all widths convert when the value fits. */
bool model_file_get_u64(const model_file *file, const char *key, uint64_t *value);
bool model_file_get_f64(const model_file *file, const char *key, double *value);
bool model_file_get_bool(const model_file *file, const char *key, bool *value);
bool model_file_get_string(const model_file *file, const char *key, str *value);

/* An array's element type and length; false if the key is absent or not an array. Elements of fixed size lie at *data
 * unaligned. */
bool model_file_get_array(const model_file *file, const char *key, meta_type *type, size_t *n, const void **data);
/* The i-th string of an array of strings. */
str model_file_array_string(const model_file *file, const char *key, size_t i);

/* For `info`: the i-th key in file order, its type, and its value printed as text (arrays shortened). */
size_t model_file_n_keys(const model_file *file);
str model_file_key_at(const model_file *file, size_t i, meta_type *type);
void model_file_print_value(const model_file *file, size_t i, char *buf, size_t size);

#endif
