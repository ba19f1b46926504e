/* Translates the system and the messages of Anthropic's API into the messages of a chat. */
#include <stdlib.h>
#include <string.h>

#include "anthropic.h"

/* The conversation in the making. */
typedef struct conversation {
    openai_translation *t;
    anthropic_marks *marks;
    json_t *last;     /* the last message; NULL: there is none */
    const char *role; /* its role, static */
} conversation;

/* The message for the next part: the last one if it has the role: consecutive messages of one role are one. */
static json_t *message_of(conversation *c, const char *role, const char *where) {
    if (c->last && strcmp(c->role, role) == 0 && strcmp(role, "tool") != 0) return c->last;
    if (c->last && !translation_end_message(c->t, c->last)) return NULL;
    c->role = role;
    return c->last = translation_message(c->t, role, where);
}

/* ---- Blocks ---- */

/* A block of a message. */
typedef struct block {
    const json_t *value; /* an object */
    const char *role;    /* of its message, static */
    const char *message; /* that one's name in messages, such as "messages[2]" */
    const char *where;   /* its own name, such as "messages[2].content[0]" */
} block;

static bool add_text(conversation *c, const block *b, json_t *text) {
    json_t *message = message_of(c, b->role, b->message);
    return message && translation_add_text(c->t, message, json_incref(text));
}

static bool read_text(conversation *c, const block *b) {
    const json_t *text = translation_string(c->t, b->value, b->where, "text");
    return text && add_text(c, b, (json_t *)text);
}

static bool fail_kind(conversation *c, const char *where, const char *type) {
    return openai_refuse(c->t->error, where, "is of type \"%.64s\"; this model accepts only text", type);
}

/* Add a content, a string or an array of text blocks, to a message. */
static bool add_blocks(conversation *c, json_t *message, const json_t *content, const char *where) {
    size_t i;
    const json_t *part;
    if (json_is_string(content)) return translation_add_text(c->t, message, json_incref((json_t *)content));
    if (!json_is_array(content)) return fail_kind(c, where, "document");
    json_array_foreach(content, i, part) {
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text)) return fail_kind(c, where, "document");
        if (!translation_add_text(c->t, message, json_incref((json_t *)text))) return false;
    }
    return true;
}

/* Add a document or a search result if it is text: its title and what else describes it, and its content. */
static bool add_document(conversation *c, json_t *message, const json_t *value, const char *where) {
    static const char *const names[] = {"title", "context", "source"};
    const json_t *source = json_object_get(value, "source"), *type = json_object_get(source, "type");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *text = json_object_get(value, names[i]);
        if (json_is_string(text) && !translation_add_text(c->t, message, json_incref((json_t *)text))) return false;
    }
    if (!cl_json_is_object(source)) return add_blocks(c, message, json_object_get(value, "content"), where);
    const char *member = json_is(type, "text") ? "data" : json_is(type, "content") ? "content" : "";
    return add_blocks(c, message, json_object_get(source, member), where);
}

static bool read_document(conversation *c, const block *b) {
    json_t *message = message_of(c, b->role, b->message);
    return message && add_document(c, message, b->value, b->where);
}

static bool refuse_image(conversation *c, const block *b) { return fail_kind(c, b->where, "image"); }

static bool read_thinking(conversation *c, const block *b) {
    const json_t *text = translation_string(c->t, b->value, b->where, "thinking");
    json_t *message = text ? message_of(c, b->role, b->message) : NULL;
    return message && translation_add_reasoning(c->t, message, json_incref((json_t *)text));
}

static bool read_tool_use(conversation *c, const block *b) {
    const json_t *id = translation_string(c->t, b->value, b->where, "id");
    const json_t *name = id ? translation_string(c->t, b->value, b->where, "name") : NULL;
    json_t *message = name ? message_of(c, b->role, b->message) : NULL;
    return message && translation_add_call(c->t, message, id, name, translation_arguments(field_get(b->value, "input")),
                                           b->where, "input");
}

/* Add a block of a result; those that refer to something else are skipped. */
static bool add_result_block(conversation *c, json_t *message, const json_t *value, const char *where) {
    const json_t *type = json_object_get(value, "type");
    if (json_is(type, "image")) return fail_kind(c, where, "image");
    if (json_is(type, "document") || json_is(type, "search_result")) return add_document(c, message, value, where);
    if (!json_is(type, "text")) return true;
    const json_t *text = translation_string(c->t, value, where, "text");
    return text && translation_add_text(c->t, message, json_incref((json_t *)text));
}

/* Add the texts of a result. */
static bool add_result(conversation *c, json_t *message, const json_t *content, const char *where) {
    size_t i;
    const json_t *part;
    if (!content) return translation_add_text(c->t, message, json_string(""));
    if (json_is_string(content)) return translation_add_text(c->t, message, json_incref((json_t *)content));
    if (!json_is_array(content))
        return openai_refuse(c->t->error, where, "must be a string or an array of blocks, not %s", field_kind(content));
    json_array_foreach(content, i, part) {
        const field_path name = path_of("%s[%zu]", where, i);
        if (!add_result_block(c, message, part, name.text) || !anthropic_read_mark(c->t, c->marks, part, name.text))
            return false;
    }
    return json_object_get(message, "content") || translation_add_text(c->t, message, json_string(""));
}

static bool read_tool_result(conversation *c, const block *b) {
    const json_t *id = translation_string(c->t, b->value, b->where, "tool_use_id");
    json_t *message = id ? message_of(c, "tool", b->where) : NULL;
    if (!message || !translation_set(c->t, message, "tool_call_id", json_incref((json_t *)id))) return false;
    if (json_is_true(json_object_get(b->value, "is_error")) && !translation_add_text(c->t, message, json_string("Error:")))
        return false;
    return add_result(c, message, field_get(b->value, "content"), path_of("%s.content", b->where).text);
}

/* Blocks of other types, such as those of tools that run on Anthropic's side, are skipped. */
static bool read_block(conversation *c, const block *b) {
    static const struct {
        const char *type;
        const char *role; /* whose messages may have it; NULL: any */
        bool (*read)(conversation *c, const block *b);
    } types[] = {
        {"text", NULL, read_text},
        {"image", NULL, refuse_image},
        {"document", NULL, read_document},
        {"search_result", NULL, read_document},
        {"thinking", "assistant", read_thinking},
        {"tool_use", "assistant", read_tool_use},
        {"tool_result", "user", read_tool_result},
    };
    if (!cl_json_is_object(b->value))
        return openai_refuse(c->t->error, b->where, "must be an object, not %s", field_kind(b->value));
    const json_t *type = translation_string(c->t, b->value, b->where, "type");
    if (!type) return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!json_is(type, types[i].type)) continue;
        if (!types[i].role || strcmp(types[i].role, b->role) == 0) return types[i].read(c, b);
        return openai_refuse(c->t->error, b->where, "is of type \"%s\", which only messages of role \"%s\" have", types[i].type,
                             types[i].role);
    }
    return true;
}

/* ---- Messages ---- */

static bool read_message(conversation *c, const json_t *value, size_t i) {
    static const char *const roles[] = {"user", "assistant", "system"};
    const field_path message = path_of("messages[%zu]", i), role = path_of("%s.role", message.text);
    const field_path where = path_of("%s.content", message.text);
    size_t r = 0, j;
    if (!cl_json_is_object(value))
        return openai_refuse(c->t->error, message.text, "must be an object, not %s", field_kind(value));
    while (r < sizeof roles / sizeof *roles && !json_is(json_object_get(value, "role"), roles[r])) r++;
    if (r == sizeof roles / sizeof *roles)
        return openai_refuse(c->t->error, role.text, "must be \"user\", \"assistant\" or \"system\"");
    const json_t *content = field_get(value, "content"), *part;
    block b = {.role = roles[r], .message = message.text, .where = where.text};
    if (json_is_string(content)) return add_text(c, &b, (json_t *)content);
    if (!json_is_array(content))
        return openai_refuse(c->t->error, where.text, "must be a string or an array of blocks%s%s", content ? ", not " : "",
                             content ? field_kind(content) : "");
    json_array_foreach(content, j, part) {
        const field_path path = path_of("%s[%zu]", where.text, j);
        b.value = part;
        b.where = path.text;
        if (!read_block(c, &b) || !anthropic_read_mark(c->t, c->marks, part, path.text)) return false;
    }
    return true;
}

/* ---- The system ---- */

/* Add a text of the system without a billing header, which is its first line. */
static bool add_system(conversation *c, const json_t *value, const char *where) {
    static const char header[] = "x-anthropic-billing-header";
    const char *text = json_string_value(value);
    size_t size = json_string_length(value);
    if (size >= sizeof header - 1 && memcmp(text, header, sizeof header - 1) == 0) {
        const char *line_end = memchr(text, '\n', size);
        size = line_end ? size - (size_t)(line_end + 1 - text) : 0;
        text = line_end ? line_end + 1 : text;
    }
    if (size == 0) return true;
    json_t *message = message_of(c, "system", where);
    return message && translation_add_text(c->t, message, json_stringn_nocheck(text, size));
}

static bool read_system(conversation *c) {
    const json_t *system = field_get(c->t->body, "system"), *part;
    size_t i;
    if (!system) return true;
    if (json_is_string(system)) return add_system(c, system, "system");
    if (!json_is_array(system))
        return openai_refuse(c->t->error, "system", "must be a string or an array of text blocks, not %s", field_kind(system));
    json_array_foreach(system, i, part) {
        const field_path path = path_of("system[%zu]", i);
        const json_t *text = translation_string(c->t, part, path.text, "text");
        if (!text || !add_system(c, text, "system") || !anthropic_read_mark(c->t, c->marks, part, path.text)) return false;
    }
    return true;
}

/* ---- All ---- */

bool anthropic_read_input(openai_translation *t, anthropic_marks *marks) {
    conversation c = {.t = t, .marks = marks};
    const json_t *messages = field_get(t->body, "messages"), *message;
    size_t i;
    if (!json_is_array(messages) || json_array_size(messages) == 0)
        return openai_refuse(t->error, "messages", "must be an array of at least one message");
    if (!read_system(&c)) return false;
    json_array_foreach(messages, i, message) if (!read_message(&c, message, i)) return false;
    if (!c.last || json_array_size(t->messages) == 0) return openai_refuse(t->error, "messages", "has no text");
    return translation_end_message(t, c.last) && translation_continue(t);
}
