/* The inside of a model file's handle, shared by the formats' parsers and the accessors. */
#ifndef LLAMA_FILE_MODEL_FILE_DATA_H
#define LLAMA_FILE_MODEL_FILE_DATA_H

#include "file_map.h"
#include "llama/common/arena.h"
#include "llama/common/str_map.h"
#include "model_file.h"

typedef struct cl_meta_key {
    cl_str name;
    cl_meta_type type;
    cl_meta_type elem;        /* of an array */
    size_t n;                 /* elements of an array */
    const unsigned char *raw; /* the value, unaligned; a string's or an array's first byte behind its length */
    cl_str *strings;          /* a string, or an array of them */
} cl_meta_key;

struct cl_model_file {
    char format[24];
    cl_file_map *maps; /* [n_maps] what data lie in; none: the bytes are the caller's */
    size_t n_maps;
    cl_arena memory;                                                         /* what no map holds */
    bool no_memory;                                                          /* while it is filled (meta_build.h) */
    const char *(*source_name)(const cl_model_file *file, const char *name); /* NULL: names are the file's own */
    cl_meta_key *keys;
    size_t n_keys;
    cl_tensor *tensors;
    size_t n_tensors;
    cl_str_map key_map, tensor_map;
};

/* Fill an empty handle from a GGUF file's bytes. On failure what was allocated stays for cl_model_file_close. */
cl_status cl_gguf_parse(const void *data, size_t size, cl_model_file *file, cl_error *error);

/* Bytes of a value of fixed size; 0 for strings, arrays and numbers that are no type. */
size_t cl_meta_size(uint32_t type);

#endif
