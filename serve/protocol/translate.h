/*
 * Translates the body of another API into the body of a chat, which openai_request_parse reads, so that all that a chat offers
 * and refuses applies to both; errors name the fields of the body.
 *
 * All functions that return bool return false with *error filled, as the functions of parse.h do; those that return a value
 * return NULL then.
 */
#ifndef SERVE_PROTOCOL_TRANSLATE_H
#define SERVE_PROTOCOL_TRANSLATE_H

#include "parse.h"

/* A translation in the making. Free with translation_free. */
typedef struct openai_translation {
    const json_t *body;       /* borrowed */
    json_t *chat;             /* the chat's body; owned */
    openai_endpoint endpoint; /* that reads it: begins as OPENAI_CHAT; OPENAI_COMPLETION does not read the messages */
    json_t *messages;         /* those of the chat */
    const char *format;       /* a static string: the name of the body's field that response_format comes from; NULL: none */
    size_t max_tool_name;     /* bytes; begins as OpenAI's */
    json_t *names;            /* by the name of a field of the chat: the name of the body's field that it comes from; owned */
    json_t *repeated;         /* the fields of the body that answers repeat; owned */
    openai_error *error;      /* borrowed */
} openai_translation;

/*
 * Begin with a chat that has the body's fields but those of `own` [n_own], which mean something else in a chat or nothing. So
 * fields that are not the other API's own, such as `seed` or `top_k`, reach the chat as they are.
 */
bool translation_begin(openai_translation *t, const json_t *body, const char *const *own, size_t n_own, openai_error *error);

/* Parse the chat. The request takes over `repeated`. */
bool translation_parse(openai_translation *t, const openai_context *context, openai_request *request);

void translation_free(openai_translation *t);

/* ---- Parts of the chat; `value` is stolen, and if it is NULL, memory was lacking for it ---- */

/* A copy of an object with the same values; NULL: memory is lacking, which json_copy of jansson 2.14 does not notice. */
json_t *translation_copy(const json_t *object);

/* Set a field of an object of the chat or of `repeated`. */
bool translation_set(openai_translation *t, json_t *object, const char *name, json_t *value);

/* Append an element to an array of the chat. */
bool translation_append(openai_translation *t, json_t *array, json_t *value);

/* Note that the chat's field comes from the body's field `own`, if their names differ. What is below it is renamed, too. */
bool translation_name(openai_translation *t, const char *field, const char *own);

/* Set the chat's field from the body's field `own`, if that is there. */
bool translation_move(openai_translation *t, const char *field, const char *own);

/* Set the most tokens of the chat from the body's field `own`, if that is there. No number means "no limit", as -1 does in a
 * chat. */
bool translation_move_length(openai_translation *t, const char *own);

/* Append an empty message of a role. own: the name of the body's field that it comes from. Borrowed from the chat. */
json_t *translation_message(openai_translation *t, const char *role, const char *own);

/* Append a string as a text part of its own to the content of a message, which a chat puts on a line of its own. */
bool translation_add_text(openai_translation *t, json_t *message, json_t *value);

/* Append a string to the reasoning of a message, which translation_end_message makes one text. */
bool translation_add_reasoning(openai_translation *t, json_t *message, json_t *value);

/* The arguments of a call as text: they are JSON or its text, and what was cut or made up stays as it is. */
json_t *translation_arguments(const json_t *value);

/*
 * Append a call of a function to the last message. arguments: JSON as text, of the member own_arguments. own: as in
 * translation_message.
 */
bool translation_add_call(openai_translation *t, json_t *message, const json_t *id, const json_t *name, json_t *arguments,
                          const char *own, const char *own_arguments);

/* The JSON text of a value (NULL: memory was lacking for it) as a string. */
json_t *translation_text_of(const json_t *value);

/*
 * Add a function to the chat's tools: the name of the body's tool behind `prefix`, its description and strictness, and its
 * field `schema`, which describes the arguments. where: the tool's name in messages.
 */
bool translation_add_tool(openai_translation *t, const json_t *tool, const char *prefix, const char *schema, const char *where);

/* Call `read` for each of an array of tools (NULL: there are none), which are objects, until it fails. */
bool translation_read_tools(openai_translation *t, const char *where, const json_t *tools,
                            bool (*read)(openai_translation *t, const json_t *tool, const char *where));

/* End a message to which reasoning may have been added. */
bool translation_end_message(openai_translation *t, json_t *message);

/* Let the answer continue the last message if that is the assistant's, unless it has called tools. */
bool translation_continue(openai_translation *t);

/* Switch thinking on or off by the variables that templates read, enable_thinking and thinking. */
bool translation_set_thinking(openai_translation *t, bool on);

/* ---- The body; `where` is the value's name in messages ---- */

/* The field's value if it is a string; an error otherwise. */
const json_t *translation_string(openai_translation *t, const json_t *object, const char *where, const char *name);

/* Whether a value is this string. */
bool json_is(const json_t *value, const char *text);

#endif
