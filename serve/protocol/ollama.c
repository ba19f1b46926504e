/*
 * The dialects of Ollama's own endpoints. The bodies of /api/chat and /api/generate are translated into those of a chat or a
 * completion, with llama.cpp's defaults.
 */
#include "ollama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "messages.h"
#include "translate.h"

/* ---- Options: those that are read nowhere concern how Ollama runs a model, and change no answer ---- */

static bool move_option(openai_translation *t, const json_t *options, const char *field, const char *name) {
    const json_t *value = field_get(options, name);
    const field_path own = path_of("options.%s", name);
    return !value || (translation_set(t, t->chat, field, json_incref((json_t *)value)) && translation_name(t, field, own.text));
}

/* -2, "as much as the context holds", is no limit, as -1 is. */
static bool move_length(openai_translation *t, const json_t *options) {
    static const char field[] = "max_completion_tokens";
    int64_t n = 0;
    if (field_is_integer(field_get(options, "num_predict"), &n) && n == -2)
        return translation_set(t, t->chat, field, json_integer(-1));
    return move_option(t, options, field, "num_predict");
}

/* The context is that of the server, whose memory is set aside when it starts; no option makes it larger or smaller. */
static bool check_context(const json_t *options, openai_error *error) {
    int64_t n = 0;
    if (field_int(options, "num_ctx", INT64_MIN, INT32_MAX, &n, error)) return true;
    snprintf(error->param, sizeof error->param, "options.num_ctx");
    return false;
}

static bool read_options(openai_translation *t) {
    static const char *const names[] = {
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "seed",
        "stop",
        "repeat_penalty",
        "repeat_last_n",
        "presence_penalty",
        "frequency_penalty",
        "typical_p",
        "tfs_z",
        "mirostat",
    };
    const json_t *options;
    if (!field_object(t->body, "options", &options, t->error) || !check_context(options, t->error)) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!move_option(t, options, names[i], names[i])) return false;
    return move_length(t, options);
}

/* ---- Other fields of both ---- */

static bool refuse(openai_error *error, const char *name, const char *instead) {
    openai_refuse(error, name, "is not supported by this server; %s", instead);
    return openai_set_status(error, 400, "unsupported_parameter");
}

#define NO_IMAGES "it reads text alone: leave it out"

static bool check_offered(const json_t *body, openai_error *error) {
    static const char *const refused[][2] = {
        {"images", NO_IMAGES},
        {"template", "start it with --chat-template, or leave the field out"},
        {"_debug_render_only", "use /apply-template"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (field_get_requested(body, refused[i][0])) return refuse(error, refused[i][0], refused[i][1]);
    return true;
}

static bool read_format(openai_translation *t) {
    const json_t *format = field_get(t->body, "format");
    if (!format || json_is(format, "")) return true;
    t->format = "format";
    if (!translation_name(t, "response_format", "format") ||
        !translation_name(t, "response_format.json_schema.schema", "format"))
        return false;
    if (json_is(format, "json"))
        return translation_set(t, t->chat, "response_format", json_pack("{s:s}", "type", "json_object"));
    if (!cl_json_is_object(format)) return openai_refuse(t->error, "format", "must be \"json\" or an object, a JSON schema");
    return translation_set(t, t->chat, "response_format",
                           json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", format));
}

static bool read_stream(openai_translation *t) {
    return field_get(t->body, "stream") || translation_set(t, t->chat, "stream", json_true());
}

/* Without the field, the model thinks as its template says. */
static bool read_thinking(openai_translation *t) {
    const json_t *think = field_get(t->body, "think");
    if (!think) return true;
    if (json_is_boolean(think)) return translation_set_thinking(t, json_is_true(think));
    if (!json_is_string(think))
        return openai_refuse(t->error, "think", "must be true, false, or a level such as \"high\", not %s", field_kind(think));
    return (json_is(think, "none") || translation_set_thinking(t, true)) && translation_move(t, "reasoning_effort", "think");
}

/* The fields beside the messages of a chat. */
static bool read_beside(openai_translation *t) {
    return read_thinking(t) && translation_move(t, "logprobs", "logprobs") &&
           translation_move(t, "top_logprobs", "top_logprobs");
}

/* ---- /api/chat ---- */

/* A message of a chat but for its images, its tool's name, and a content that may be left out. */
static bool read_message(openai_translation *t, const json_t *value, size_t i) {
    const field_path images = path_of("messages[%zu].images", i), name = path_of("messages[%zu].name", i),
                     own = path_of("messages[%zu].tool_name", i);
    const json_t *tool = field_get(value, "tool_name");
    if (field_get_requested(value, "images")) return refuse(t->error, images.text, NO_IMAGES);
    if (!cl_json_is_object(value))
        return translation_append(t, t->messages, json_incref((json_t *)value)); /* the chat refuses it */
    json_t *message = translation_copy(value);
    if (!translation_append(t, t->messages, message)) return false;
    if (tool &&
        (!translation_set(t, message, "name", json_incref((json_t *)tool)) || !translation_name(t, name.text, own.text)))
        return false;
    return field_get(value, "content") || translation_set(t, message, "content", json_string(""));
}

static bool read_chat(openai_translation *t) {
    const json_t *messages = field_get(t->body, "messages"), *message;
    size_t i;
    if (!json_is_array(messages))
        return openai_refuse(t->error, "messages", "must be an array of messages, not %s", field_kind(messages));
    json_array_foreach(messages, i, message) if (!read_message(t, message, i)) return false;
    return translation_continue(t) && read_beside(t);
}

/* ---- /api/generate ---- */

static bool add_message(openai_translation *t, const char *role, const char *own) {
    const json_t *text = translation_string(t, t->body, "", own);
    json_t *message = text ? translation_message(t, role, own) : NULL;
    return message && translation_set(t, message, "content", json_incref((json_t *)text));
}

/* The chat template writes the system and the prompt. */
static bool read_templated(openai_translation *t) {
    return (!field_get_requested(t->body, "system") || add_message(t, "system", "system")) &&
           add_message(t, "user", "prompt") && translation_name(t, "messages", "prompt") && read_beside(t);
}

/* The prompt is the model's as it is; with a suffix, both are the texts around a gap. */
static bool read_raw(openai_translation *t) {
    static const char *const templated[] = {"system", "context"};
    bool logprobs = false;
    int32_t n_top = 0;
    for (size_t i = 0; i < sizeof templated / sizeof *templated; i++)
        if (field_get_requested(t->body, templated[i]))
            return openai_refuse(t->error, templated[i],
                                 "needs the chat template, which 'raw' and 'suffix' leave out: put it "
                                 "into 'prompt'");
    t->endpoint = OPENAI_COMPLETION;
    return translation_move(t, "prompt", "prompt") && translation_move(t, "suffix", "suffix") &&
           field_bool(t->body, "logprobs", &logprobs, t->error) &&
           field_int32(t->body, "top_logprobs", 0, OPENAI_MAX_TOP_LOGPROBS, &n_top, t->error) &&
           (!logprobs || translation_set(t, t->chat, "logprobs", json_integer(n_top)));
}

/* A text that may be left out is one, also where it would not be read. */
static bool check_text(openai_translation *t, const char *name) {
    return !field_get(t->body, name) || translation_string(t, t->body, "", name);
}

static bool read_prompt(openai_translation *t) {
    bool raw = false;
    if (!translation_string(t, t->body, "", "prompt") || !check_text(t, "system") || !check_text(t, "suffix") ||
        !field_bool(t->body, "raw", &raw, t->error))
        return false;
    return raw || field_get_requested(t->body, "suffix") ? read_raw(t) : read_templated(t);
}

/* Put the tokens of `context`, the conversation up to the answer that had them, before the prompt, whose BOS is theirs. */
static bool add_context(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const json_t *ids;
    if (!field_array(body, "context", "token ids", OPENAI_JSON_MAX_VALUES, &ids, error)) return false;
    cl_token_list *prompt = &r->prompts[0].tokens;
    const size_t n = json_array_size(ids);
    if (n == 0) return true;
    const cl_tokenizer *tok = context->model->tok;
    const size_t n_bos = cl_tokenizer_adds_bos(tok) && prompt->n > 0 && prompt->ids[0] == cl_tokenizer_bos(tok);
    const size_t n_own = prompt->n - n_bos;
    cl_token_list whole = {.ids = malloc((n + n_own) * sizeof *whole.ids), .n = n + n_own, .capacity = n + n_own};
    if (!whole.ids) return openai_fail_memory(error);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++)
        ok = field_token(json_array_get(ids, i), path_of("context[%zu]", i).text, context->model, &whole.ids[i], error);
    if (ok && n_own > 0) memcpy(whole.ids + n, prompt->ids + n_bos, n_own * sizeof *whole.ids);
    cl_token_list_free(ok ? prompt : &whole);
    if (ok) *prompt = whole;
    return ok;
}

/* ---- Bodies ---- */

/* The fields of the body that do not reach the chat as they are. Those that are read nowhere change no answer. */
static const char *const own_fields[] = {
    "best_of",  "context", "echo",     "format",  "images",       "keep_alive", "logprobs",
    "messages", "n",       "n_cmpl",   "options", "prompt",       "raw",        "shift",
    "suffix",   "system",  "template", "think",   "top_logprobs", "truncate",
};

static bool translate(openai_translation *t, const json_t *body, bool (*read)(openai_translation *t), openai_error *error) {
    if (!translation_begin(t, body, own_fields, sizeof own_fields / sizeof *own_fields, error)) return false;
    t->max_tool_name = OLLAMA_MAX_TOOL_NAME;
    return read_options(t) && read_format(t) && read_stream(t) && read(t);
}

/* Read a body; `read` translates its prompt. */
static bool parse_as(const openai_context *context, const json_t *body, bool (*read)(openai_translation *t), openai_request *r,
                     openai_error *error) {
    const openai_context local = openai_local_context(context);
    openai_translation t = {0};
    const bool ok = openai_check_texts(context, body, error) && check_offered(body, error) &&
                    translate(&t, body, read, error) && translation_parse(&t, &local, r);
    translation_free(&t);
    return ok;
}

/* Make a request without prompts of a body, whose model is checked. */
static bool begin(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    *r = (openai_request){.id_prefix = "", .n = 1};
    cl_engine_request_init(&r->params);
    return openai_check_body(context, body, error);
}

/* Whether a body has no prompt. It only asks for the model then, which is there, so it is answered at once. */
static bool is_empty(const json_t *prompt) {
    return !prompt || json_is(prompt, "") || (json_is_array(prompt) && json_array_size(prompt) == 0);
}

static bool parse_chat(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    if (!begin(context, body, r, error)) return false;
    return is_empty(field_get(body, "messages")) || parse_as(context, body, read_chat, r, error);
}

static bool parse_generate(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const json_t *prompt = field_get(body, "prompt");
    if (!begin(context, body, r, error)) return false;
    if (is_empty(prompt)) return true;
    if (!openai_check_size(context, "prompt", json_string_length(prompt), error) ||
        !parse_as(context, body, read_prompt, r, error))
        return false;
    if (add_context(context, body, r, error)) return true;
    openai_request_free(r);
    return false;
}

/* Read texts under the name of the endpoint. */
static bool parse_texts(const openai_context *context, const json_t *body, const char *name, openai_request *r,
                        openai_error *error) {
    const openai_context local = openai_local_context(context);
    const json_t *options;
    if (!begin(context, body, r, error)) return false;
    if (is_empty(field_get(body, name))) return true;
    return field_object(body, "options", &options, error) && check_context(options, error) &&
           openai_embedding_parse_as(&local, body, name, r, error);
}

static bool parse_embed(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    return parse_texts(context, body, "input", r, error);
}

static bool parse_embeddings(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const json_t *prompt = field_get(body, "prompt");
    if (!prompt || json_is_string(prompt)) return parse_texts(context, body, "prompt", r, error);
    *r = (openai_request){0};
    return openai_refuse(error, "prompt", "must be a string, not %s; send several texts to /api/embed", field_kind(prompt));
}

#define IN_COMMON                                                                                                              \
    .stream_type = "application/x-ndjson", .write_error = ollama_write_error, .stream_begin = ollama_stream_begin,             \
    .no_memory_body = "{\"error\": \"" OPENAI_NO_MEMORY "\"}", .no_memory_end = "{\"error\": \"" OPENAI_NO_MEMORY "\"}\n"

const openai_dialect ollama_chat = {.path = "/api/chat",
                                    .parse = parse_chat,
                                    .write_answer = ollama_write_message,
                                    .stream_event = ollama_stream_message,
                                    .stream_end = ollama_end_message,
                                    IN_COMMON};
const openai_dialect ollama_generate = {.path = "/api/generate",
                                        .parse = parse_generate,
                                        .write_answer = ollama_write_text,
                                        .stream_event = ollama_stream_text,
                                        .stream_end = ollama_end_text,
                                        IN_COMMON};
const openai_dialect ollama_embed = {.path = "/api/embed",
                                     .parse = parse_embed,
                                     .write_answer = ollama_write_embed,
                                     .stream_event = ollama_stream_text,
                                     .stream_end = ollama_end_text,
                                     IN_COMMON};
const openai_dialect ollama_embeddings = {.path = "/api/embeddings",
                                          .parse = parse_embeddings,
                                          .write_answer = ollama_write_embedding,
                                          .stream_event = ollama_stream_text,
                                          .stream_end = ollama_end_text,
                                          IN_COMMON};
