/* The chat formats, and the text that they write, which records what parts of it are the format's own. */
#ifndef LLAMA_CHAT_CHAT_FORMATS_H
#define LLAMA_CHAT_CHAT_FORMATS_H

#include <stdbool.h>

#include "chat.h"
#include "llama/text/tokenizer.h"

/* Zero-initialise, free with cl_prompt_free. */
typedef struct cl_prompt {
    char *text; /* [size] owned */
    size_t size, capacity;
    cl_text_span *own; /* [n_own] the parts that are the format's own; owned */
    size_t n_own, own_capacity;
    bool no_memory; /* an allocation failed, and a part is missing */
} cl_prompt;

void cl_prompt_free(cl_prompt *p);

/* Append the text of a message. */
void cl_prompt_add(cl_prompt *p, cl_str text);
/* Append text of the format. Consecutive ones form one part, so that together they can be the name of a special token. */
void cl_prompt_add_format(cl_prompt *p, const char *text);
/* Append the name of a token as text of the format; nothing for -1. */
void cl_prompt_add_token(cl_prompt *p, const cl_tokenizer *tok, int32_t id);

/* What a format is written from. The messages are checked. All pointers are borrowed. */
typedef struct cl_chat_input {
    const cl_tokenizer *tok;
    cl_str template;                 /* the file's, or empty */
    const cl_chat_message *system;   /* in formats that require turns: the system message, or NULL */
    const cl_chat_message *messages; /* [n] all others */
    size_t n;
} cl_chat_input;

void cl_chat_write_chatml(cl_prompt *p, const cl_chat_input *in);
void cl_chat_write_llama2(cl_prompt *p, const cl_chat_input *in);
void cl_chat_write_llama3(cl_prompt *p, const cl_chat_input *in);
void cl_chat_write_zephyr(cl_prompt *p, const cl_chat_input *in);
void cl_chat_write_mistral(cl_prompt *p, const cl_chat_input *in);
void cl_chat_write_gemma(cl_prompt *p, const cl_chat_input *in);

static inline bool cl_chat_is_role(const cl_chat_message *m, const char *role) { return strcmp(m->role, role) == 0; }

#endif
