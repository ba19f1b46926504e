/*
 * Files of requests as `chunkllama batch` reads them, as prompts in tokens: one JSON object a line, {"messages": [{"role",
 * "content"}, ...]} or {"prompt": "text" or [token ids]}, either itself or as the "body" of OpenAI's batch form. Other fields
 * are ignored, and blank lines are skipped.
 */
#ifndef BENCH_SHARED_WORKLOAD_H
#define BENCH_SHARED_WORKLOAD_H

#include "chunkllama/chat/chat.h"

typedef struct workload {
    cl_token_list *requests;
    size_t n, capacity;
} workload;

/* The tokenizer and chat template of a model file; its weights are not read. */
typedef struct prompt_model {
    cl_model_file *file;
    cl_tokenizer *tok;
    cl_chat *chat; /* NULL: chat_error says why messages cannot be rendered */
    cl_error chat_error;
} prompt_model;

cl_status prompt_model_open(const char *path, prompt_model *model, cl_error *error);
void prompt_model_close(prompt_model *model);

/* *load begins as {0} and is freed by the caller, also after an error, which names the file's line. */
cl_status workload_read(const char *path, const prompt_model *model, workload *load, cl_error *error);
void workload_free(workload *load);

#endif
