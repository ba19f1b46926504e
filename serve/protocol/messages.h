/*
 * The messages and tools of a chat, as a chat template gets them (cl_chat_input): checked, without fields that it does not
 * know.
 *
 * Both functions return a new reference, or NULL with *error filled: it names the field, such as
 * "messages[3].tool_calls[0].function.arguments".
 */
#ifndef SERVE_PROTOCOL_MESSAGES_H
#define SERVE_PROTOCOL_MESSAGES_H

#include "parse.h"

enum {
    OPENAI_MAX_TOOLS = 512,
    OPENAI_MAX_TOOL_CALLS = 512,                            /* of a message */
    OPENAI_MAX_TOOL_NAME = 64,                              /* bytes, as in OpenAI's API */
    ANTHROPIC_MAX_TOOL_NAME = 128,                          /* the same in Anthropic's */
    OLLAMA_MAX_TOOL_NAME = 128,                             /* the same in Ollama's, which has no limit */
    RESPONSES_MAX_TOOL_NAME = 2 * OPENAI_MAX_TOOL_NAME + 2, /* with the namespace before it */
};

/*
 * value: the field `messages`. argument_text: cl_chat_takes_argument_text. *odd is the name of the first call's arguments that
 * are no JSON object, as in a reply that was cut: they are passed on as text. "": there are none.
 */
json_t *openai_read_messages(const json_t *value, bool argument_text, field_path *odd, openai_error *error);

/* The field `tools` of a body, whose names have at most max_name bytes; without it an empty array. */
json_t *openai_read_tools(const json_t *body, size_t max_name, openai_error *error);

#endif
