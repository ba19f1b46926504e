/* Checks messages and tools field by field, and copies the fields that a template gets. */
#include "messages.h"

#include <string.h>

#include "json.h"
#include "parse.h"

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

/* Copy a content's parts, which must be text. */
static json_t *read_parts(const json_t *parts, const char *where, openai_error *error) {
    json_t *out = json_array();
    bool ok = out ? true : openai_fail_memory(error);
    for (size_t i = 0; ok && i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *kind = json_object_get(part, "type"),
                     *text = json_object_get(part, "text");
        const char *type = NULL;
        const field_path field = path_of("%s[%zu]", where, i);
        ok = !json_is_string(kind) || field_name(kind, field.text, &type, error);
        if (ok && (!type || strcmp(type, "text") != 0 || !json_is_string(text)))
            ok = openai_refuse(error, field.text, "must be {\"type\": \"text\", \"text\": ...}; this model accepts only text");
        json_t *copy = ok ? json_object() : NULL;
        ok = ok && append(out, copy, error) && set(copy, "type", json_incref((json_t *)kind), error) &&
             set(copy, "text", json_incref((json_t *)text), error);
    }
    if (!ok) json_decref(out);
    return ok ? out : NULL;
}

/* The content may be missing beside calls, and in other messages of the assistant, which then say nothing. */
static bool read_content(const json_t *value, json_t *message, bool may_be_missing, const char *where, openai_error *error) {
    const json_t *content = field_get(value, "content");
    const field_path field = path_of("%s.content", where);
    if (json_is_string(content)) return set(message, "content", json_incref((json_t *)content), error);
    if (!content && may_be_missing) return set(message, "content", json_null(), error);
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
} argument_reader;

/*
 * Arguments are an object, usually as JSON text, which is kept or parsed. Calls without arguments may have an empty text, as
 * some clients send it.
 */
static bool read_arguments(argument_reader *r, const json_t *value, json_t *function, const char *field, openai_error *error) {
    if (json_is_object(value)) return set(function, "arguments", json_incref((json_t *)value), error);
    if (value && !json_is_string(value))
        return openai_refuse(error, field, "must be a string, the JSON text of an object, not %s", field_kind(value));
    if (json_string_length(value) == 0)
        return set(function, "arguments", r->as_text ? json_string_nocheck("{}") : json_object(), error);
    json_t *parsed = openai_json_parse_part(field, json_string_value(value), json_string_length(value), &r->used, error);
    if (!parsed) {
        snprintf(error->param, sizeof error->param, "%s", field);
        return false;
    }
    const bool ok = json_is_object(parsed);
    if (!ok)
        openai_refuse(error, field, "must be the JSON text of an object, not of %s", field_kind(parsed));
    else
        set(function, "arguments", json_incref(r->as_text ? (json_t *)value : parsed), error);
    json_decref(parsed);
    return ok;
}

static bool read_call(argument_reader *r, const json_t *value, json_t *calls, const char *where, openai_error *error) {
    const json_t *function = json_object_get(value, "function"), *name = json_object_get(function, "name");
    field_path field = path_of("%s.function.name", where);
    if (!json_is_string(name) || json_string_length(name) == 0)
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

static bool read_message(argument_reader *r, const json_t *value, json_t *messages, const char *where, openai_error *error) {
    if (!json_is_object(value)) return openai_refuse(error, where, "must be an object, not %s", field_kind(value));
    json_t *message = json_object();
    const char *role = "";
    if (!append(messages, message, error) || !read_role(value, message, &role, where, error) ||
        !read_content(value, message, strcmp(role, "assistant") == 0, where, error) ||
        !read_calls(r, value, message, where, error))
        return false;
    const char *reasoning = field_get(value, "reasoning_content") ? "reasoning_content" : "reasoning"; /* vLLM's newer name */
    return copy_string(value, reasoning, message, "reasoning_content", where, error) &&
           copy_string(value, "name", message, "name", where, error) &&
           copy_string(value, "tool_call_id", message, "tool_call_id", where, error);
}

json_t *openai_read_messages(const json_t *value, bool argument_text, openai_error *error) {
    if (!json_is_array(value) || json_array_size(value) == 0) {
        openai_refuse(error, "messages", "must be an array of at least one message");
        return NULL;
    }
    argument_reader r = {.as_text = argument_text};
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

static bool check_name(const json_t *name, const char *field, openai_error *error) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const size_t size = json_string_length(name);
    if (json_is_string(name) && size > 0 && size <= OPENAI_MAX_TOOL_NAME && strspn(json_string_value(name), letters) == size)
        return true;
    return openai_refuse(error, field, "must be a string of 1 to %d letters, digits, underscores and hyphens",
                         OPENAI_MAX_TOOL_NAME);
}

static bool read_tool(const json_t *value, json_t *tools, const char *where, openai_error *error) {
    const json_t *type = json_object_get(value, "type"), *function = json_object_get(value, "function");
    if (!json_is_object(value)) return openai_refuse(error, where, "must be an object, not %s", field_kind(value));
    field_path field = path_of("%s.type", where);
    if (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0)
        return openai_refuse(error, field.text, "must be \"function\"; other tools are not supported by this server");
    field = path_of("%s.function", where);
    if (!json_is_object(function)) return openai_refuse(error, field.text, "must be an object");
    field = path_of("%s.function.name", where);
    if (!check_name(json_object_get(function, "name"), field.text, error)) return false;
    const json_t *description = field_get(function, "description"), *parameters = field_get(function, "parameters");
    field = path_of("%s.function.description", where);
    if (description && !json_is_string(description))
        return openai_refuse(error, field.text, "must be a string, not %s", field_kind(description));
    field = path_of("%s.function.parameters", where);
    if (parameters && !json_is_object(parameters))
        return openai_refuse(error, field.text, "must be an object, a JSON schema, not %s", field_kind(parameters));
    json_t *copy = json_object();
    return append(tools, copy, error) && set(copy, "type", json_string_nocheck("function"), error) &&
           set(copy, "function", json_incref((json_t *)function), error);
}

json_t *openai_read_tools(const json_t *body, openai_error *error) {
    const json_t *value;
    if (!field_array(body, "tools", "tools", OPENAI_MAX_TOOLS, &value, error)) return NULL;
    json_t *tools = json_array();
    bool ok = tools ? true : openai_fail_memory(error);
    for (size_t i = 0; ok && i < json_array_size(value); i++) {
        const field_path where = path_of("tools[%zu]", i);
        ok = read_tool(json_array_get(value, i), tools, where.text, error);
    }
    if (!ok) json_decref(tools);
    return ok ? tools : NULL;
}
