/* Reads the fields cache_control, and finds the tokens of the prompt that they mark. */
#include <string.h>

#include "anthropic.h"

enum { MAX_MARKS = 4 }; /* of a request; Anthropic's own limit */

/* ---- Reading ---- */

/* Set *seconds from a field's `ttl`. */
static bool read_ttl(openai_translation *t, const json_t *mark, const char *where, int32_t *seconds) {
    const json_t *type = translation_string(t, mark, where, "type"), *ttl = field_get(mark, "ttl");
    if (!type) return false;
    const field_path param = path_of("%s.%s", where, json_is(type, "ephemeral") ? "ttl" : "type");
    if (!json_is(type, "ephemeral")) return openai_refuse(t->error, param.text, "must be \"ephemeral\"");
    *seconds = json_is(ttl, "1h") ? 3600 : 300;
    return !ttl || json_is(ttl, "1h") || json_is(ttl, "5m") || openai_refuse(t->error, param.text, "must be \"5m\" or \"1h\"");
}

bool anthropic_read_mark(openai_translation *t, anthropic_marks *marks, const json_t *value, const char *where) {
    const json_t *mark = field_get(value, "cache_control");
    const field_path param = path_of("%s%scache_control", where, *where ? "." : "");
    int32_t seconds = 0;
    if (!mark) return true;
    if (!cl_json_is_object(mark)) return openai_refuse(t->error, param.text, "must be an object, not %s", field_kind(mark));
    if (!read_ttl(t, mark, param.text, &seconds)) return false;
    if (++marks->n > MAX_MARKS)
        return openai_refuse(t->error, param.text, "is one too many: a request may have cache_control at %d places", MAX_MARKS);
    if (seconds > marks->ttl_s) marks->ttl_s = seconds;
    marks->n_messages = json_array_size(t->messages);
    const json_t *last = marks->n_messages > 0 ? json_array_get(t->messages, marks->n_messages - 1) : NULL;
    marks->n_parts = json_array_size(json_object_get(last, "content"));
    marks->n_calls = json_array_size(json_object_get(last, "tool_calls"));
    return true;
}

bool anthropic_read_tool_marks(openai_translation *t, anthropic_marks *marks) {
    const json_t *tools = field_get(t->body, "tools"), *tool;
    size_t i;
    json_array_foreach(tools, i, tool) if (!anthropic_read_mark(t, marks, tool, path_of("tools[%zu]", i).text)) return false;
    return true;
}

/* ---- Finding ---- */

/* Keep the first n elements of an object's array, which stays as it is, in a new one; none: without the field. */
static bool cut_array(json_t *object, const char *name, size_t n) {
    const json_t *array = json_object_get(object, name);
    if (json_array_size(array) <= n) return true;
    if (n == 0) return json_object_del(object, name) == 0;
    json_t *cut = json_array();
    bool ok = cut;
    for (size_t i = 0; ok && i < n; i++) ok = json_array_append(cut, json_array_get(array, i)) == 0;
    return json_object_set_new_nocheck(object, name, cut) == 0 && ok;
}

/*
 * The messages up to the mark. If only the system is among them, a user's message follows, without which most templates write
 * nothing; no other message begins with its character. NULL: memory is lacking.
 */
static json_t *marked_messages(const openai_translation *t, const anthropic_marks *marks) {
    json_t *messages = json_array(), *message = NULL;
    const json_t *first = json_array_get(t->messages, 0);
    const bool has_system = json_is(json_object_get(first, "role"), "system");
    const size_t n = marks->n_messages > 0 ? marks->n_messages : has_system; /* tools may be written behind the system */
    bool ok = messages;
    for (size_t i = 0; ok && i < n; i++) {
        message = translation_copy(json_array_get(t->messages, i));
        ok = json_array_append_new(messages, message) == 0;
    }
    if (ok && marks->n_messages > 0)
        ok = cut_array(message, "content", marks->n_parts) && cut_array(message, "tool_calls", marks->n_calls);
    if (ok && (!message || json_is(json_object_get(message, "role"), "system")))
        ok = json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", "\x01")) == 0;
    if (ok) return messages;
    json_decref(messages);
    return NULL;
}

/* The chat up to the mark; NULL: memory is lacking. */
static json_t *marked_chat(const openai_translation *t, const anthropic_marks *marks) {
    json_t *chat = translation_copy(t->chat);
    if (chat && json_object_set_new_nocheck(chat, "messages", marked_messages(t, marks)) == 0 &&
        json_object_set_new_nocheck(chat, "add_generation_prompt", json_false()) == 0 &&
        json_object_set_new_nocheck(chat, "continue_final_message", json_false()) == 0)
        return chat;
    json_decref(chat);
    return NULL;
}

void anthropic_set_pin(const openai_translation *t, const anthropic_marks *marks, const openai_context *context,
                       openai_request *request) {
    if (marks->n == 0 || !context->can_pin || request->params.salt_size > 0) return;
    const cl_token_list *whole = &request->prompts[0].tokens;
    json_t *chat = marked_chat(t, marks);
    openai_prompt marked = {0};
    openai_error ignored;
    size_t n = 0;
    const field_path odd = request->odd;
    if (chat && openai_parse_chat(context, chat, request, &marked, &ignored))
        while (n < whole->n && n < marked.tokens.n && whole->ids[n] == marked.tokens.ids[n]) n++;
    request->odd = odd;
    request->params.pin_tokens = (int64_t)(n / 2 * 2);
    request->pin_ttl_s = n > 1 ? marks->ttl_s : 0;
    cl_token_list_free(&marked.tokens);
    json_decref(chat);
}
