/* Writes whole answers of Responses, and the objects that the events of their streams contain, too. */
#include <stdio.h>
#include <string.h>

#include "responses.h"

static const char *const status_names[] = {"in_progress", "completed", "incomplete", "failed"};

responses_status responses_status_of(const openai_result *result) {
    return result->choices[0].finish == CL_ENGINE_STOP ? RESPONSES_COMPLETED : RESPONSES_INCOMPLETE;
}

bool responses_summarizes(const openai_result *result) {
    const json_t *summary = json_object_get(json_object_get(result->request->repeated, "reasoning"), "summary");
    return json_is_string(summary) && !json_is(summary, "none");
}

/* ---- Items ---- */

void responses_write_id(openai_writer *w, const char *key, const openai_result *result, size_t i) {
    static const char *const prefixes[] = {[CL_REPLY_CONTENT] = "msg", [CL_REPLY_REASONING] = "rs", [CL_REPLY_CALL] = "fc"};
    char id[sizeof result->id + 32];
    const char *digits = strchr(result->id, '_');
    snprintf(id, sizeof id, "%s_%s%02zu", prefixes[result->choices[0].items[i].kind], digits ? digits + 1 : result->id, i);
    writer_string(w, key, id);
}

void responses_write_part(openai_writer *w, const char *key, const openai_result *result, size_t i, bool empty) {
    const openai_choice *c = &result->choices[0];
    const cl_str text = empty ? (cl_str){0} : openai_item_text(c, i);
    const bool is_reasoning = c->items[i].kind == CL_REPLY_REASONING;
    writer_open(w, key, '{');
    writer_string(w, "type", !is_reasoning ? "output_text" : responses_summarizes(result) ? "summary_text" : "reasoning_text");
    writer_bytes(w, "text", text.data, text.size);
    if (!is_reasoning) {
        writer_value(w, "annotations", json_array());
        writer_value(w, "logprobs", json_array());
    }
    writer_close(w);
}

/* The array of an item's parts, of which there is one once the item is complete. */
static void write_parts(openai_writer *w, const char *key, const openai_result *result, size_t i, bool has_part) {
    writer_open(w, key, '[');
    if (has_part) responses_write_part(w, NULL, result, i, false);
    writer_close(w);
}

/* The part of a function's name behind that of a namespace that has it; NULL: the namespace does not. */
static const char *name_within(const json_t *space, const char *name) {
    const char *prefix = json_string_value(json_object_get(space, "name"));
    const size_t n = prefix ? strlen(prefix) : 0;
    size_t i;
    const json_t *tool;
    if (n == 0 || strncmp(name, prefix, n) != 0 || strncmp(name + n, RESPONSES_NAMESPACE, strlen(RESPONSES_NAMESPACE)) != 0)
        return NULL;
    const char *inner = name + n + strlen(RESPONSES_NAMESPACE);
    json_array_foreach(json_object_get(space, "tools"), i, tool) {
        if (json_is(json_object_get(tool, "name"), inner)) return inner;
    }
    return NULL;
}

void responses_write_name(openai_writer *w, const openai_result *result, const openai_call *call) {
    size_t i;
    json_t *tool;
    json_array_foreach(json_object_get(result->request->repeated, "tools"), i, tool) {
        const char *inner = json_is(json_object_get(tool, "type"), "namespace") ? name_within(tool, call->name.data) : NULL;
        if (!inner) continue;
        writer_string(w, "name", inner);
        writer_value(w, "namespace", json_incref(json_object_get(tool, "name")));
        return;
    }
    writer_bytes(w, "name", call->name.data, call->name.size);
}

void responses_write_item(openai_writer *w, const char *key, const openai_result *result, size_t i, responses_status status) {
    const openai_choice *c = &result->choices[0];
    const openai_item *item = &c->items[i];
    const bool has_text = status != RESPONSES_IN_PROGRESS, summarizes = responses_summarizes(result);
    const cl_str text = has_text ? openai_item_text(c, i) : (cl_str){0};
    writer_open(w, key, '{');
    responses_write_id(w, "id", result, i);
    switch (item->kind) {
    case CL_REPLY_REASONING:
        writer_string(w, "type", "reasoning");
        write_parts(w, "summary", result, i, has_text && summarizes);
        if (!summarizes) write_parts(w, "content", result, i, has_text);
        writer_null(w, "encrypted_content");
        break;
    case CL_REPLY_CONTENT:
        writer_string(w, "type", "message");
        writer_string(w, "role", "assistant");
        write_parts(w, "content", result, i, has_text);
        break;
    default:
        writer_string(w, "type", "function_call");
        writer_string(w, "call_id", c->calls[item->call].id);
        responses_write_name(w, result, &c->calls[item->call]);
        writer_bytes(w, "arguments", text.data, text.size);
    }
    writer_string(w, "status", status_names[status]);
    writer_close(w);
}

/* ---- Responses ---- */

responses_status responses_item_status(const openai_result *result, size_t i, responses_status answer) {
    return answer == RESPONSES_COMPLETED || i + 1 < result->choices[0].n_items ? RESPONSES_COMPLETED : RESPONSES_INCOMPLETE;
}

/* The items of an answer: none while it is in progress. */
static void write_output(openai_writer *w, const openai_result *result, responses_status status) {
    const size_t n = result->choices[0].n_items;
    writer_open(w, "output", '[');
    for (size_t i = 0; i < n && status != RESPONSES_IN_PROGRESS; i++)
        responses_write_item(w, NULL, result, i, responses_item_status(result, i, status));
    writer_close(w);
}

static void write_usage(openai_writer *w, const openai_result *result) {
    const openai_usage usage = openai_result_usage(result);
    writer_open(w, "usage", '{');
    writer_integer(w, "input_tokens", usage.prompt_tokens);
    writer_value(w, "input_tokens_details",
                 json_pack("{s:I, s:i}", "cached_tokens", (json_int_t)usage.cached_tokens, "cache_write_tokens", 0));
    writer_integer(w, "output_tokens", usage.completion_tokens);
    writer_value(w, "output_tokens_details", json_pack("{s:I}", "reasoning_tokens", (json_int_t)usage.reasoning_tokens));
    writer_integer(w, "total_tokens", usage.prompt_tokens + usage.completion_tokens);
    writer_close(w);
}

/* OpenAI's clients know "server_error" and "rate_limit_exceeded", and Codex "context_length_exceeded". */
static void write_failure(openai_writer *w, const openai_error *error) {
    char text[OPENAI_ERROR_TEXT];
    writer_open(w, "error", '{');
    writer_string(w, "code", error->code ? error->code : "server_error");
    writer_string(w, "message", openai_error_text(error, text));
    writer_close(w);
}

void responses_write(openai_writer *w, const char *key, const openai_result *result, responses_status status,
                     const openai_error *error) {
    const char *name;
    json_t *value;
    writer_open(w, key, '{');
    writer_string(w, "id", result->id);
    writer_string(w, "object", "response");
    writer_integer(w, "created_at", result->created);
    writer_string(w, "status", status_names[status]);
    writer_value(w, "background", json_false());
    error ? write_failure(w, error) : writer_null(w, "error");
    writer_value(w, "incomplete_details",
                 status == RESPONSES_INCOMPLETE ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
    writer_string(w, "model", result->context->model_name);
    write_output(w, result, status);
    writer_null(w, "previous_response_id");
    writer_string(w, "service_tier", "default");
    writer_value(w, "store", json_false());
    writer_integer(w, "top_logprobs", 0);
    writer_string(w, "truncation", "disabled");
    json_object_foreach(result->request->repeated, name, value) writer_value(w, name, json_incref(value));
    status == RESPONSES_IN_PROGRESS ? writer_null(w, "usage") : write_usage(w, result);
    writer_close(w);
}

void responses_write_answer(openai_writer *w, const char *key, const openai_result *result) {
    responses_write(w, key, result, responses_status_of(result), NULL);
}
