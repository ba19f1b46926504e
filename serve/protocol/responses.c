/* The dialect of OpenAI's Responses: reads all fields of a body but its input. */
#include "responses.h"

#include "messages.h"

/* ---- What is refused ---- */

/* Fields for which the server would have to keep answers, or that need functions which it lacks. */
static bool check_offered(const json_t *body, openai_error *error) {
    static const struct {
        const char *name, *instead;
    } refused[] = {
        {"previous_response_id", "this server does not keep answers: send the whole conversation as 'input'"},
        {"conversation", "this server does not keep conversations: send the whole conversation as 'input'"},
        {"background", "this server does not keep answers: send it without, or use the batch API"},
        {"prompt", "this server has no stored prompts: send 'instructions' and 'input'"},
        {"top_logprobs", "send the request to /v1/chat/completions, whose answers have logprobs"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (!field_get_requested(body, refused[i].name)) continue;
        openai_refuse(error, refused[i].name, "is not supported; %s", refused[i].instead);
        return openai_set_status(error, 400, "unsupported_parameter");
    }
    return true;
}

/* ---- Tools ---- */

static bool is_of_type(const json_t *tool, const char *type) { return json_is(json_object_get(tool, "type"), type); }

/* Add the functions of a namespace, whose names the model sees behind that of the namespace. */
static bool read_namespace(openai_translation *t, const json_t *tool, const char *where) {
    const json_t *name = translation_string(t, tool, where, "name"), *tools = json_object_get(tool, "tools"), *inner;
    size_t i;
    if (!name) return false;
    json_array_foreach(tools, i, inner) {
        const field_path prefix = path_of("%s" RESPONSES_NAMESPACE, json_string_value(name));
        if (is_of_type(inner, "function") &&
            !translation_add_tool(t, inner, prefix.text, "parameters", path_of("%s.tools[%zu]", where, i).text))
            return false;
    }
    return true;
}

/* All others run on OpenAI's side, or take something else than JSON. The answer repeats those that the model may call. */
static bool read_tool(openai_translation *t, const json_t *tool, const char *where) {
    const bool is_function = is_of_type(tool, "function");
    if (!is_function && !is_of_type(tool, "namespace")) return true;
    return (is_function ? translation_add_tool(t, tool, "", "parameters", where) : read_namespace(t, tool, where)) &&
           translation_append(t, json_object_get(t->repeated, "tools"), json_incref((json_t *)tool));
}

static bool read_tools(openai_translation *t) {
    return translation_set(t, t->repeated, "tools", json_array()) &&
           translation_read_tools(t, "tools", field_get(t->body, "tools"), read_tool);
}

/* A choice in the form of Responses is one of a chat's, too. */
static bool read_tool_choice(openai_translation *t) {
    const json_t *choice = field_get(t->body, "tool_choice"), *type = json_object_get(choice, "type");
    const bool has_tools = json_object_get(t->chat, "tools");
    if (!translation_set(t, t->repeated, "tool_choice", choice ? json_incref((json_t *)choice) : json_string("auto")))
        return false;
    if (!choice || (!has_tools && (json_is(choice, "auto") || json_is(choice, "none")))) return true;
    if (json_is_string(choice) || json_is(type, "function") || json_is(type, "allowed_tools"))
        return translation_move(t, "tool_choice", "tool_choice");
    return openai_refuse(t->error, "tool_choice",
                         "must be \"none\", \"auto\", \"required\", or an object that names functions; this server runs "
                         "no tools itself");
}

/* ---- Text and reasoning ---- */

static bool read_text(openai_translation *t) {
    const json_t *text, *format;
    if (!field_object(t->body, "text", &text, t->error)) return false;
    format = field_get(text, "format");
    if (!translation_set(t, t->repeated, "text", text ? translation_copy(text) : json_object())) return false;
    if (!format) return translation_set(t, json_object_get(t->repeated, "text"), "format", json_pack("{s:s}", "type", "text"));
    t->format = "text.format";
    const json_t *type = translation_string(t, format, "text.format", "type");
    if (!type) return false;
    if (!json_is(type, "json_schema"))
        return translation_set(t, t->chat, "response_format", json_incref((json_t *)format)) &&
               translation_name(t, "response_format", "text.format");
    json_t *schema = translation_copy(format);
    if (schema) json_object_del(schema, "type");
    return translation_set(t, t->chat, "response_format",
                           json_pack("{s:s, s:o}", "type", "json_schema", "json_schema", schema)) &&
           translation_name(t, "response_format", "text.format") &&
           translation_name(t, "response_format.json_schema", "text.format");
}

static bool read_reasoning(openai_translation *t) {
    const json_t *reasoning;
    if (!field_object(t->body, "reasoning", &reasoning, t->error)) return false;
    const json_t *effort = field_get(reasoning, "effort"), *summary = field_get(reasoning, "summary");
    if (summary && !translation_string(t, reasoning, "reasoning", "summary")) return false;
    json_t *repeated = json_pack("{s:O?, s:O?}", "effort", effort, "summary", summary);
    if (!translation_set(t, t->repeated, "reasoning", repeated)) return false;
    if (!effort) return true;
    return translation_string(t, reasoning, "reasoning", "effort") &&
           translation_set(t, t->chat, "reasoning_effort", json_incref((json_t *)effort)) &&
           translation_name(t, "reasoning_effort", "reasoning.effort");
}

/* ---- All ---- */

/* Repeat a field of the body, or its default, whose reference is stolen. */
static bool repeat(openai_translation *t, const char *name, json_t *fallback) {
    json_t *value = json_object_get(t->body, name);
    if (!value) return translation_set(t, t->repeated, name, fallback);
    json_decref(fallback);
    return translation_set(t, t->repeated, name, json_incref(value));
}

enum { MAX_REPEATED = 32768 }; /* bytes of text of a field that is only repeated, in several events of a stream */

/* Repeat a field of the body that has little text. */
static bool repeat_short(openai_translation *t, const char *name, json_t *fallback) {
    if (field_check_text(t->body, name, MAX_REPEATED, t->error)) return repeat(t, name, fallback);
    json_decref(fallback);
    return false;
}

/* Add the fields that answers repeat beside those of read_.... */
static bool repeat_fields(openai_translation *t, const openai_context *context) {
    const cl_sampler_params *s = &context->defaults.sampling;
    const json_t *metadata;
    return field_object(t->body, "metadata", &metadata, t->error) && repeat(t, "instructions", json_null()) &&
           repeat(t, "max_output_tokens", json_null()) && repeat_short(t, "metadata", json_object()) &&
           repeat(t, "parallel_tool_calls", json_true()) && repeat_short(t, "prompt_cache_key", json_null()) &&
           repeat_short(t, "safety_identifier", json_null()) && repeat(t, "temperature", writer_short_real(s->temperature)) &&
           repeat(t, "top_p", writer_short_real(s->top_p)) && repeat_short(t, "user", json_null());
}

/* The fields of the body that do not reach the chat as they are. Those that are read nowhere change no answer. */
static const char *const own_fields[] = {
    "background",
    "best_of",
    "client_metadata",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "logprobs",
    "max_output_tokens",
    "max_tool_calls",
    "messages",
    "metadata",
    "n",
    "n_cmpl",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "reasoning",
    "service_tier",
    "store",
    "stream_options",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "truncation",
};

bool responses_translate(openai_translation *t, const openai_context *context, const json_t *body, openai_error *error) {
    return translation_begin(t, body, own_fields, sizeof own_fields / sizeof *own_fields, error) &&
           check_offered(body, error) && responses_read_input(t) && read_tools(t) && read_tool_choice(t) && read_text(t) &&
           read_reasoning(t) && translation_move_length(t, "max_output_tokens") &&
           (!json_object_get(t->chat, "tools") || translation_move(t, "parallel_tool_calls", "parallel_tool_calls")) &&
           repeat_fields(t, context);
}

static bool parse(const openai_context *context, const json_t *body, openai_request *request, openai_error *error) {
    openai_translation t;
    *request = (openai_request){.endpoint = OPENAI_CHAT};
    if (!openai_check_texts(context, body, error)) return false;
    const bool translated = responses_translate(&t, context, body, error);
    t.max_tool_name = RESPONSES_MAX_TOOL_NAME;
    const bool ok = translated && translation_parse(&t, context, request);
    if (ok) request->id_prefix = "resp_";
    translation_free(&t);
    return ok;
}

const openai_dialect openai_responses = {
    .path = "/v1/responses",
    .parse = parse,
    .write_error = openai_write_error_body,
    .write_answer = responses_write_answer,
    .stream_begin = responses_stream_begin,
    .stream_event = responses_stream_event,
    .stream_end = responses_stream_end,
    .no_memory_body = "{" OPENAI_NO_MEMORY_ERROR "}",
    .no_memory_end =
        "event: error\ndata: {\"type\": \"error\", \"sequence_number\": 0, \"code\": \"server_error\", \"message\": "
        "\"" OPENAI_NO_MEMORY "\", \"param\": null}\n\n",
};
