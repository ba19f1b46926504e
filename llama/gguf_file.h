/* The inside of a GGUF handle, shared by the parser and the accessors. */
#ifndef LLAMA_GGUF_FILE_H
#define LLAMA_GGUF_FILE_H

#include "gguf.h"
#include "str_map.h"

typedef struct gguf_key {
    str name;
    gguf_value_type type;
    gguf_value_type elem;     /* of an array */
    size_t n;                 /* elements of an array */
    const unsigned char *raw; /* the value, unaligned; a string's or an array's first byte behind its length */
    str *strings;             /* a string, or an array of them */
} gguf_key;

struct gguf {
    const unsigned char *data;
    size_t size;
    void *mapping; /* NULL: the bytes are the caller's */
    uint32_t version;
    gguf_key *keys;
    size_t n_keys;
    tensor *tensors;
    size_t n_tensors;
    str_map key_map, tensor_map;
};

/* Fill keys and tensors from data and size. On failure what was allocated stays for gguf_close. */
cl_status gguf_parse(gguf *file, cl_error *error);

/* Bytes of a value of fixed size; 0 for strings, arrays and numbers that are no type. */
size_t gguf_value_size(uint32_t type);

#endif
