/*
 * A model file, whatever its format: metadata by key and tensors by name, under the names that GGUF has for them. A tensor's
 * own name is the file's.
 *
 * Keys that GGUF does not have, and for which a GGUF file is refused: ARCH.rope.halves (bool: weights of Q and K are not
 * permuted), tokenizer.merge_ids (int32 [n][3]: left, right, result), tokenizer.space_prefix (string) and
 * tokenizer.fuse_unknown (bool), spm.h, and tokenizer.late_tokens (bool [n]; vocab.h).
 *
 * All of it is checked when the file is opened. What is returned points into the file or the handle and lives until
 * cl_model_file_close. Immutable; safe from any number of threads.
 */
#ifndef LLAMA_FILE_MODEL_FILE_H
#define LLAMA_FILE_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama/common/error.h"
#include "tensor.h"

typedef enum cl_meta_type {
    CL_META_U8,
    CL_META_I8,
    CL_META_U16,
    CL_META_I16,
    CL_META_U32,
    CL_META_I32,
    CL_META_FLOAT32,
    CL_META_BOOL,
    CL_META_STRING,
    CL_META_ARRAY,
    CL_META_U64,
    CL_META_I64,
    CL_META_FLOAT64,
} cl_meta_type;

typedef struct cl_model_file cl_model_file;

/* A GGUF file, or a folder as Hugging Face has them: safetensors, config.json, tokenizer.json. */
cl_status cl_model_file_open(const char *path, cl_model_file **file, cl_error *error);

/* A GGUF file (version 2 or 3), and the same from bytes of the caller's that outlive the handle (for tests). */
cl_status cl_gguf_open(const char *path, cl_model_file **file, cl_error *error);
cl_status cl_gguf_open_memory(const void *data, size_t size, cl_model_file **file, cl_error *error);

/* A Hugging Face folder. Messages name file and field. */
cl_status cl_hf_open(const char *folder, cl_model_file **file, cl_error *error);

void cl_model_file_close(cl_model_file **file);

/*
 * A model's name from its path: the file's without ".gguf", or the folder's. Goes into JSON, so bytes that are no UTF-8 are
 * U+FFFD. The caller frees it; NULL without memory.
 */
char *cl_model_file_name(const char *path);

/* "GGUF version 3", "safetensors" */
const char *cl_model_file_format(const cl_model_file *file);
/* How the file calls a key or a tensor, for messages; valid until the thread's next call. */
const char *cl_model_file_source_name(const cl_model_file *file, const char *name);

size_t cl_model_file_n_tensors(const cl_model_file *file);
const cl_tensor *cl_model_file_tensor_at(const cl_model_file *file, size_t i);
const cl_tensor *cl_model_file_find_tensor(const cl_model_file *file, const char *name); /* NULL if absent */

/* The tensor's data need not stay in memory: they are read from the file again when they are asked for. */
void cl_model_file_drop(const cl_model_file *file, const cl_tensor *tensor);

bool cl_model_file_has(const cl_model_file *file, const char *key);

/* Metadata. False: the key is absent or of another type; integers of all widths convert when the value fits. */
bool cl_model_file_get_u64(const cl_model_file *file, const char *key, uint64_t *value);
bool cl_model_file_get_f64(const cl_model_file *file, const char *key, double *value);
bool cl_model_file_get_bool(const cl_model_file *file, const char *key, bool *value);
bool cl_model_file_get_string(const cl_model_file *file, const char *key, cl_str *value);

/* An array's element type and length; false if the key is absent or not an array. Elements of fixed size lie at *data
 * unaligned. */
bool cl_model_file_get_array(const cl_model_file *file, const char *key, cl_meta_type *type, size_t *n, const void **data);
/* The i-th string of an array of strings. */
cl_str cl_model_file_array_string(const cl_model_file *file, const char *key, size_t i);

/* For `info`: the i-th key in file order, its type, and its value printed as text (arrays shortened). */
size_t cl_model_file_n_keys(const cl_model_file *file);
cl_str cl_model_file_key_at(const cl_model_file *file, size_t i, cl_meta_type *type);
void cl_model_file_print_value(const cl_model_file *file, size_t i, char *buf, size_t size);

#endif
