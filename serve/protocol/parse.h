/*
 * The parts of openai_request_parse, and the typed fields of JSON objects that they read.
 *
 * All functions that return bool return false with *error filled: it names the field, its value and its limits.
 */
#ifndef SERVE_PROTOCOL_PARSE_H
#define SERVE_PROTOCOL_PARSE_H

#include <math.h>

#include "chunkllama/text/prompt.h"
#include "openai.h"

/* ---- Parts of a request; each reads its fields of the body into *request ---- */

/*
 * openai_request_parse for a body that a dialect has made from another one, in which response_format comes from the field
 * `format`, a static string, and names of tools may have max_tool_name bytes.
 */
bool openai_request_parse_as(const openai_context *context, openai_endpoint endpoint, const char *format, size_t max_tool_name,
                             const json_t *body, openai_request *request, openai_error *error);

/* A context whose `defaults` are those of llama-server's and Ollama's requests: context->local. */
openai_context openai_local_context(const openai_context *context);

/* Refuse a body that is no object, and a `model` by whose name the model may not be called (names.c). */
bool openai_check_body(const openai_context *context, const json_t *body, openai_error *error);

/* Refuse known fields that are not offered and would change the result (refused.c). */
bool openai_check_offered(openai_endpoint endpoint, const json_t *body, openai_error *error);

/* Read how to generate, and which things to report (read_params.c). */
bool openai_parse_params(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);

/*
 * Read what requests of all endpoints have: priority, salt, id, and how much of each prompt counts; and set their limits of
 * time (read_params.c).
 */
bool openai_parse_common(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);

/* Check request->params by the engine's own rules, before there is a prompt (read_request.c). */
bool openai_check_fields(const openai_context *context, const openai_request *request, openai_error *error);

/* Read which tokens may be drawn, once the number of tokens is known (rules.c). */
bool openai_parse_rules(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);
void openai_rules_free(openai_rules *rules);

/* Read the constraint on the text: response_format, structured_outputs, guided_*, grammar or json_schema (read_constraint.c).
 */
bool openai_parse_constraint(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);

/* Read a chat's tools, which of them may be called, and the parts of a reply that an answer has (tools.c). */
bool openai_parse_tools(const json_t *body, size_t max_name, openai_request *request, openai_error *error);

/*
 * Set how the replies to a chat are split, and the grammar that constrains them where calls are required or strict (tools.c).
 * The prompt has been read.
 */
bool openai_prepare_replies(const openai_context *context, openai_request *request, openai_error *error);

/*
 * Let the engine end reasoning that exceeds its budget, by the marks of the model's replies; without such marks there is no
 * budget (tools.c). The prompts have been read.
 */
bool openai_limit_reasoning(const openai_context *context, openai_request *request, openai_error *error);

/* Read `messages` or `prompt` as token ids (read_prompt.c), once all else of the body has been read. */
bool openai_parse_prompts(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);

/*
 * Read a chat, with its template's other inputs, as the text that the template makes of it, into *text, which is empty and to
 * be freed also after an error (read_chat.c). The request has its tools.
 */
bool openai_render_messages(const openai_context *context, const json_t *body, openai_request *request, cl_prompt *text,
                            openai_error *error);

/* The same as token ids. */
bool openai_parse_chat(const openai_context *context, const json_t *body, openai_request *request, openai_prompt *prompt,
                       openai_error *error);

/*
 * Read the value of a field called `name` as at most `most` prompts: one as openai_parse_prompt reads it, or an array of them.
 */
bool openai_parse_prompt_list(const openai_context *context, const json_t *value, const char *name, size_t most,
                              openai_request *request, openai_error *error);

/* Cut prompts that are longer than the request says to their last tokens (read_prompt.c). */
bool openai_truncate_prompts(const openai_context *context, openai_request *request, openai_error *error);

/* Let the answer repeat the text of each prompt, which is made of its tokens (read_prompt.c). Refuse too much text. */
bool openai_set_texts(const openai_context *context, openai_request *request, openai_error *error);

/* Refuse a request whose answer would repeat its prompts in too many bytes (read_request.c). The request is not freed. */
bool openai_check_repeated(const openai_request *request, openai_error *error);

/*
 * Read one of them: a string, an array of token ids and texts, or {"prompt_string": a string}. A text that comes first begins
 * the prompt, with the tokens that the model wants there. where: the prompt's name in messages.
 */
bool openai_parse_prompt(const openai_context *context, const json_t *value, const char *where, openai_request *request,
                         openai_prompt *prompt, openai_error *error);

/*
 * openai_embedding_parse in two parts: begin a new request, and read all fields but the texts; and, once the prompts have been
 * read, add the tokens that the model wants behind them, and cut those that are too long (embeddings.c).
 */
bool openai_embedding_begin(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);
bool openai_embedding_end(const openai_context *context, openai_request *request, openai_error *error);

/* Read how texts of completions and embeddings become tokens, before their prompts are read. */
bool openai_parse_special(const openai_context *context, const json_t *body, openai_request *request, openai_error *error);

/*
 * Refuse text of `size` bytes that cannot fit the context with any content (read_prompt.c). The engine would refuse it too,
 * by its number of tokens; but tokenizing megabytes takes seconds, during which all requests behind this one wait. where: the
 * text's field.
 */
bool openai_check_size(const openai_context *context, const char *where, size_t size, openai_error *error);

/* Refuse more tokens than the context holds, before they are copied. where: the field that they come from. */
bool openai_check_count(const openai_context *context, const char *where, size_t n_tokens, openai_error *error);

/* Count the bytes of an answer that needs no engine, before it is made: see openai_context. */
static inline bool openai_count_answer(const openai_context *context, size_t bytes, openai_error *error) {
    return !context->count_answer || context->count_answer(context->owner, bytes, error);
}

/* Refuse token ids whose text has too many bytes for an answer, before it is allocated. where: the field of the ids. */
bool openai_check_detokenized(const char *where, size_t size, openai_error *error);

/*
 * Refuse a body with a field that becomes a part of a chat's prompt, and has so much text that the prompt could hardly fit:
 * before the body is translated, copied or rendered.
 */
bool openai_check_texts(const openai_context *context, const json_t *body, openai_error *error);

/* Refuse the field of a text behind a gap, which the model cannot fill (read_prompt.c). Returns false. */
bool openai_fail_gaps(openai_error *error, const char *name);

/* ---- Names of fields (field.c) ---- */

field_path path_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Fields of an object (field.c); an absent field and null leave *value unchanged ---- */

/* The field's value; NULL if it is absent or null. Borrowed from the object. */
const json_t *field_get(const json_t *object, const char *name);

/* The field's value; NULL also if it is false, 0 or empty, and so requests nothing. */
const json_t *field_get_requested(const json_t *object, const char *name);

/* The bytes of all strings and names of fields within a value. */
size_t field_text_size(const json_t *value);

/* Refuse a field whose texts have more than max bytes. */
bool field_check_text(const json_t *object, const char *name, size_t max, openai_error *error);

/* What kind of value this is, for messages: "a string", "an integer", ... */
const char *field_kind(const json_t *value);

/*
 * Read a field of the type; a value of another type or outside [min, max] is an error. Integers may be written with a fraction
 * of 0, as in 3.0. A max of INT32_MAX means that there is none: it bounds what never gets so large, and larger numbers, by
 * which clients mean "no limit", count as it.
 */
bool field_bool(const json_t *object, const char *name, bool *value, openai_error *error);
bool field_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *value, openai_error *error);
bool field_int32(const json_t *object, const char *name, int32_t min, int32_t max, int32_t *value, openai_error *error);
bool field_float(const json_t *object, const char *name, double min, double max, float *value, openai_error *error);

/* Refuse numbers that contradict each other by being different: fields that are names [n] of one thing, by several peers. */
bool field_agree(const json_t *object, const char *const *names, size_t n, openai_error *error);

/* For field_float: openai_check_fields refuses numbers out of range. */
#define FIELD_ANY -INFINITY, INFINITY

/*
 * Read a value as a name, which is compared with others: a string without zero characters, which would end it. *name is
 * borrowed from the value. param is the value's name in messages.
 */
bool field_name(const json_t *value, const char *param, const char **name, openai_error *error);

/* Read a value as one of the model's token ids. param is the value's name in messages, such as "prompt[3]". */
bool field_token(const json_t *value, const char *param, const cl_model *model, int32_t *id, openai_error *error);

/*
 * Read a field as an array of at most max elements; *array is NULL if it is absent. `what` names the elements in messages, such
 * as "token ids".
 */
bool field_array(const json_t *object, const char *name, const char *what, size_t max, const json_t **array,
                 openai_error *error);

/* Read a field as an object; *value is NULL if it is absent. */
bool field_object(const json_t *object, const char *name, const json_t **value, openai_error *error);

/* Whether a value is an integer, or a number with a fraction of 0. *integer is set only then. */
bool field_is_integer(const json_t *value, int64_t *integer);

#endif
