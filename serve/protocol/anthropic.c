/* The dialect of Anthropic's Messages: reads all fields of a body but its messages. Also counts the tokens of a body. */
#include "anthropic.h"

#include <stdio.h>
#include <string.h>

#include "messages.h"

/* ---- Tools ---- */

/* Tools of other types are defined by Anthropic, and have no schema here. */
static bool read_tool(openai_translation *t, const json_t *tool, const char *where) {
    const json_t *type = field_get(tool, "type");
    return (type && !json_is(type, "custom")) || translation_add_tool(t, tool, "", "input_schema", where);
}

static bool read_tool_choice(openai_translation *t) {
    static const char *const names[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    const json_t *choice = field_get(t->body, "tool_choice");
    if (!choice) return true;
    const json_t *type = translation_string(t, choice, "tool_choice", "type");
    const bool has_tools = json_object_get(t->chat, "tools");
    if (!type) return false;
    if (!has_tools && (json_is(type, "auto") || json_is(type, "none"))) return true;
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")) &&
        !translation_set(t, t->chat, "parallel_tool_calls", json_false()))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_is(type, names[i][0])) return translation_set(t, t->chat, "tool_choice", json_string(names[i][1]));
    if (!json_is(type, "tool"))
        return openai_refuse(t->error, "tool_choice.type", "must be \"auto\", \"any\", \"tool\" or \"none\"");
    const json_t *name = translation_string(t, choice, "tool_choice", "name");
    return name &&
           translation_set(t, t->chat, "tool_choice",
                           json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name)) &&
           translation_name(t, "tool_choice.function", "tool_choice");
}

/* ---- Thinking and output ---- */

/* Without the field, the model thinks as its template says. */
static bool read_thinking(openai_translation *t) {
    const json_t *thinking = field_get(t->body, "thinking");
    if (!thinking) return true;
    const json_t *type = translation_string(t, thinking, "thinking", "type");
    if (!type) return false;
    const bool on = json_is(type, "enabled") || json_is(type, "adaptive");
    int64_t budget = -1;
    if (!on && !json_is(type, "disabled"))
        return openai_refuse(t->error, "thinking.type", "must be \"enabled\", \"adaptive\" or \"disabled\"");
    if (!field_int(thinking, "budget_tokens", 1, INT32_MAX, &budget, t->error)) {
        snprintf(t->error->param, sizeof t->error->param, "thinking.budget_tokens");
        return false;
    }
    return translation_set_thinking(t, on) && (!on || budget < 0 ||
                                               (translation_set(t, t->chat, "thinking_token_budget", json_integer(budget)) &&
                                                translation_name(t, "thinking_token_budget", "thinking.budget_tokens")));
}

/* The effort of reasoning, and the schema that the answer must follow, which earlier clients send as `output_format`. */
static bool read_output(openai_translation *t) {
    const json_t *config = field_get(t->body, "output_config"), *effort = field_get(config, "effort");
    const json_t *format = field_get(config, "format");
    const char *where = format ? "output_config.format" : "output_format";
    if (!format) format = field_get(t->body, "output_format");
    if (effort && (!translation_set(t, t->chat, "reasoning_effort", json_incref((json_t *)effort)) ||
                   !translation_name(t, "reasoning_effort", "output_config.effort")))
        return false;
    if (!format) return true;
    t->format = where;
    const json_t *schema = json_object_get(format, "schema");
    if (!json_is(json_object_get(format, "type"), "json_schema") || !cl_json_is_object(schema))
        return openai_refuse(t->error, where, "must be {\"type\": \"json_schema\", \"schema\": {...}}");
    return translation_set(t, t->chat, "response_format",
                           json_pack("{s:s, s:{s:s, s:b, s:O}}", "type", "json_schema", "json_schema", "name", "output",
                                     "strict", 1, "schema", schema)) &&
           translation_name(t, "response_format", where) && translation_name(t, "response_format.json_schema", where);
}

/* ---- All ---- */

/* The fields of the body that do not reach the chat as they are. Those that are read nowhere change no answer. */
static const char *const own_fields[] = {
    "best_of",       "cache_control", "container",       "context_management", "diagnostics", "inference_geo", "logprobs",
    "max_tokens",    "mcp_servers",   "messages",        "metadata",           "n",           "n_cmpl",        "output_config",
    "output_format", "service_tier",  "speed",           "stop_sequences",     "system",      "thinking",      "tool_choice",
    "tools",         "top_logprobs",  "user_profile_id", "workspace_id",
};

bool anthropic_translate(openai_translation *t, const json_t *body, anthropic_marks *marks, openai_error *error) {
    *marks = (anthropic_marks){0};
    return translation_begin(t, body, own_fields, sizeof own_fields / sizeof *own_fields, error) &&
           anthropic_read_tool_marks(t, marks) && anthropic_read_input(t, marks) && anthropic_read_mark(t, marks, body, "") &&
           translation_read_tools(t, "tools", field_get(body, "tools"), read_tool) && read_tool_choice(t) && read_thinking(t) &&
           read_output(t) && translation_move_length(t, "max_tokens") && translation_move(t, "stop", "stop_sequences");
}

static bool parse(const openai_context *context, const json_t *body, openai_request *request, openai_error *error) {
    openai_translation t;
    anthropic_marks marks;
    *request = (openai_request){.endpoint = OPENAI_CHAT};
    if (!openai_check_texts(context, body, error)) return false;
    const bool translated = anthropic_translate(&t, body, &marks, error);
    t.max_tool_name = ANTHROPIC_MAX_TOOL_NAME;
    const bool ok = translated && translation_parse(&t, context, request);
    if (ok) request->id_prefix = "msg_";
    if (ok) request->call_prefix = "toolu_";
    if (ok) anthropic_set_pin(&t, &marks, context, request);
    translation_free(&t);
    return ok;
}

/* Anthropic's error, in place of an answer for which memory is lacking. */
#define NO_MEMORY "{\"type\": \"error\", \"error\": {\"type\": \"api_error\", \"message\": \"" OPENAI_NO_MEMORY "\"}}"

const openai_dialect anthropic_messages = {
    .path = "/v1/messages",
    .parse = parse,
    .write_error = anthropic_write_error,
    .write_answer = anthropic_write_answer,
    .stream_begin = anthropic_stream_begin,
    .stream_event = anthropic_stream_event,
    .stream_end = anthropic_stream_end,
    .no_memory_body = NO_MEMORY,
    .no_memory_end = "event: error\ndata: " NO_MEMORY "\n\n",
};

/* ---- Counting ---- */

bool anthropic_count_tokens(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error) {
    openai_request request;
    openai_context counting = *context;
    counting.can_pin = false; /* so that the prompt is tokenized only once */
    if (!parse(&counting, body, &request, error)) return false;
    writer_open(w, NULL, '{');
    writer_integer(w, "input_tokens", (int64_t)request.prompts[0].tokens.n);
    writer_close(w);
    openai_request_free(&request);
    return true;
}
