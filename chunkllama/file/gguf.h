/* The inside of reading GGUF files: one file, which may be a part of a model. */
#ifndef CHUNKLLAMA_FILE_GGUF_H
#define CHUNKLLAMA_FILE_GGUF_H

#include "model_file_data.h"

/*
 * Fill an empty handle with the keys and tensors of a file, which is borrowed until the handle is closed. Messages do not name
 * the file. On failure what was allocated stays for cl_model_file_close.
 */
cl_status cl_gguf_parse(cl_file_bytes *bytes, cl_model_file *file, cl_error *error);

#endif
