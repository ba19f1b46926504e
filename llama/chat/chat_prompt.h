/* A chat prompt in the making: text that remembers which parts are the format's own, and the formats that write it. */
#ifndef LLAMA_CHAT_CHAT_PROMPT_H
#define LLAMA_CHAT_CHAT_PROMPT_H

#include <stdbool.h>

#include "chat.h"
#include "llama/text/tokenizer_text.h"

typedef struct prompt {
    char *text;
    size_t size, capacity;
    text_span *own; /* what is the format's */
    size_t n_own, own_capacity;
    bool no_memory;
} prompt;

void prompt_free(prompt *p);

void prompt_add(prompt *p, str text);                /* a message's */
void prompt_add_format(prompt *p, const char *text); /* the format's: pieces that follow each other are one, so that they can
                                                        make up a special token's name */
void prompt_add_token(prompt *p, const tokenizer *tok, int32_t id); /* a token's name; nothing for -1 */

/* What a format goes by. Messages are checked; in formats that take turns the system message, or NULL, is apart. */
typedef struct chat_input {
    const tokenizer *tok;
    str template; /* the file's, or empty */
    const chat_message *system, *messages;
    size_t n;
} chat_input;

void chat_write_chatml(prompt *p, const chat_input *in);
void chat_write_llama2(prompt *p, const chat_input *in);
void chat_write_llama3(prompt *p, const chat_input *in);
void chat_write_zephyr(prompt *p, const chat_input *in);
void chat_write_mistral(prompt *p, const chat_input *in);
void chat_write_gemma(prompt *p, const chat_input *in);

static inline bool chat_is_role(const chat_message *m, const char *role) { return strcmp(m->role, role) == 0; }

#endif
