/* Builds the body of a chat from that of another API, and lets errors about the chat name the fields of the body. */
#include "translate.h"

#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "messages.h"

json_t *translation_copy(const json_t *object) {
    json_t *copy = json_object(), *value;
    const char *name;
    size_t size;
    json_object_keylen_foreach((json_t *)object, name, size, value) {
        if (json_object_setn_nocheck(copy, name, size, value) == 0) continue;
        json_decref(copy);
        return NULL;
    }
    return copy;
}

/* ---- Beginning and end ---- */

bool translation_begin(openai_translation *t, const json_t *body, const char *const *own, size_t n_own, openai_error *error) {
    *t = (openai_translation){.body = body, .max_tool_name = OPENAI_MAX_TOOL_NAME, .error = error};
    if (!cl_json_is_object(body)) return openai_fail(error, NULL, "the body must be a JSON object, not %s", field_kind(body));
    t->chat = translation_copy(body);
    t->names = json_object();
    t->repeated = json_object();
    if (!t->chat || !t->names || !t->repeated) return openai_fail_memory(t->error);
    for (size_t i = 0; i < n_own; i++) json_object_del(t->chat, own[i]);
    return translation_set(t, t->chat, "messages", t->messages = json_array());
}

void translation_free(openai_translation *t) {
    json_decref(t->chat);
    json_decref(t->names);
    json_decref(t->repeated);
    *t = (openai_translation){0};
}

/* ---- Parsing ---- */

/*
 * Let the name of a field of the chat, in an error or a warning, become that of the field of the body that it comes from: the
 * longest beginning of the path that has another name is replaced.
 */
static void name_param(const openai_translation *t, char param[sizeof(field_path)]) {
    for (size_t n = strlen(param); n > 0; n--) {
        if (param[n] && param[n] != '.' && param[n] != '[') continue;
        const json_t *own = json_object_getn(t->names, param, n);
        if (!own) continue;
        const field_path path = path_of("%s%s", json_string_value(own), param + n);
        memcpy(param, path.text, sizeof path.text);
        return;
    }
}

bool translation_parse(openai_translation *t, const openai_context *context, openai_request *request) {
    const char *format = t->format ? t->format : "response_format";
    if (!openai_request_parse_as(context, t->endpoint, format, t->max_tool_name, t->chat, request, t->error)) {
        name_param(t, t->error->param);
        return false;
    }
    name_param(t, request->odd.text);
    request->repeated = t->repeated;
    t->repeated = NULL;
    return true;
}

/* ---- Parts of the chat ---- */

bool translation_set(openai_translation *t, json_t *object, const char *name, json_t *value) {
    return json_object_set_new_nocheck(object, name, value) == 0 || openai_fail_memory(t->error);
}

bool translation_append(openai_translation *t, json_t *array, json_t *value) {
    return json_array_append_new(array, value) == 0 || openai_fail_memory(t->error);
}

bool translation_name(openai_translation *t, const char *field, const char *own) {
    return strcmp(field, own) == 0 || translation_set(t, t->names, field, json_string(own));
}

bool translation_move(openai_translation *t, const char *field, const char *own) {
    const json_t *value = field_get(t->body, own);
    return !value || (translation_set(t, t->chat, field, json_incref((json_t *)value)) && translation_name(t, field, own));
}

bool translation_move_length(openai_translation *t, const char *own) {
    int64_t n;
    return field_int(t->body, own, 1, INT32_MAX, &n, t->error) && translation_move(t, "max_completion_tokens", own);
}

json_t *translation_message(openai_translation *t, const char *role, const char *own) {
    const field_path field = path_of("messages[%zu]", json_array_size(t->messages));
    json_t *message = json_pack("{s:s}", "role", role);
    return translation_append(t, t->messages, message) && translation_name(t, field.text, own) ? message : NULL;
}

/* Append a value to an array of an object, which may be absent. */
static bool add_to(openai_translation *t, json_t *object, const char *name, json_t *value) {
    json_t *array = json_object_get(object, name);
    if (array || translation_set(t, object, name, array = json_array())) return translation_append(t, array, value);
    json_decref(value);
    return false;
}

bool translation_add_text(openai_translation *t, json_t *message, json_t *value) {
    return add_to(t, message, "content", json_pack("{s:s, s:o}", "type", "text", "text", value));
}

static const char REASONING[] = "reasoning_content";

bool translation_add_reasoning(openai_translation *t, json_t *message, json_t *value) {
    return add_to(t, message, REASONING, value);
}

bool translation_add_call(openai_translation *t, json_t *message, const json_t *id, const json_t *name, json_t *arguments,
                          const char *own, const char *own_arguments) {
    const field_path function = path_of("messages[%zu].tool_calls[%zu].function", json_array_size(t->messages) - 1,
                                        json_array_size(json_object_get(message, "tool_calls")));
    const field_path from = path_of("%s.arguments", function.text), to = path_of("%s.%s", own, own_arguments);
    json_t *call =
        json_pack("{s:O, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function", "name", name, "arguments", arguments);
    return add_to(t, message, "tool_calls", call) && translation_name(t, function.text, own) &&
           translation_name(t, from.text, to.text);
}

json_t *translation_text_of(const json_t *value) {
    char *text = cl_json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_t *string = text ? json_string(text) : NULL;
    free(text);
    return string;
}

json_t *translation_arguments(const json_t *value) {
    if (json_is_string(value)) return json_incref((json_t *)value);
    return value ? translation_text_of(value) : json_string("");
}

bool translation_end_message(openai_translation *t, json_t *message) {
    const json_t *parts = json_object_get(message, REASONING), *part;
    size_t i, size = 0;
    if (!parts) return true;
    json_array_foreach(parts, i, part) size += json_string_length(part);
    char *text = malloc(size + 1), *end = text;
    if (!text) return openai_fail_memory(t->error);
    json_array_foreach(parts, i, part) {
        memcpy(end, json_string_value(part), json_string_length(part));
        end += json_string_length(part);
    }
    json_t *joined = json_stringn_nocheck(text, size);
    free(text);
    return translation_set(t, message, REASONING, joined);
}

bool translation_continue(openai_translation *t) {
    const json_t *last = json_array_get(t->messages, json_array_size(t->messages) - 1);
    const bool continues = json_is(json_object_get(last, "role"), "assistant") && field_get_requested(last, "content") &&
                           !field_get_requested(last, "tool_calls");
    return !continues || (translation_set(t, t->chat, "add_generation_prompt", json_false()) &&
                          translation_set(t, t->chat, "continue_final_message", json_true()));
}

/* ---- Thinking ---- */

bool translation_set_thinking(openai_translation *t, bool on) {
    const json_t *before = field_get(t->chat, "chat_template_kwargs");
    if (before && !cl_json_is_object(before)) return true; /* the chat refuses it */
    json_t *kwargs = before ? translation_copy(before) : json_object();
    return translation_set(t, t->chat, "chat_template_kwargs", kwargs) &&
           translation_set(t, kwargs, "enable_thinking", json_boolean(on)) &&
           translation_set(t, kwargs, "thinking", json_boolean(on));
}

/* ---- Tools ---- */

bool translation_add_tool(openai_translation *t, const json_t *tool, const char *prefix, const char *schema,
                          const char *where) {
    const json_t *name = translation_string(t, tool, where, "name");
    if (!name) return false;
    json_t *function =
        json_pack("{s:o, s:O*, s:O*, s:O*}", "name", json_sprintf("%s%s", prefix, json_string_value(name)), "description",
                  field_get(tool, "description"), "parameters", field_get(tool, schema), "strict", field_get(tool, "strict"));
    const field_path field = path_of("tools[%zu].function", json_array_size(json_object_get(t->chat, "tools")));
    return add_to(t, t->chat, "tools", json_pack("{s:s, s:o}", "type", "function", "function", function)) &&
           translation_name(t, field.text, where) &&
           translation_name(t, path_of("%s.parameters", field.text).text, path_of("%s.%s", where, schema).text);
}

bool translation_read_tools(openai_translation *t, const char *where, const json_t *tools,
                            bool (*read)(openai_translation *t, const json_t *tool, const char *where)) {
    if (tools && !json_is_array(tools)) return openai_refuse(t->error, where, "must be an array, not %s", field_kind(tools));
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const field_path path = path_of("%s[%zu]", where, i);
        const json_t *tool = json_array_get(tools, i);
        if (!cl_json_is_object(tool)) return openai_refuse(t->error, path.text, "must be an object, not %s", field_kind(tool));
        if (!read(t, tool, path.text)) return false;
    }
    return true;
}

/* ---- The body ---- */

const json_t *translation_string(openai_translation *t, const json_t *object, const char *where, const char *name) {
    const json_t *value = field_get(object, name);
    if (json_is_string(value)) return value;
    const field_path param = path_of("%s%s%s", where, *where ? "." : "", name);
    openai_refuse(t->error, param.text, "must be a string%s%s", value ? ", not " : "", value ? field_kind(value) : "");
    return NULL;
}

bool json_is(const json_t *value, const char *text) {
    return json_is_string(value) && json_string_length(value) == strlen(text) && strcmp(json_string_value(value), text) == 0;
}
