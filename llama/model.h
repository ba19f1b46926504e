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

typedef struct model {
    model_file *file;
    char *path;
    model_params params;
    tokenizer *tok;
    chat_format chat; /* CHAT_NONE: no template; chat_error says why where it is unknown */
    cl_error chat_error;
    model_weights weights;
    const linear_kernel *kernel; /* the level in use */
} model;

typedef struct model_options {
    const char *level; /* highest kernel level; NULL: the CPU's best. CATTN_LEVEL lowers it */
    ca_pool *pool;     /* repacks in parallel; borrowed for the call */
} model_options;

cl_status model_load(const char *path, const model_options *options, model **m, cl_error *error);
void model_free(model **m);

#endif
