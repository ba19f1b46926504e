/*
 * A loaded model: parameters, weights in kernel layouts, tokenizer and chat format of one file. chunkllama.h has its public
 * functions.
 *
 * Immutable after loading; safe from any number of threads.
 */
#ifndef CHUNKLLAMA_MODEL_MODEL_H
#define CHUNKLLAMA_MODEL_MODEL_H

#include "chunkllama.h"
#include "chunkllama/chat/chat.h"
#include "chunkllama/text/tokenizer.h"
#include "params.h"
#include "weights.h"

struct cl_model {
    cl_model_file *file; /* owned */
    char *path;          /* owned, as it was given */
    cl_model_params params;
    cl_tokenizer *tok;                 /* owned */
    cl_chat *chat;                     /* owned; NULL: the file has no template, or chat_error says why it cannot be used */
    cl_error chat_error;               /* code CL_OK: none */
    cl_model_weights weights;          /* owned */
    struct cl_device_model *on_device; /* owned; NULL: the forward pass runs on the CPU */
    const cl_kernels *kernels;         /* of the level in use, static */
    bool has_fingerprint;
    uint64_t fingerprint[2]; /* of its files */
    uint64_t sample;         /* of its files, by cl_model_file_sample */
};

/*
 * cl_model_load with the workers of a pool, which is borrowed for the call, as are level, *options and the watcher (NULL:
 * none), to which the second function reports each layer. n_threads of *options has no effect.
 */
cl_status cl_model_load_on_pool(const char *path, const char *level, ca_pool *pool, cl_model **model, cl_error *error);
cl_status cl_model_load_watched(const char *path, const cl_model_options *options, ca_pool *pool,
                                const cl_load_watcher *watcher, cl_model **model, cl_error *error);

#endif
