/*
 * A safetensors file: eight bytes of header size, little-endian, a JSON object of tensors, and their data. Every size, offset
 * and shape is checked against the file; tensors must fill the data without overlap or gap, as the format asks.
 */
#ifndef LLAMA_FILE_SAFETENSORS_H
#define LLAMA_FILE_SAFETENSORS_H

#include "file_map.h"
#include "llama/common/error.h"
#include "tensor.h"

typedef struct cl_safetensors {
    cl_tensor *tensors; /* [n] names are held here, data lie in the map; data is NULL for types other than F32, F16 and BF16 */
    size_t n;
    struct json_t *header;
} cl_safetensors;

/* Messages name the path. The map is borrowed. On failure *file is empty. */
cl_status cl_safetensors_parse(const char *path, const cl_file_map *map, cl_safetensors *file, cl_error *error);
void cl_safetensors_free(cl_safetensors *file);

#endif
