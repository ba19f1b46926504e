/*
 * A model file of any format: metadata by key and tensors by name, both under GGUF's names. cl_tensor.name is the file's own
 * name.
 *
 * The readers of other formats set some keys that GGUF does not have, and that a GGUF file must not have:
 *   ARCH.rope.halves             bool: the weights of Q and K are not permuted
 *   ARCH.embeddings_only         bool: there is no output matrix
 *   ARCH.biases                  the biases that there are: 1 of Q, K and V, 2 of attention's output, 4 of the feed-forward
 *                                block, 8 of norms, 16 of experts, 32 of the router's choice, added up
 *   ARCH.attention.values_are_keys  bool: layers without a window have no matrix of V
 *   ARCH.rope.layers             bool [n_layers]: which layers are rotated
 *   ARCH.rope.scaling.magnitude  a number: multiplies cosine and sine, all included
 *   ARCH.rope.scaling.yarn_whole_pairs  bool: YaRN's ramp begins and ends at whole pairs
 *   tokenizer.merge_ids          int32 [n][3]: left, right, result
 *   tokenizer.space_prefix       string, spm.h
 *   tokenizer.fuse_unknown       bool, spm.h
 *   tokenizer.normalized_tokens  bool [n], vocab.h
 *   tokenizer.leading_tokens     int32 [n], tokenizer.h; likewise tokenizer.trailing_tokens
 *   tokenizer.bos_token          string, by which chat templates know the token; likewise eos_token, unk_token, pad_token
 *
 * A file is checked completely when it is opened. Everything returned points into the file or the handle and is valid until
 * cl_model_file_close. Immutable; safe from any number of threads.
 */
#ifndef CHUNKLLAMA_FILE_MODEL_FILE_H
#define CHUNKLLAMA_FILE_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/error.h"
#include "chunkllama/tensor/tensor.h"

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

/*
 * Open a GGUF file, or a folder as Hugging Face publishes them: safetensors, config.json, tokenizer.json. *file is NULL after
 * an error, for all functions that open.
 */
cl_status cl_model_file_open(const char *path, cl_model_file **file, cl_error *error);

/*
 * Open a GGUF file of version 2 or 3, or all parts of a split model, if the file is one of them; the second, for tests, from
 * data [size] that is borrowed until cl_model_file_close.
 */
cl_status cl_gguf_open(const char *path, cl_model_file **file, cl_error *error);
cl_status cl_gguf_open_memory(const void *data, size_t size, cl_model_file **file, cl_error *error);

/* Open a Hugging Face folder. Messages name file and field. */
cl_status cl_hf_open(const char *folder, cl_model_file **file, cl_error *error);

/*
 * Open a folder to look at it, also one whose architecture or tokenizer is not supported: the metadata are the fields of
 * config.json, and general.architecture its class; tensors have the folder's names. It cannot be loaded.
 */
cl_status cl_hf_look(const char *folder, cl_model_file **file, cl_error *error);

void cl_model_file_close(cl_model_file **file);

/*
 * Whether a path names a part of a split model, such as "a/model-00002-of-00003.gguf": then the length of what comes before
 * "-00002", else 0. *part counts from 1.
 */
size_t cl_model_file_part_of(const char *path, int32_t *part, int32_t *n_parts);
/* The path of another part of such a model. The caller frees it; NULL if memory is lacking. */
char *cl_model_file_part_path(const char *path, int32_t part);

/*
 * A model's name from its path: that of the file without ".gguf" or a part's "-00001-of-00003.gguf", or of the folder. It is
 * UTF-8, with U+FFFD for bytes that are not. The caller frees it; NULL if memory is lacking.
 */
char *cl_model_file_name(const char *path);

/* The format, such as "GGUF version 3", "GGUF version 3, 2 parts" or "safetensors". */
const char *cl_model_file_format(const cl_model_file *file);
/* The file's own name of a key or a tensor, for messages; valid until the thread's next call. */
const char *cl_model_file_source_name(const cl_model_file *file, const char *name);

size_t cl_model_file_n_tensors(const cl_model_file *file);
const cl_tensor *cl_model_file_tensor_at(const cl_model_file *file, size_t i);

/* The bytes of all tensors, and their elements up to INT64_MAX: tensors of unknown types may claim any size. */
uint64_t cl_model_file_bytes(const cl_model_file *file);
int64_t cl_model_file_n_elements(const cl_model_file *file);
/* The bytes that the tensors take in memory: matrices as they are packed, vectors as f32. Those that cannot be read: none. */
uint64_t cl_model_file_memory(const cl_model_file *file);
/* The type of the tensors that have the most bytes. */
uint32_t cl_model_file_main_type(const cl_model_file *file);
/* The tensor of this GGUF name, or NULL. */
const cl_tensor *cl_model_file_find_tensor(const cl_model_file *file, const char *name);

/*
 * A hash of all bytes of the files, and of all metadata. It reads the files once more; to be called before the reading of
 * tensors ends. CL_ERR_FILE: a file is shorter by now, or cannot be read; CL_ERR_NOMEM.
 */
cl_status cl_model_file_fingerprint(const cl_model_file *file, uint64_t fingerprint[2], cl_error *error);

/*
 * A hash of all metadata, and of the sizes of the files and some 64 places of each: files of other weights have another one,
 * with few exceptions, and it takes no time. Otherwise as cl_model_file_fingerprint.
 */
cl_status cl_model_file_sample(const cl_model_file *file, uint64_t *sample, cl_error *error);

/*
 * End the reading of tensors: the files are closed, and only metadata remain, in memory. CL_ERR_FILE: a file was changed since
 * it was opened, so what was read may be wrong.
 */
cl_status cl_model_file_end_loading(cl_model_file *file, cl_error *error);

bool cl_model_file_has(const cl_model_file *file, const char *key);

/*
 * The value of a key. False: the key is absent or of another type. Integers of all widths are converted if the value fits. An
 * array of numbers that are all equal, as files have for each layer, counts as that number.
 */
bool cl_model_file_get_u64(const cl_model_file *file, const char *key, uint64_t *value);
bool cl_model_file_get_f64(const cl_model_file *file, const char *key, double *value);
bool cl_model_file_get_bool(const cl_model_file *file, const char *key, bool *value);
bool cl_model_file_get_string(const cl_model_file *file, const char *key, cl_str *value);
/* The i-th integer of an array, or the only one for any i. */
bool cl_model_file_get_u64_at(const cl_model_file *file, const char *key, size_t i, uint64_t *value);

/*
 * An array's element type and number of elements; false if the key is absent or not an array. *data: the elements, unaligned,
 * if they have a fixed size.
 */
bool cl_model_file_get_array(const cl_model_file *file, const char *key, cl_meta_type *type, size_t *n, const void **data);
/* The i-th string of an array of strings; empty if there is none. */
cl_str cl_model_file_array_string(const cl_model_file *file, const char *key, size_t i);

/* For `chunkllama info`: the i-th key in the order of the file, its type, and its value as text, in which arrays are cut. */
size_t cl_model_file_n_keys(const cl_model_file *file);
cl_str cl_model_file_key_at(const cl_model_file *file, size_t i, cl_meta_type *type);
void cl_model_file_print_value(const cl_model_file *file, size_t i, char *buf, size_t size);

#endif
