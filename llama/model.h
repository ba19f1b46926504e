/*
 * A loaded model: parameters, weights in kernel layouts, tokenizer and chat format of one file.
 *
 * Immutable after loading; safe from any number of threads.
 */
#ifndef LLAMA_MODEL_H
#define LLAMA_MODEL_H

#include "llama/chat/chat.h"
#include "llama/text/tokenizer.h"
#include "params.h"
#include "weights.h"

typedef struct cl_model {
    cl_model_file *file;
    char *path;
    cl_model_params params;
    cl_tokenizer *tok;
    cl_chat_format chat; /* CL_CHAT_NONE: no template; chat_error says why where it is unknown */
    cl_error chat_error;
    cl_model_weights weights;
    const cl_kernels *kernels; /* the level in use */
} cl_model;

typedef struct cl_model_options {
    const char *level; /* highest kernel level; NULL: the CPU's best. CATTN_LEVEL lowers it */
    ca_pool *pool;     /* repacks in parallel; borrowed for the call */
} cl_model_options;

cl_status cl_model_load(const char *path, const cl_model_options *options, cl_model **m, cl_error *error);
void cl_model_free(cl_model **m);

#endif
