/* GGUF v2 and v3 files: memory-mapped, every count, length, offset and type checked against the file before use. */
#ifndef LLAMA_FILE_GGUF_H
#define LLAMA_FILE_GGUF_H

#include "model_file.h"

cl_status cl_gguf_open(const char *path, cl_model_file **file, cl_error *error);
/* Same over bytes of the caller's, which must outlive the handle (tests, fuzzing). */
cl_status cl_gguf_open_memory(const void *data, size_t size, cl_model_file **file, cl_error *error);

#endif
