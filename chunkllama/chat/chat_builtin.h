/* The built-in chat templates, for models whose file has none. */
#ifndef CHUNKLLAMA_CHAT_CHAT_BUILTIN_H
#define CHUNKLLAMA_CHAT_CHAT_BUILTIN_H

typedef struct cl_chat_builtin {
    const char *name;
    const char *text; /* a Jinja template, as jinja.h defines it */
} cl_chat_builtin;

/* The template called so, static; NULL: there is none. */
const cl_chat_builtin *cl_chat_builtin_find(const char *name);

/*
 * The variable of the template's own in which chatml expects what it writes before a chat without a system message, and a
 * template that writes as chatml does without it.
 */
#define CL_CHAT_BUILTIN_START "start"

#endif
