/* The inside of a chat's handle. */
#ifndef CHUNKLLAMA_CHAT_CHAT_INTERNAL_H
#define CHUNKLLAMA_CHAT_CHAT_INTERNAL_H

#include "chat.h"
#include "chat_messages.h"
#include "chunkllama/jinja/jinja.h"

typedef struct cl_chat_template {
    cl_jinja *jinja; /* owned; NULL: there is no such template */
    char *text;      /* [size] owned */
    size_t size;
    cl_chat_abilities can;
} cl_chat_template;

struct cl_chat {
    const cl_tokenizer *tok;   /* borrowed */
    const char *name;          /* static */
    cl_chat_template main;     /* for all chats, or for those without tools */
    cl_chat_template tool_use; /* for chats with tools, if the file has such a template */
    json_t *own;               /* the template's own variables, such as bos_token; owned */
    cl_reply_format reply;
};

/* Find how a chat is rewritten for its template; CL_ERR_NOMEM (chat_arrange.c). */
cl_status cl_chat_arrange(const cl_chat *chat, const cl_chat_template *t, const cl_chat_input *in,
                          cl_chat_arrangement *arrangement, cl_error *error);

/*
 * Write a chat by an arrangement, as cl_chat_render. *n_steps, the most that the template may take, becomes those that it and
 * rewriting the messages took (chat_render.c).
 */
cl_status cl_chat_render_as(const cl_chat *chat, const cl_chat_template *t, const cl_chat_input *in,
                            const cl_chat_arrangement *arrangement, int64_t *n_steps, cl_prompt *text, cl_error *error);

/* Set `reply`; all else is set. CL_ERR_NOMEM (chat_reply.c). */
cl_status cl_chat_find_reply(cl_chat *chat, cl_error *error);

static inline const cl_chat_template *cl_chat_template_for(const cl_chat *chat, bool with_tools) {
    return with_tools && chat->tool_use.jinja ? &chat->tool_use : &chat->main;
}

#endif
