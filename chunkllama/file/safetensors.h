/*
 * A safetensors file: eight bytes of header size, little-endian, a JSON object of tensors, and their data. Every size, offset
 * and shape is checked against the file; tensors must fill the data without overlap or gap, as the format requires.
 */
#ifndef CHUNKLLAMA_FILE_SAFETENSORS_H
#define CHUNKLLAMA_FILE_SAFETENSORS_H

#include "chunkllama/common/error.h"
#include "chunkllama/common/file_bytes.h"
#include "chunkllama/tensor/tensor.h"

typedef struct cl_safetensors {
    /* [n] owned; names point into the header, data into the file. data is NULL for types other than F32, F16, BF16 and these.
     */
    cl_tensor *tensors;
    size_t n;
    struct json_t *header; /* owned */
} cl_safetensors;

/* Parse a file, which is borrowed until cl_safetensors_free. Messages name the path. *file is empty after an error. */
cl_status cl_safetensors_parse(const char *path, cl_file_bytes *bytes, cl_safetensors *file, cl_error *error);
void cl_safetensors_free(cl_safetensors *file);

#endif
