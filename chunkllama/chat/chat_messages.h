/*
 * Rewrites messages and tools for templates that cannot write all of them. The parts that a template cannot write are said by
 * the messages in the form that Hermes and Qwen models are trained on, as text:
 *
 *   tools        in the system message, one JSON object a line between <tools> and </tools>
 *   calls        in the content of the assistant's message, <tool_call> {"name", "arguments"} </tool_call>
 *   results      in a message of the user, <tool_response> ... </tool_response>
 *   a system message, where the template has no such role, before the first message of the user
 *
 * A message with several calls, where the template refuses it, becomes one for each call, followed by its result.
 */
#ifndef CHUNKLLAMA_CHAT_CHAT_MESSAGES_H
#define CHUNKLLAMA_CHAT_CHAT_MESSAGES_H

#include <jansson.h>
#include <stdbool.h>

/* The abilities of a template (chat_probe.h). */
typedef struct cl_chat_abilities {
    bool system;        /* messages of the role system */
    bool developer;     /* messages of the role developer, which others know as system */
    bool strings;       /* content that is a string */
    bool parts;         /* content that is an array of parts */
    bool tools;         /* `tools` */
    bool calls;         /* tool_calls of messages, and messages of the role tool */
    bool argument_text; /* calls: arguments must be JSON text, rather than an object */
    bool null_content;  /* calls: content may be null, rather than "" */
    bool short_ids;     /* calls: ids must have nine letters and digits (Mistral) */
    bool single_calls;  /* calls: a message must not have several (Llama 3.1) */
} cl_chat_abilities;

/* A copy of an object or array, which shares its values; NULL if memory is lacking, which json_copy does not always notice. */
json_t *cl_chat_copy(const json_t *value);

/*
 * The messages for a template of these abilities: a new reference, which shares values with `messages`. tools: NULL, or an
 * array that is to be described if the template does not write it. NULL: memory is lacking.
 */
json_t *cl_chat_rewrite(const cl_chat_abilities *can, const json_t *messages, const json_t *tools);

#endif
