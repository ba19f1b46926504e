/* A chat prompt in the making: text that remembers which parts are the format's own, and the formats that write it. */
#ifndef LLAMA_CHAT_CHAT_PROMPT_H
#define LLAMA_CHAT_CHAT_PROMPT_H

#include <stdbool.h>

#include "chat.h"
#include "llama/text/tokenizer.h"

typedef struct cl_prompt {
    char *text;
    size_t size, capacity;
    cl_text_span *own; /* what is the format's */
    size_t n_own, own_capacity;
    bool no_memory;
} cl_prompt;

void cl_prompt_free(cl_prompt *p);

void cl_prompt_add(cl_prompt *p, cl_str text);             /* a message's */
void cl_prompt_add_format(cl_prompt *p, const char *text); /* the format's: pieces that follow each other are one, so that they
                                                        can make up a special token's name */
void cl_prompt_add_token(cl_prompt *p, const cl_tokenizer *tok, int32_t id); /* a token's name; nothing for -1 */

/* What a format goes by. Messages are checked; in formats that take turns the system message, or NULL, is apart. */
typedef struct cl_chat_input {
    const cl_tokenizer *tok;
    cl_str template; /* the file's, or empty */
    const cl_chat_message *system, *messages;
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
