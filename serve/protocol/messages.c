/* Checks messages and tools field by field, and copies the fields that a template gets. */
#include "messages.h"

#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "json.h"

/* Set a member; `value` is released, and NULL means that memory is lacking. */
static bool set(json_t *object, const char *name, json_t *value, openai_error *error) {
    return json_object_set_new_nocheck(object, name, value) == 0 || openai_fail_memory(error);
}

static bool append(json_t *array, json_t *value, openai_error *error) {
    return json_array_append_new(array, value) == 0 || openai_fail_memory(error);
}

/* Copy a member that is a string, under a name of its own; null and absent ones are left out. */
static bool copy_string(const json_t *from, const char *name, json_t *to, const char *as, const char *where,
                        openai_error *error) {
    const json_t *value = field_get(from, name);
    if (!value) return true;
    if (json_is_string(value)) return set(to, as, json_incref((json_t *)value), error);
    const field_path field = path_of("%s.%s", where, name);
    return openai_refuse(error, field.text, "must be a string, not %s", field_kind(value));
}

/* ---- Content ---- */

/* The member with the text of a part of this type (NULL: of none); NULL: it has none. */
static const char *text_member(const char *type) {
    static const char *const members[][2] = {
        {"text", "text"}, {"input_text", "text"}, {"output_text", "text"}, {"refusal", "refusal"}};
    for (size_t i = 0; type && i < sizeof members / sizeof *members; i++)
        if (strcmp(type, members[i][0]) == 0) return members[i][1];
    return NULL;
}

/* Copy a content's parts, which must be text. */
static json_t *read_parts(const json_t *parts, const char *where, openai_error *error) {
    json_t *out = json_array();
    bool ok = out ? true : openai_fail_memory(error);
    for (size_t i = 0; ok && i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *kind = json_object_get(part, "type");
        const char *type = NULL;
        const field_path field = path_of("%s[%zu]", where, i);
        ok = !json_is_string(kind) || field_name(kind, field.text, &type, error);
        const char *member = text_member(type);
        const json_t *text = member ? json_object_get(part, member) : NULL;
        if (ok && !json_is_string(text))
            ok = openai_refuse(error, field.text, "must be {\"type\": \"text\", \"text\": ...}; this model accepts only text");
        json_t *copy = ok ? json_object() : NULL;
        ok = ok && append(out, copy, error) && set(copy, "type", json_string_nocheck("text"), error) &&
             set(copy, "text", json_incref((json_t *)text), error);
    }
    if (!ok) json_decref(out);
    return ok ? out : NULL;
}

/* The content may be missing in messages of the assistant, as beside calls or a refusal, and in results, which then say
 * nothing. */
static bool read_content(const json_t *value, json_t *message, const char *role, const char *where, openai_error *error) {
    const json_t *content = field_get(value, "content");
    const field_path field = path_of("%s.content", where);
    if (json_is_string(content)) return set(message, "content", json_incref((json_t *)content), error);
    const json_t *refusal = strcmp(role, "assistant") == 0 ? field_get(value, "refusal") : NULL;
    if (!content && json_is_string(refusal)) return set(message, "content", json_incref((json_t *)refusal), error);
    if (!content && strcmp(role, "assistant") == 0) return set(message, "content", json_null(), error);
    if (!content && strcmp(role, "tool") == 0) return set(message, "content", json_string_nocheck(""), error);
    if (!json_is_array(content))
        return openai_refuse(error, field.text, "must be a string or an array of text parts%s%s", content ? ", not " : "",
                             content ? field_kind(content) : "");
    json_t *parts = read_parts(content, field.text, error);
    return parts && set(message, "content", parts, error);
}

/* ---- Calls ---- */

/* How arguments of calls are read, all of which share limits. */
typedef struct argument_reader {
    bool as_text;
    openai_json_used used;
    field_path *odd;
} argument_reader;

/* Set arguments that are no object to their text, whose reference is stolen, and note where they are. */
static bool set_odd(argument_reader *r, json_t *text, json_t *function, const char *field, openai_error *error) {
    if (!*r->odd->text) *r->odd = path_of("%s", field);
    return set(function, "arguments", text, error);
}

/*
 * Arguments are an object, usually as JSON text, which is kept or parsed. Calls without arguments may have an empty text, as
 * some clients send it. What a server returns of a call that was cut, or that a model made up, is passed on as it is: only the
 * model can make something of it. The arguments of all calls share the limits of a body.
 */
static bool read_arguments(argument_reader *r, const json_t *value, json_t *function, const char *field, openai_error *error) {
    if (cl_json_is_object(value)) return set(function, "arguments", json_incref((json_t *)value), error);
    if (value && !json_is_string(value)) {
        char *text = cl_json_dumps(value, JSON_ENCODE_ANY);
        const bool ok = set_odd(r, text ? json_string_nocheck(text) : NULL, function, field, error);
        free(text);
        return ok;
    }
    if (json_string_length(value) == 0)
        return set(function, "arguments", r->as_text ? json_string_nocheck("{}") : json_object(), error);
    json_t *parsed = openai_json_parse_field(field, value, &r->used, error);
    if (!parsed && (error->status >= 500 || openai_json_exceeds(&r->used))) return false;
    const bool ok = cl_json_is_object(parsed)
                        ? set(function, "arguments", json_incref(r->as_text ? (json_t *)value : parsed), error)
                        : set_odd(r, json_incref((json_t *)value), function, field, error);
    json_decref(parsed);
    return ok;
}

static bool read_call(argument_reader *r, const json_t *value, json_t *calls, const char *where, openai_error *error) {
    const json_t *function = json_object_get(value, "function"), *name = json_object_get(function, "name");
    field_path field = path_of("%s.function.name", where);
    if (!json_is_string(name))
        return openai_refuse(error, field.text, "must be a string, the name of the function that was called");
    field = path_of("%s.function.arguments", where);
    json_t *call = json_object(); /* each object belongs to its container at once */
    if (!append(calls, call, error) || !copy_string(value, "id", call, "id", where, error) ||
        !set(call, "type", json_string_nocheck("function"), error))
        return false;
    json_t *copy = json_object();
    return set(call, "function", copy, error) && set(copy, "name", json_incref((json_t *)name), error) &&
           read_arguments(r, field_get(function, "arguments"), copy, field.text, error);
}

static bool read_calls(argument_reader *r, const json_t *value, json_t *message, const char *where, openai_error *error) {
    field_path field = path_of("%s.tool_calls", where);
    if (field_get_requested(value, "function_call"))
        return openai_fail(error, field.text, "'function_call' is not supported by this server; send '%s'", field.text);
    const json_t *calls = field_get_requested(value, "tool_calls");
    if (!calls) return true;
    if (!json_is_array(calls)) return openai_refuse(error, field.text, "must be an array, not %s", field_kind(calls));
    if (json_array_size(calls) > OPENAI_MAX_TOOL_CALLS)
        return openai_refuse(error, field.text, "has %zu calls; at most %d are allowed", json_array_size(calls),
                             OPENAI_MAX_TOOL_CALLS);
    json_t *out = json_array();
    bool ok = set(message, "tool_calls", out, error);
    for (size_t i = 0; ok && i < json_array_size(calls); i++) {
        field = path_of("%s.tool_calls[%zu]", where, i);
        ok = read_call(r, json_array_get(calls, i), out, field.text, error);
    }
    return ok;
}

/* ---- Messages ---- */

static bool read_role(const json_t *value, json_t *message, const char **role, const char *where, openai_error *error) {
    const json_t *field = json_object_get(value, "role");
    const field_path name = path_of("%s.role", where);
    if (!json_is_string(field) || json_string_length(field) == 0)
        return openai_refuse(error, name.text, "must be a string such as \"system\", \"user\", \"assistant\" or \"tool\"");
    return field_name(field, name.text, role, error) && set(message, "role", json_incref((json_t *)field), error);
}

/* The field with the reasoning of a message: also by vLLM's newer name, and by that of gpt-oss and Ollama. */
static const char *reasoning_of(const json_t *message) {
    if (field_get(message, "reasoning_content")) return "reasoning_content";
    return field_get(message, "reasoning") || !json_is_string(field_get(message, "thinking")) ? "reasoning" : "thinking";
}

static bool read_message(argument_reader *r, const json_t *value, json_t *messages, const char *where, openai_error *error) {
    if (!cl_json_is_object(value)) return openai_refuse(error, where, "must be an object, not %s", field_kind(value));
    if (field_get_requested(value, "tools"))
        return openai_refuse(error, path_of("%s.tools", where).text, "are not supported; send 'tools' beside the messages");
    json_t *message = json_object();
    const char *role = "";
    if (!append(messages, message, error) || !read_role(value, message, &role, where, error) ||
        !read_content(value, message, role, where, error) || !read_calls(r, value, message, where, error))
        return false;
    return copy_string(value, reasoning_of(value), message, "reasoning_content", where, error) &&
           copy_string(value, "name", message, "name", where, error) &&
           copy_string(value, "tool_call_id", message, "tool_call_id", where, error);
}

json_t *openai_read_messages(const json_t *value, bool argument_text, field_path *odd, openai_error *error) {
    *odd = (field_path){0};
    if (!json_is_array(value) || json_array_size(value) == 0) {
        openai_refuse(error, "messages", "must be an array of at least one message");
        return NULL;
    }
    argument_reader r = {.as_text = argument_text, .odd = odd};
    json_t *messages = json_array();
    bool ok = messages ? true : openai_fail_memory(error);
    for (size_t i = 0; ok && i < json_array_size(value); i++) {
        const field_path where = path_of("messages[%zu]", i);
        ok = read_message(&r, json_array_get(value, i), messages, where.text, error);
    }
    if (!ok) json_decref(messages);
    return ok ? messages : NULL;
}

/* ---- Tools ---- */

static bool check_name(const json_t *name, size_t max, const char *field, openai_error *error) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const size_t size = json_string_length(name);
    if (json_is_string(name) && size > 0 && size <= max && strspn(json_string_value(name), letters) == size) return true;
    return openai_refuse(error, field, "must be a string of 1 to %zu letters, digits, underscores and hyphens", max);
}

static bool read_tool(const json_t *value, size_t max_name, json_t *tools, const char *where, openai_error *error) {
    const json_t *type = json_object_get(value, "type"), *function = json_object_get(value, "function");
    if (!cl_json_is_object(value)) return openai_refuse(error, where, "must be an object, not %s", field_kind(value));
    field_path field = path_of("%s.type", where);
    if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)
        return openai_refuse(error, field.text, "must be \"function\"; other tools are not supported by this server");
    field = path_of("%s.function", where);
    if (!cl_json_is_object(function)) return openai_refuse(error, field.text, "must be an object");
    field = path_of("%s.function.name", where);
    if (!check_name(json_object_get(function, "name"), max_name, field.text, error)) return false;
    const json_t *description = field_get(function, "description"), *parameters = field_get(function, "parameters");
    field = path_of("%s.function.description", where);
    if (description && !json_is_string(description))
        return openai_refuse(error, field.text, "must be a string, not %s", field_kind(description));
    field = path_of("%s.function.parameters", where);
    if (parameters && !cl_json_is_object(parameters))
        return openai_refuse(error, field.text, "must be an object, a JSON schema, not %s", field_kind(parameters));
    json_t *copy = json_object();
    return append(tools, copy, error) && set(copy, "type", json_string_nocheck("function"), error) &&
           set(copy, "function", json_incref((json_t *)function), error);
}

json_t *openai_read_tools(const json_t *body, size_t max_name, openai_error *error) {
    const json_t *value;
    if (!field_array(body, "tools", "tools", OPENAI_MAX_TOOLS, &value, error)) return NULL;
    json_t *tools = json_array();
    bool ok = tools ? true : openai_fail_memory(error);
    for (size_t i = 0; ok && i < json_array_size(value); i++) {
        const field_path where = path_of("tools[%zu]", i);
        ok = read_tool(json_array_get(value, i), max_name, tools, where.text, error);
    }
    if (!ok) json_decref(tools);
    return ok ? tools : NULL;
}
