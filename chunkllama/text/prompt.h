/*
 * The text of a prompt, which records which parts of it are the chat format's own. Only in these parts the names of special
 * tokens stand for these tokens (cl_tokenizer_encode_spans), so the text of a message never becomes one.
 */
#ifndef CHUNKLLAMA_TEXT_PROMPT_H
#define CHUNKLLAMA_TEXT_PROMPT_H

#include <stdbool.h>

#include "tokenizer.h"

/* Zero-initialise, free with cl_prompt_free. */
typedef struct cl_prompt {
    char *text; /* [size] owned */
    size_t size, capacity;
    cl_text_span *own; /* [n_own] the parts that are the format's own; owned */
    size_t n_own, own_capacity;
    bool no_memory; /* an allocation failed, and a part is missing */
} cl_prompt;

void cl_prompt_free(cl_prompt *p);

/* Append text that came from the caller, such as a message's. */
void cl_prompt_add(cl_prompt *p, cl_str text);
/* Append text of the format. Consecutive ones form one part, so that together they can be the name of a special token. */
void cl_prompt_add_own(cl_prompt *p, cl_str text);
void cl_prompt_add_format(cl_prompt *p, const char *text);
/* Append the name of a token as text of the format; nothing for -1. */
void cl_prompt_add_token(cl_prompt *p, const cl_tokenizer *tok, int32_t id);

/* Append the bytes [start, end) of another prompt; what is the format's own there is so here. */
void cl_prompt_add_part(cl_prompt *p, const cl_prompt *from, size_t start, size_t end);

/* Remove the bytes [start, end). */
void cl_prompt_remove(cl_prompt *p, size_t start, size_t end);

#endif
