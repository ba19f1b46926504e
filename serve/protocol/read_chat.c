/* Reads a chat: its messages and its template's other inputs, rendered and tokenized with its tools. */
#include <string.h>

#include "messages.h"
#include "parse.h"
#include "translate.h"

/* A chat as its template gets it. Free with chat_free. */
typedef struct chat {
    cl_chat_input in;
    json_t *messages, *kwargs; /* owned; those that `in` borrows */
} chat;

static void chat_free(chat *c) {
    json_decref(c->messages);
    json_decref(c->kwargs);
}

/* ---- Thinking ---- */

/* What a body says about it, and the field that says it; NULL: none does. */
typedef struct thinking {
    const char *effort_field, *switch_field;
    const json_t *effort;
    bool on;
} thinking;

static bool refuse_both(const char *field, const char *other, openai_error *error) {
    return openai_refuse(error, field, "and '%s' contradict each other; send one of them", other);
}

static bool set_switch(thinking *t, const char *field, bool on, openai_error *error) {
    if (t->switch_field && t->on != on) return refuse_both(field, t->switch_field, error);
    t->switch_field = field;
    t->on = on;
    return true;
}

/* The effort "none" switches thinking off, as Ollama and SGLang read it. */
static bool read_effort(thinking *t, const json_t *object, const char *name, const char *field, openai_error *error) {
    static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    const json_t *effort = field_get(object, name);
    bool known = !effort;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++) known |= json_is(effort, efforts[i]);
    if (!known)
        return openai_refuse(error, field,
                             "must be \"none\", \"minimal\", \"low\", \"medium\", \"high\", \"xhigh\" or \"max\"");
    if (!effort) return true;
    if (t->effort && !json_equal(t->effort, effort)) return refuse_both(field, t->effort_field, error);
    t->effort = effort;
    t->effort_field = field;
    return !json_is(effort, "none") || set_switch(t, field, false, error);
}

static bool read_switch(thinking *t, const json_t *object, const char *name, const char *field, openai_error *error) {
    const json_t *value = field_get(object, name);
    if (!value) return true;
    if (!json_is_boolean(value)) return openai_refuse(error, field, "must be true or false, not %s", field_kind(value));
    return set_switch(t, field, json_is_true(value), error);
}

/* Anthropic's object, which other services take in chats, too, or a switch. */
static bool read_type(thinking *t, const json_t *body, openai_error *error) {
    const json_t *object = field_get(body, "thinking"), *type = field_get(object, "type");
    if (!cl_json_is_object(object)) return read_switch(t, body, "thinking", "thinking", error);
    if (!json_is(type, "enabled") && !json_is(type, "adaptive") && !json_is(type, "disabled"))
        return openai_refuse(error, "thinking.type", "must be \"enabled\", \"adaptive\" or \"disabled\"");
    return set_switch(t, "thinking.type", !json_is(type, "disabled"), error);
}

/* Members that chats have as fields of their own. */
static bool check_members(const json_t *reasoning, const json_t *object, openai_error *error) {
    const struct {
        const json_t *object;
        const char *name, *field, *instead;
    } members[] = {{reasoning, "exclude", "reasoning.exclude", "include_reasoning"},
                   {reasoning, "max_tokens", "reasoning.max_tokens", "thinking_token_budget"},
                   {object, "budget_tokens", "thinking.budget_tokens", "thinking_token_budget"}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (!field_get_requested(members[i].object, members[i].name)) continue;
        openai_refuse(error, members[i].field, "is not supported in chats; use the field '%s'", members[i].instead);
        return openai_set_status(error, 400, "unsupported_parameter");
    }
    return true;
}

/* By OpenAI's field, SGLang's and OpenRouter's object, Anthropic's, and the switch of Qwen's service. */
static bool read_thinking(thinking *t, const json_t *body, openai_error *error) {
    const json_t *reasoning;
    return field_object(body, "reasoning", &reasoning, error) && check_members(reasoning, field_get(body, "thinking"), error) &&
           read_effort(t, body, "reasoning_effort", "reasoning_effort", error) &&
           read_effort(t, reasoning, "effort", "reasoning.effort", error) &&
           read_switch(t, reasoning, "enabled", "reasoning.enabled", error) &&
           read_switch(t, body, "enable_thinking", "enable_thinking", error) && read_type(t, body, error);
}

/* Set the variables by which templates know the switch. */
static bool set_switches(json_t *kwargs, const thinking *t) {
    return !t->switch_field || (json_object_set_new(kwargs, "enable_thinking", json_boolean(t->on)) == 0 &&
                                json_object_set_new(kwargs, "thinking", json_boolean(t->on)) == 0);
}

/* ---- The template's variables ---- */

/* Refuse variables that have fields of their own. Those of the template's own, such as bos_token, cannot be replaced anyway. */
static bool check_kwargs(const json_t *kwargs, openai_error *error) {
    static const char *const names[] = {
        "messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "chat_template", "tokenize"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_object_get(kwargs, names[i]))
            return openai_refuse(error, path_of("chat_template_kwargs.%s", names[i]).text,
                                 "is no variable of a request; leave it out, or use the field '%s'", names[i]);
    return true;
}

static bool update(json_t *kwargs, const json_t *more) { return !more || json_object_update(kwargs, (json_t *)more) == 0; }

/*
 * The variables of the server, the switch of thinking, and chat_template_kwargs, each of which replaces those before it; the
 * effort of a field replaces all.
 */
static bool read_kwargs(const openai_context *context, const json_t *body, chat *c, openai_error *error) {
    const json_t *kwargs;
    thinking t = {0};
    if (!field_object(body, "chat_template_kwargs", &kwargs, error) || !check_kwargs(kwargs, error) ||
        !read_thinking(&t, body, error))
        return false;
    c->in.kwargs = c->kwargs = json_object();
    if (c->kwargs && update(c->kwargs, context->chat_kwargs) && set_switches(c->kwargs, &t) && update(c->kwargs, kwargs) &&
        (!t.effort || json_object_set(c->kwargs, "reasoning_effort", (json_t *)t.effort) == 0))
        return true;
    return openai_fail_memory(error);
}

/* Documents that the template may quote (retrieval-augmented generation). */
static bool read_documents(const json_t *body, chat *c, openai_error *error) {
    c->in.documents = field_get_requested(body, "documents");
    if (c->in.documents && !json_is_array(c->in.documents))
        return openai_refuse(error, "documents", "must be an array of objects, not %s", field_kind(c->in.documents));
    for (size_t i = 0; i < json_array_size(c->in.documents); i++) {
        const json_t *document = json_array_get(c->in.documents, i);
        if (!cl_json_is_object(document))
            return openai_refuse(error, path_of("documents[%zu]", i).text, "must be an object, not %s", field_kind(document));
    }
    return true;
}

/* Where the text ends: where the answer begins, or within the last message, which may say so itself by DeepSeek's `prefix`. */
static bool read_end(const json_t *body, chat *c, openai_error *error) {
    const json_t *messages = field_get(body, "messages"), *last = json_array_get(messages, json_array_size(messages) - 1);
    c->in.continue_final_message = json_is_true(json_object_get(last, "prefix"));
    if (!field_bool(body, "continue_final_message", &c->in.continue_final_message, error)) return false;
    c->in.add_generation_prompt = !c->in.continue_final_message;
    if (!field_bool(body, "add_generation_prompt", &c->in.add_generation_prompt, error)) return false;
    if (c->in.add_generation_prompt && c->in.continue_final_message)
        return openai_fail(error, "continue_final_message",
                           "cannot set both 'continue_final_message' and 'add_generation_prompt' to true: clear one of them");
    return true;
}

/* ---- The chat ---- */

static bool read_chat(const openai_context *context, const json_t *body, openai_request *r, chat *c, openai_error *error) {
    if (r->tool_choice != OPENAI_TOOLS_NONE) c->in.tools = r->tools;
    const bool argument_text = cl_chat_takes_argument_text(context->chat, json_array_size(c->in.tools) > 0);
    c->in.messages = c->messages = openai_read_messages(field_get(body, "messages"), argument_text, &r->odd, error);
    return c->messages && read_kwargs(context, body, c, error) && read_documents(body, c, error) && read_end(body, c, error);
}

static bool render(const openai_context *context, const cl_chat_input *in, cl_prompt *text, openai_error *error) {
    cl_error cause;
    return (cl_chat_render(context->chat, in, text, &cause) == CL_OK || openai_fail_from(error, "messages", &cause)) &&
           openai_check_size(context, "messages", text->size, error);
}

bool openai_render_messages(const openai_context *context, const json_t *body, openai_request *r, cl_prompt *text,
                            openai_error *error) {
    const cl_model *m = context->model;
    if (!context->chat)
        return openai_fail(error, "messages", "this model has no chat template: %s",
                           m->chat_error.code != CL_OK ? m->chat_error.message
                                                       : "its file has none; start the server with --chat-template or "
                                                         "--chat-format, or send 'prompt' to /v1/completions instead");
    chat c = {0};
    cl_chat_input_init(&c.in);
    const bool ok = read_chat(context, body, r, &c, error) && render(context, &c.in, text, error);
    chat_free(&c);
    return ok;
}

bool openai_parse_chat(const openai_context *context, const json_t *body, openai_request *r, openai_prompt *prompt,
                       openai_error *error) {
    cl_prompt text = {0};
    cl_error cause;
    bool ok = openai_render_messages(context, body, r, &text, error);
    if (ok && cl_tokenizer_encode_spans(context->model->tok, text.text, text.size, true, text.own, text.n_own, &prompt->tokens,
                                        &cause) != CL_OK)
        ok = openai_fail_from(error, "messages", &cause);
    cl_prompt_free(&text);
    return ok;
}
