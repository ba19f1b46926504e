/*
 * The inside of a model file's handle, for the readers of each format, and the functions with which they fill it.
 *
 * The arena and the metadata functions are for one thread, while the handle is being filled; afterwards it is immutable.
 */
#ifndef CHUNKLLAMA_FILE_MODEL_FILE_DATA_H
#define CHUNKLLAMA_FILE_MODEL_FILE_DATA_H

#include "chunkllama/common/file_bytes.h"
#include "chunkllama/common/hash.h"
#include "model_file.h"

/* Memory that is freed all at once. Zero-initialise. */
typedef struct cl_arena {
    struct cl_arena_block *blocks; /* newest first; owned */
    size_t used;                   /* bytes of the newest block */
} cl_arena;

/* `size` zeroed bytes, aligned to 64, that live until cl_arena_free; NULL if memory is lacking. */
void *cl_arena_alloc(cl_arena *a, size_t size);
void cl_arena_free(cl_arena *a);

typedef struct cl_meta_key {
    cl_str name;
    cl_meta_type type;
    cl_meta_type elem;        /* an array's element type */
    size_t n;                 /* an array's number of elements */
    const unsigned char *raw; /* the value, or an array's first element; unaligned. Borrowed from a file or the arena */
    cl_str *strings;          /* [1] of a string, [n] of an array of strings; owned by the handle. NULL for other types */
} cl_meta_key;

struct cl_model_file {
    char format[40];      /* cl_model_file_format */
    cl_file_bytes *files; /* [n_files] in which keys and tensors lie, or that say how; owned. None: the caller has the bytes */
    size_t n_files;
    cl_arena memory; /* values and names that lie in no file */
    bool no_memory;  /* an allocation failed while the handle was filled */

    /* The file's own name of a key or tensor, as in cl_model_file_source_name; NULL: GGUF's names are the file's. */
    const char *(*source_name)(const cl_model_file *file, const char *name);

    cl_meta_key *keys; /* [n_keys] owned */
    size_t n_keys;
    cl_tensor *tensors; /* [n_tensors] owned */
    size_t n_tensors;
    cl_str_map key_map, tensor_map; /* from names to indices of keys and tensors */
};

/* Bytes of a value of a type of fixed size; 0 for strings, arrays and numbers that are not a cl_meta_type. */
size_t cl_meta_size(uint32_t type);

/*
 * Metadata for formats that name it differently from GGUF. cl_meta_init reserves CL_META_MAX_KEYS keys. Each name is put
 * once. Names and values are copied into the handle. If memory is lacking, the key is left out and file->no_memory is set,
 * which the caller checks at the end.
 */
enum { CL_META_MAX_KEYS = 64 };

cl_status cl_meta_init(cl_model_file *file, cl_error *error);
void cl_meta_put_u32(cl_model_file *file, const char *name, uint32_t value);
void cl_meta_put_f64(cl_model_file *file, const char *name, double value);
void cl_meta_put_bool(cl_model_file *file, const char *name, bool value);
void cl_meta_put_string(cl_model_file *file, const char *name, cl_str value);

/*
 * An array of n zeroed elements of a type of fixed size, or of n empty strings, which the caller fills in. The handle owns it;
 * NULL if memory is lacking.
 */
void *cl_meta_put_array(cl_model_file *file, const char *name, cl_meta_type elem, size_t n);
cl_str *cl_meta_put_strings(cl_model_file *file, const char *name, size_t n);

/* A copy of `text` that lives as long as the handle; empty if memory is lacking. */
cl_str cl_meta_copy(cl_model_file *file, cl_str text);

#endif
