/* The chat formats, which write the text of a prompt. */
#ifndef LLAMA_CHAT_CHAT_FORMATS_H
#define LLAMA_CHAT_CHAT_FORMATS_H

#include <stdbool.h>

#include "chat.h"
#include "llama/text/prompt.h"

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
