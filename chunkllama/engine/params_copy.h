/* Copies what the parameters of a request point to, all in one block, whose size is known before it is allocated. */
#ifndef CHUNKLLAMA_ENGINE_PARAMS_COPY_H
#define CHUNKLLAMA_ENGINE_PARAMS_COPY_H

#include <stddef.h>

#include "chunkllama.h"

/* The bytes of the block. The parameters have been checked, but for the prompt, which may be missing and does not count then.
 */
size_t cl_params_bytes(const cl_engine_request *params);

/*
 * Let the pointers of parameters point to copies, in a block that the caller frees; the grammar's stays as it is. NULL if
 * memory is lacking; then nothing has changed.
 */
void *cl_params_copy(cl_engine_request *params);

#endif
