/* The inside of a model file's handle, shared by the formats' parsers and the accessors. */
#ifndef LLAMA_FILE_MODEL_FILE_DATA_H
#define LLAMA_FILE_MODEL_FILE_DATA_H

#include "file_map.h"
#include "llama/common/arena.h"
#include "llama/common/str_map.h"
#include "model_file.h"

typedef struct meta_key {
    str name;
    meta_type type;
    meta_type elem;           /* of an array */
    size_t n;                 /* elements of an array */
    const unsigned char *raw; /* the value, unaligned; a string's or an array's first byte behind its length */
    str *strings;             /* a string, or an array of them */
} meta_key;

struct model_file {
    char format[24];
    file_map *maps; /* [n_maps] what data lie in; none: the bytes are the caller's */
    size_t n_maps;
    arena memory;                                                         /* what no map holds */
    bool no_memory;                                                       /* while it is filled (meta_build.h) */
    const char *(*source_name)(const model_file *file, const char *name); /* NULL: names are the file's own */
    meta_key *keys;
    size_t n_keys;
    tensor *tensors;
    size_t n_tensors;
    str_map key_map, tensor_map;
};

/* Fill an empty handle from a GGUF file's bytes. On failure what was allocated stays for model_file_close. */
cl_status gguf_parse(const void *data, size_t size, model_file *file, cl_error *error);

/* Bytes of a value of fixed size; 0 for strings, arrays and numbers that are no type. */
size_t meta_size(uint32_t type);

#endif
