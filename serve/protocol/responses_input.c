/* Translates the items of a Responses body into the messages of a chat. */
#include <stdlib.h>
#include <string.h>

#include "responses.h"

/* The input in the making. */
typedef struct conversation {
    openai_translation *t;
    json_t *assistant; /* the last message, if it is the assistant's: the next items may belong to it; NULL: it is not */
    json_t *system;    /* the first message, as long as it is the only one and the system's; otherwise NULL */
} conversation;

static bool end_assistant(conversation *c) {
    json_t *ended = c->assistant;
    c->assistant = NULL;
    return !ended || translation_end_message(c->t, ended);
}

/*
 * The assistant's message for an item, which continues the last one if there is one. The model writes reasoning, then text,
 * then calls; an item out of this order begins a message of its own.
 */
static json_t *assistant_message(conversation *c, const char *where, bool is_call) {
    json_t *last = c->assistant;
    if (last && (is_call || (!json_object_get(last, "content") && !json_object_get(last, "tool_calls")))) return last;
    c->system = NULL;
    return end_assistant(c) ? c->assistant = translation_message(c->t, "assistant", where) : NULL;
}

/* A message of another role. The system's first ones become one, since many templates allow no other. */
static json_t *other_message(conversation *c, const char *role, const char *where) {
    const bool is_system = strcmp(role, "system") == 0;
    if (is_system && c->system) return c->system;
    const bool is_first = json_array_size(c->t->messages) == 0;
    if (!end_assistant(c)) return NULL;
    json_t *message = translation_message(c->t, role, where);
    c->system = is_system && is_first ? message : NULL;
    return message;
}

/* ---- Content ---- */

/* The text of part j of a content; an error if it is no text. */
static json_t *text_of_part(openai_translation *t, const json_t *part, const char *where, size_t j) {
    static const char *const types[] = {"input_text", "output_text", "text", "summary_text", "reasoning_text"};
    const json_t *type = json_object_get(part, "type");
    const char *member = json_is(type, "refusal") ? "refusal" : NULL;
    for (size_t i = 0; !member && i < sizeof types / sizeof *types; i++)
        if (json_is(type, types[i])) member = "text";
    json_t *text = member ? json_object_get(part, member) : NULL;
    if (json_is_string(text)) return text;
    const field_path name = path_of("%s[%zu]", where, j);
    openai_refuse(t->error, name.text,
                  "must be {\"type\": \"input_text\" or \"output_text\", \"text\": ...}; this model accepts only text");
    return NULL;
}

/* Add a content, a string or an array of parts, to a message. where: its name in messages. */
static bool add_content(openai_translation *t, json_t *message, const json_t *content, const char *where) {
    size_t j;
    const json_t *part;
    if (json_is_string(content)) return translation_add_text(t, message, json_incref((json_t *)content));
    if (!json_is_array(content))
        return openai_refuse(t->error, where, "must be a string or an array of text parts%s%s", content ? ", not " : "",
                             content ? field_kind(content) : "");
    json_array_foreach(content, j, part) {
        json_t *text = text_of_part(t, part, where, j);
        if (!text || !translation_add_text(t, message, json_incref(text))) return false;
    }
    return json_object_get(message, "content") || translation_set(t, message, "content", json_string(""));
}

/* ---- Items ---- */

static bool read_message(conversation *c, const json_t *item, const char *where) {
    static const char *const roles[] = {"user", "system", "assistant", "developer"};
    enum { ASSISTANT = 2 };
    const json_t *role = json_object_get(item, "role");
    const field_path role_path = path_of("%s.role", where), content = path_of("%s.content", where);
    size_t i = 0;
    while (i < sizeof roles / sizeof *roles && !json_is(role, roles[i])) i++;
    if (i == sizeof roles / sizeof *roles)
        return openai_refuse(c->t->error, role_path.text, "must be \"user\", \"assistant\", \"system\" or \"developer\"");
    json_t *message = i == ASSISTANT ? assistant_message(c, where, false) : other_message(c, i == 0 ? "user" : "system", where);
    return message && add_content(c->t, message, field_get(item, "content"), content.text);
}

/* Reasoning comes back as the item that the answer had: its text is the content, or else the summary. */
static bool read_reasoning(conversation *c, const json_t *item, const char *where) {
    const json_t *content = field_get_requested(item, "content"), *parts = content ? content : field_get(item, "summary"),
                 *part;
    const field_path name = path_of("%s.%s", where, content ? "content" : "summary");
    size_t j;
    if (parts && !json_is_array(parts))
        return openai_refuse(c->t->error, name.text, "must be an array of text parts, not %s", field_kind(parts));
    if (json_array_size(parts) == 0) return true; /* it was encrypted by another server */
    json_t *message = assistant_message(c, where, false);
    json_array_foreach(parts, j, part) {
        json_t *text = message ? text_of_part(c->t, part, name.text, j) : NULL;
        if (!text || !translation_add_reasoning(c->t, message, json_incref(text))) return false;
    }
    return true;
}

/* A call. That of a custom tool, whose input is plain text, is like that of a function with one argument. */
static bool read_call(conversation *c, const json_t *item, const char *where) {
    const bool is_custom = json_is(json_object_get(item, "type"), "custom_tool_call");
    const json_t *id = translation_string(c->t, item, where, "call_id");
    const json_t *name = id ? translation_string(c->t, item, where, "name") : NULL;
    const char *member = is_custom ? "input" : "arguments";
    const bool ok = name && (!is_custom || translation_string(c->t, item, where, member));
    json_t *message = ok ? assistant_message(c, where, true) : NULL;
    if (!message) return false;
    const json_t *space = field_get(item, "namespace");
    json_t *full = json_is_string(space)
                       ? json_sprintf("%s" RESPONSES_NAMESPACE "%s", json_string_value(space), json_string_value(name))
                       : json_incref((json_t *)name);
    const json_t *input = field_get(item, member);
    json_t *object = is_custom ? json_pack("{s:O}", "input", input) : NULL;
    json_t *arguments = is_custom ? translation_text_of(object) : translation_arguments(input);
    const bool added = translation_add_call(c->t, message, id, full, arguments, where, member);
    json_decref(object);
    json_decref(full);
    return added;
}

static bool read_output(conversation *c, const json_t *item, const char *where) {
    const json_t *id = translation_string(c->t, item, where, "call_id");
    json_t *message = id ? other_message(c, "tool", where) : NULL;
    const field_path name = path_of("%s.output", where);
    return message && translation_set(c->t, message, "tool_call_id", json_incref((json_t *)id)) &&
           add_content(c->t, message, field_get(item, "output"), name.text);
}

static bool refuse_reference(conversation *c, const json_t *item, const char *where) {
    (void)item;
    return openai_refuse(c->t->error, where,
                         "refers to an item of an earlier answer, and this server keeps none; send the item");
}

/* Item i. Those that a chat has no place for, such as calls of web_search, are skipped. */
static bool read_item(conversation *c, const json_t *item, size_t i) {
    static const struct {
        const char *type;
        bool (*read)(conversation *c, const json_t *item, const char *where);
    } types[] = {
        {"message", read_message},
        {"reasoning", read_reasoning},
        {"function_call", read_call},
        {"custom_tool_call", read_call},
        {"function_call_output", read_output},
        {"custom_tool_call_output", read_output},
        {"item_reference", refuse_reference},
    };
    const field_path path = path_of("input[%zu]", i);
    const char *where = path.text;
    if (!cl_json_is_object(item)) return openai_refuse(c->t->error, where, "must be an object, not %s", field_kind(item));
    const json_t *type = field_get(item, "type");
    if (!type) return json_object_get(item, "role") ? read_message(c, item, where) : refuse_reference(c, item, where);
    if (!json_is_string(type)) return translation_string(c->t, item, where, "type");
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (json_is(type, types[k].type)) return types[k].read(c, item, where);
    return true;
}

bool responses_read_input(openai_translation *t) {
    conversation c = {.t = t};
    const json_t *instructions = field_get(t->body, "instructions"), *input = field_get(t->body, "input"), *item;
    size_t i;
    if (instructions && !translation_string(t, t->body, "", "instructions")) return false;
    json_t *system = json_string_length(instructions) > 0 ? other_message(&c, "system", "instructions") : NULL;
    if (system && !add_content(t, system, instructions, "instructions")) return false;
    if (json_string_length(instructions) > 0 && !system) return false;
    if (json_is_string(input)) {
        json_t *message = other_message(&c, "user", "input");
        return message && add_content(t, message, input, "input");
    }
    if (!json_is_array(input) || json_array_size(input) == 0)
        return openai_refuse(t->error, "input", "must be a string or an array of at least one item");
    json_array_foreach(input, i, item) if (!read_item(&c, item, i)) return false;
    return end_assistant(&c);
}
