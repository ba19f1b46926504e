/*
 * How a model's chats are written: by the Jinja template of its file, by another template, or by a built-in one. The text is
 * what Transformers makes of the same template, messages and tools. Special tokens come from the template only, never from a
 * message, a tool or another value of the caller (chunkllama/jinja/jinja.h).
 *
 * Templates differ in what they can express. When a chat is created, its template renders sample chats, which show what it
 * cannot write (chat_probe.h). That is rewritten for it in each chat (chat_messages.h), so every template takes system
 * messages, content in parts, tools, calls and their results. Some abilities depend on the chat: a template may
 * accept a system message in one place, and refuse or leave it out in another. These are tried on the chat itself before it is
 * written (chat_arrange.c).
 */
#ifndef CHUNKLLAMA_CHAT_CHAT_H
#define CHUNKLLAMA_CHAT_CHAT_H

#include <jansson.h>

#include "chunkllama/text/prompt.h"
#include "reply.h"

/* Immutable; safe from any number of threads. */
typedef struct cl_chat cl_chat;

/* The names of the built-in templates, for messages. */
#define CL_CHAT_NAMES "chatml, llama2, llama3, zephyr, mistral or gemma"
/* The name of a chat that is written by a template of the file or of the user. */
#define CL_CHAT_TEMPLATE "template"

/*
 * Each of these borrows the file and the tokenizer until cl_chat_free; *chat is NULL after an error. Errors of a template name
 * its line; CL_ERR_NOMEM.
 */

/*
 * The chat of the file's own template; *chat is NULL with CL_OK if it has none. If the file also has a template named tool_use,
 * that one writes chats with tools, as in Transformers.
 */
cl_status cl_chat_of_file(const cl_model_file *file, const cl_tokenizer *tok, cl_chat **chat, cl_error *error);

/* The chat of a template, text [size], which is borrowed for the call. */
cl_status cl_chat_of_template(const char *text, size_t size, const cl_model_file *file, const cl_tokenizer *tok, cl_chat **chat,
                              cl_error *error);

/*
 * The chat of the built-in template called "chatml", "llama2", "llama3", "zephyr", "mistral" or "gemma". CL_ERR_ARG: the name
 * is unknown. chatml also writes the system message that the file's own template, if it is a ChatML template, puts before chats
 * without one.
 */
cl_status cl_chat_by_name(const char *name, const cl_model_file *file, const cl_tokenizer *tok, cl_chat **chat,
                          cl_error *error);

/* NULL is ignored; *chat becomes NULL. */
void cl_chat_free(cl_chat **chat);

/* The name of the built-in template, or CL_CHAT_TEMPLATE; static. */
const char *cl_chat_name(const cl_chat *chat);

/* The text of the template that writes chats with or without tools; valid until cl_chat_free. */
cl_str cl_chat_text(const cl_chat *chat, bool with_tools);

/* Whether the template writes `tools` itself. Otherwise they are described in the system message. */
bool cl_chat_has_tools(const cl_chat *chat);

/* How the model writes its replies; valid until cl_chat_free. */
const cl_reply_format *cl_chat_reply(const cl_chat *chat);

/*
 * Whether the arguments of calls are written from their JSON text, so that this text is what the model wrote. Otherwise the
 * template needs them as an object.
 */
bool cl_chat_takes_argument_text(const cl_chat *chat, bool with_tools);

/* A chat to be written. All pointers are borrowed for the call. Fill with cl_chat_input_init, then set `messages`. */
typedef struct cl_chat_input {
    /*
     * An array of at least one of OpenAI's chat messages, objects: "role", a string; "content", a string, an array of
     * {"type": "text", "text"}, or null; perhaps "tool_calls", an array of {"id", "type", "function": {"name", "arguments"}},
     * with arguments as an object, or as its JSON text if cl_chat_takes_argument_text, or as any text if it is none;
     * "tool_call_id", "name", "reasoning_content" and what else the template knows.
     */
    const json_t *messages;
    const json_t *tools;         /* an array of {"type": "function", "function": {...}}; NULL or empty: none */
    const json_t *documents;     /* an array for the template; NULL: none */
    const json_t *kwargs;        /* an object whose members are further variables of the template; NULL: none */
    bool add_generation_prompt;  /* default true: the text ends where the answer begins */
    bool continue_final_message; /* the text ends within the last message, where its content ends; not with the former */
    int64_t now;                 /* seconds since 1970; default the time of cl_chat_input_init */
} cl_chat_input;

void cl_chat_input_init(cl_chat_input *in);

/*
 * Write the text of a chat to *text, which must be empty; it begins with one BOS if the file asks for one or the template
 * writes one. After an error *text is undefined, and is to be freed.
 *
 * CL_ERR_ARG: the template refuses the chat, with its message, or needs more time or memory than a template may
 * (cl_jinja_options); or there is no message; or the final message has no content that can be continued. CL_ERR_NOMEM; the
 * errors of the thread's deadline (chunkllama/common/deadline.h).
 */
cl_status cl_chat_render(const cl_chat *chat, const cl_chat_input *in, cl_prompt *text, cl_error *error);

/* The same, and append the tokens of the text to *out. After an error *out may hold some of them. */
cl_status cl_chat_tokenize(const cl_chat *chat, const cl_chat_input *in, cl_token_list *out, cl_error *error);

/* The same for plain messages [n], in which bytes that are not UTF-8 become U+FFFD. kwargs: as in cl_chat_input. */
cl_status cl_chat_tokenize_messages(const cl_chat *chat, const cl_chat_message *messages, size_t n, const json_t *kwargs,
                                    cl_token_list *out, cl_error *error);

#endif
