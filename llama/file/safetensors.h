/*
 * A safetensors file: eight bytes of header size, little-endian, a JSON object of tensors, and their data. Every size, offset
 * and shape is checked against the file; tensors must fill the data without overlap or gap, as the format asks.
 */
#ifndef LLAMA_FILE_SAFETENSORS_H
#define LLAMA_FILE_SAFETENSORS_H

#include "file_map.h"
#include "llama/common/error.h"
#include "tensor.h"

typedef struct safetensors {
    tensor *tensors; /* [n] names are held here, data lie in the map; data is NULL for types other than F32, F16 and BF16 */
    size_t n;
    struct json_t *header;
} safetensors;

/* Messages name the path. The map is borrowed. On failure *file is empty. */
cl_status safetensors_parse(const char *path, const file_map *map, safetensors *file, cl_error *error);
void safetensors_free(safetensors *file);

#endif
