/* Reads a chat's tools, which of them may be called, and how its replies are split. */
#include <stdlib.h>
#include <string.h>

#include "chunkllama/chat/reply_grammar.h"
#include "messages.h"
#include "parse.h"

/* ---- Which tools may be called ---- */

/* The tool of a name; NULL: there is none. */
static json_t *find_tool(const openai_request *r, const char *name) {
    for (size_t i = 0; i < json_array_size(r->tools); i++) {
        json_t *tool = json_array_get(r->tools, i);
        const char *other = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (strcmp(name, other) == 0) return tool;
    }
    return NULL;
}

/* Let the tool be called that {"type": "function", "function": {"name"}} names, as the newer API's {"type", "name"} does. */
static bool add_callable(const json_t *choice, openai_request *r, openai_error *error) {
    const json_t *function = json_object_get(choice, "function");
    const json_t *value = json_object_get(cl_json_is_object(function) ? function : choice, "name");
    const char *name;
    if (!json_is_string(value))
        return openai_refuse(error, "tool_choice",
                             "must name a tool as {\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (!field_name(value, "tool_choice", &name, error)) return false;
    json_t *tool = find_tool(r, name);
    if (!tool) return openai_refuse(error, "tool_choice", "names '%.128s', which is not among the tools", name);
    return json_array_append(r->callable, tool) == 0 || openai_fail_memory(error);
}

static bool parse_mode(const json_t *value, openai_request *r, openai_error *error) {
    static const char *const names[] = {
        [OPENAI_TOOLS_NONE] = "none", [OPENAI_TOOLS_AUTO] = "auto", [OPENAI_TOOLS_REQUIRED] = "required"};
    const char *name = "";
    if (json_is_string(value) && !field_name(value, "tool_choice", &name, error)) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        r->tool_choice = (openai_tool_choice)i;
        return true;
    }
    return openai_refuse(error, "tool_choice",
                         "must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": "
                         "{\"name\": ...}}");
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}} */
static bool parse_allowed(const json_t *allowed, openai_request *r, openai_error *error) {
    const json_t *tools = json_object_get(allowed, "tools");
    if (!json_is_array(tools) || json_array_size(tools) == 0 || json_array_size(tools) > json_array_size(r->tools))
        return openai_fail(error, "tool_choice", "'tool_choice.allowed_tools.tools' must be an array of some of the tools");
    if (!parse_mode(json_object_get(allowed, "mode"), r, error)) return false;
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!add_callable(json_array_get(tools, i), r, error)) return false;
    return true;
}

static bool parse_choice(const json_t *choice, openai_request *r, openai_error *error) {
    if (!cl_json_is_object(choice)) return parse_mode(choice, r, error);
    const json_t *type = json_object_get(choice, "type");
    const char *name = "";
    if (json_is_string(type) && !field_name(type, "tool_choice", &name, error)) return false;
    const json_t *allowed = field_get(choice, "allowed_tools");
    if (strcmp(name, "allowed_tools") == 0) return parse_allowed(allowed ? allowed : choice, r, error);
    if (strcmp(name, "function") != 0)
        return openai_fail(error, "tool_choice", "'tool_choice.type' must be \"function\" or \"allowed_tools\"");
    r->tool_choice = OPENAI_TOOLS_REQUIRED;
    r->parallel_tool_calls = false;
    return add_callable(choice, r, error);
}

static bool parse_tool_choice(const json_t *body, openai_request *r, openai_error *error) {
    const json_t *choice = field_get(body, "tool_choice");
    const bool has_tools = json_array_size(r->tools) > 0;
    r->tool_choice = has_tools ? OPENAI_TOOLS_AUTO : OPENAI_TOOLS_NONE;
    r->callable = json_array();
    if (!r->callable) return openai_fail_memory(error);
    if (choice && !parse_choice(choice, r, error)) return false;
    if (!has_tools && r->tool_choice == OPENAI_TOOLS_REQUIRED)
        return openai_refuse(error, "tool_choice", "requires a call, but there are no 'tools'");
    if (json_array_size(r->callable) == 0 && json_array_extend(r->callable, r->tools) != 0) return openai_fail_memory(error);
    return true;
}

/* ---- What an answer has of a reply ---- */

/* Whether reasoning is apart from the content, by SGLang's name and llama-server's, and in the answer, by vLLM's. */
static bool parse_reasoning(const json_t *body, openai_request *r, openai_error *error) {
    const json_t *format = field_get(body, "reasoning_format");
    r->include_reasoning = r->reply.reasoning = true;
    if (format && !json_is_string(format))
        return openai_refuse(error, "reasoning_format", "must be a string, not %s", field_kind(format));
    if (format && strcmp(json_string_value(format), "none") == 0) r->reply.reasoning = false;
    return field_bool(body, "separate_reasoning", &r->reply.reasoning, error) &&
           field_bool(body, "include_reasoning", &r->include_reasoning, error);
}

bool openai_parse_tools(const json_t *body, size_t max_name, openai_request *r, openai_error *error) {
    r->parallel_tool_calls = true;
    if (r->endpoint != OPENAI_CHAT) return true;
    r->tools = openai_read_tools(body, max_name, error);
    return r->tools && field_bool(body, "parallel_tool_calls", &r->parallel_tool_calls, error) &&
           parse_tool_choice(body, r, error) && parse_reasoning(body, r, error);
}

/* ---- Replies ---- */

/* Whether the last tokens of a prompt, without white space at the end, spell a text. */
static bool ends_with(const cl_tokenizer *tok, const cl_token_list *prompt, const char *text) {
    char tail[256];
    size_t begin = sizeof tail;
    for (size_t i = prompt->n; i > 0; i--) {
        char piece[128];
        const size_t size = cl_tokenizer_piece(tok, prompt->ids[i - 1], true, piece, sizeof piece);
        if (size > sizeof piece || size > begin) break;
        begin -= size;
        memcpy(tail + begin, piece, size);
    }
    size_t end = sizeof tail;
    while (end > begin && strchr(" \t\r\n", tail[end - 1])) end--;
    const size_t size = strlen(text);
    return size > 0 && size <= end - begin && memcmp(tail + end - size, text, size) == 0;
}

bool openai_limit_reasoning(const openai_context *context, openai_request *r, openai_error *error) {
    const cl_reply_format *format = context->chat ? cl_chat_reply(context->chat) : NULL;
    const cl_tokenizer *tok = context->model->tok;
    cl_engine_request *p = &r->params;
    cl_error cause;
    if (r->max_reasoning_tokens < 0 || !format || !format->think[0] || !format->answer[0]) return true;
    if (cl_tokenizer_encode_template(tok, format->answer, strlen(format->answer), false, &r->reasoning_end, &cause) != CL_OK)
        return openai_fail_from(error, NULL, &cause);
    for (size_t i = 0; i < r->n_prompts; i++) r->prompts[i].in_reasoning = ends_with(tok, &r->prompts[i].tokens, format->think);
    p->max_reasoning_tokens = r->max_reasoning_tokens;
    p->reasoning_begin = format->think;
    p->reasoning_end = format->answer;
    p->reasoning_end_tokens = r->reasoning_end.ids;
    p->n_reasoning_end_tokens = (int32_t)r->reasoning_end.n;
    return true;
}

/* Let a reply with calls end where the results of the calls would begin. */
static bool add_stop(const openai_context *context, openai_request *r, openai_error *error) {
    int32_t id;
    cl_error cause;
    if (cl_reply_special_token(context->model->tok, r->reply.format->stop, &id, &cause) != CL_OK)
        return openai_fail_from(error, NULL, &cause);
    if (id >= 0 && r->params.n_stop_tokens < OPENAI_MAX_STOP_TOKENS) r->stop_tokens[r->params.n_stop_tokens++] = id;
    return true;
}

static bool is_among(const int32_t *ids, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* Find the special tokens of markers, which replies must show. */
static bool find_markers(const openai_context *context, openai_request *r, openai_error *error) {
    const char *marker;
    cl_token_list ids = {0};
    cl_error cause;
    cl_status status = CL_OK;
    for (size_t i = 0; status == CL_OK && (marker = cl_reply_format_marker(r->reply.format, i)); i++)
        status = cl_reply_special_tokens(context->model->tok, marker, &ids, &cause);
    for (size_t i = 0; i < ids.n && r->params.n_shown_tokens < OPENAI_MAX_MARKERS; i++)
        if (!is_among(r->markers, r->params.n_shown_tokens, ids.ids[i])) r->markers[r->params.n_shown_tokens++] = ids.ids[i];
    cl_token_list_free(&ids);
    if (status != CL_OK) return openai_fail_from(error, NULL, &cause);
    r->params.shown_tokens = r->markers;
    return true;
}

/* Whether a call is constrained though it need not be made. */
static bool has_strict_tool(const openai_request *r) {
    for (size_t i = 0; i < json_array_size(r->callable); i++)
        if (json_is_true(json_object_get(json_object_get(json_array_get(r->callable, i), "function"), "strict"))) return true;
    return false;
}

/* What the grammar of a reply must be written for: the field that causes it; NULL: the request needs none of its own. */
static const char *find_cause(const openai_request *r, bool calls, bool reasons) {
    const bool has_schema = r->params.grammar_kind == CL_GRAMMAR_JSON_SCHEMA;
    if (r->reply.required) return "tool_choice";
    if (calls && has_strict_tool(r)) return "tools";
    return reasons || (calls && has_schema) ? r->grammar_field : NULL;
}

/*
 * Constrain replies where a call is required or strict. What the request itself says that the text must match holds for the
 * text behind reasoning, and a JSON schema for replies without calls; another grammar leaves no room for constrained calls.
 */
static bool constrain(const openai_context *context, openai_request *r, bool calls, bool reasons, openai_error *error) {
    const char *field = find_cause(r, calls, reasons);
    const bool has_other = r->grammar && r->params.grammar_kind != CL_GRAMMAR_JSON_SCHEMA;
    if (!field) return true;
    if (has_other && field != r->grammar_field)
        return openai_refuse(error, field, "and '%s' both say what the text must match; send one of them, or a JSON schema",
                             r->grammar_field);
    const cl_reply_grammar grammar = {
        .format = r->reply.format,
        .tok = context->model->tok,
        .tools = calls && !has_other ? r->callable : NULL,
        .required = r->reply.required,
        .parallel = r->parallel_tool_calls,
        .reasons = reasons,
        .in_reasoning = r->reply.in_reasoning,
        .answer = r->grammar,
        .kind = r->params.grammar_kind,
        .open = r->open_objects,
        .weaker = r->weaker,
    };
    char *text;
    cl_error cause;
    if (cl_reply_grammar_write(&grammar, &text, &cause) != CL_OK)
        return cause.code == CL_ERR_NOMEM ? openai_fail_memory(error) : openai_fail(error, field, "%s", cause.message);
    r->reply.constrained = grammar.tools;
    if (grammar.tools) r->reply.tools = r->callable;
    free(r->grammar);
    r->grammar = text;
    r->grammar_field = field;
    r->params.grammar_kind = CL_GRAMMAR_LARK;
    r->params.grammar = text;
    r->params.grammar_size = strlen(text);
    return true;
}

bool openai_prepare_replies(const openai_context *context, openai_request *r, openai_error *error) {
    if (r->endpoint != OPENAI_CHAT) return true;
    const cl_reply_format *format = r->reply.format = cl_chat_reply(context->chat);
    const cl_tokenizer *tok = context->model->tok;
    const cl_token_list *prompt = &r->prompts[0].tokens;
    const bool thinks = format->think[0], calls = r->tool_choice != OPENAI_TOOLS_NONE && json_array_size(r->tools) > 0;
    const bool reasons = thinks && !ends_with(tok, prompt, format->answer);
    r->reply.tools = calls ? r->tools : NULL;
    r->reply.required = calls && r->tool_choice == OPENAI_TOOLS_REQUIRED;
    r->reply.reasoning &= thinks;
    r->reply.in_reasoning = thinks && ends_with(tok, prompt, format->think);
    r->splits = calls || r->reply.reasoning || format->syntax == CL_REPLY_RECIPIENT || format->around;
    return (!calls || add_stop(context, r, error)) && (!r->splits || find_markers(context, r, error)) &&
           constrain(context, r, calls, reasons, error);
}
