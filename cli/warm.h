/*
 * Computes the prompts of a file before a server is ready, so that they are in the K/V cache when its first request comes.
 *
 * A file has a request on each line, in the forms that `batch` reads (batch_line.h). Only its prompts count.
 */
#ifndef CLI_WARM_H
#define CLI_WARM_H

#include <stdio.h>

#include "serve/http/keys.h"
#include "serve/protocol/openai.h"

/* Zero: no file. */
typedef struct warm_file {
    const char *path; /* borrowed */
    FILE *in;         /* owned */
} warm_file;

/* Open a file; with NULL as its path do nothing. Errors: CL_ERR_FILE. */
cl_status warm_open(warm_file *file, const char *path, cl_error *error);

/*
 * Compute the file's prompts, one after another, and print on stdout what was done; without a file do nothing. pin: they stay
 * in the cache until the engine ends; otherwise until their memory is needed. context and keys, which say the tenants of which
 * requests will come, are borrowed for the call. openai_json_init was called before.
 *
 * Errors name the file, the line and the limit: CL_ERR_ARG for a line that is wrong or of a tenant without a key, and for a
 * file without requests; CL_ERR_LIMIT for a prompt that the context or the K/V budget does not hold, and for one that the
 * budget of pins does not; CL_ERR_FILE; CL_ERR_NOMEM. Prompts before that line are in the cache.
 */
cl_status warm_compute(warm_file *file, bool pin, const openai_context *context, const server_keys *keys, cl_engine *engine,
                       cl_error *error);

void warm_close(warm_file *file);

#endif
