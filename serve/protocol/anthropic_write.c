/* Writes answers, errors and the events of streams as Anthropic's Messages have them. */
#include <string.h>

#include "anthropic.h"

/* ---- Errors ---- */

static const char *error_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status < 500 ? "invalid_request_error" : "api_error";
    }
}

void anthropic_write_error(openai_writer *w, const char *key, const openai_error *error) {
    /* Clients such as Claude Code shorten the conversation when they read these words. */
    static const char too_long[] = "prompt is too long: ";
    char text[OPENAI_ERROR_TEXT];
    const bool is_length = error->code && strcmp(error->code, "context_length_exceeded") == 0;
    writer_open(w, key, '{');
    writer_string(w, "type", "error");
    writer_open(w, "error", '{');
    writer_string(w, "type", error_type(error->status));
    openai_error_text(error, text);
    writer_joined(w, "message", too_long, is_length ? sizeof too_long - 1 : 0, text, strlen(text));
    writer_close(w);
    writer_close(w);
}

/* ---- Blocks ---- */

/* Write block i of the content as the value of `key`; empty: as it begins in a stream, without its text. */
static void write_block(openai_writer *w, const char *key, const openai_result *result, size_t i, bool empty) {
    const openai_choice *c = &result->choices[0];
    const openai_item *item = &c->items[i];
    const cl_str text = empty ? (cl_str){0} : openai_item_text(c, i);
    writer_open(w, key, '{');
    switch (item->kind) {
    case CL_REPLY_REASONING:
        writer_string(w, "type", "thinking");
        writer_bytes(w, "thinking", text.data, text.size);
        writer_string(w, "signature", empty ? "" : result->id);
        break;
    case CL_REPLY_CONTENT:
        writer_string(w, "type", "text");
        writer_bytes(w, "text", text.data, text.size);
        break;
    default:
        writer_string(w, "type", "tool_use");
        writer_string(w, "id", c->calls[item->call].id);
        writer_string(w, "name", c->calls[item->call].name.data);
        openai_write_arguments(w, "input", text);
    }
    writer_close(w);
}

/* ---- Messages ---- */

/* Why the choice ended; and the stop string that did it, or null. */
static void write_stop(openai_writer *w, const openai_result *result) {
    const openai_choice *c = &result->choices[0];
    const char *string = c->finish == CL_ENGINE_STOP && c->stop >= 0 ? result->request->stop[c->stop] : NULL;
    if (c->finish == CL_ENGINE_LENGTH)
        writer_string(w, "stop_reason",
                      openai_max_tokens(result->request, 0) < 0 ? "model_context_window_exceeded" : "max_tokens");
    else
        writer_string(w, "stop_reason", string ? "stop_sequence" : c->n_calls > 0 ? "tool_use" : "end_turn");
    writer_string(w, "stop_sequence", string);
}

/*
 * Each token of the prompt is counted once: as read from the cache, as pinned in it by this request, or as input. The latter
 * enter the cache, too, and may be found there later, but nothing keeps them.
 */
static void write_usage(openai_writer *w, const openai_request *r, const openai_usage *usage) {
    const int64_t n_created = usage->pinned_tokens > usage->cached_tokens ? usage->pinned_tokens - usage->cached_tokens : 0;
    const bool is_hour = r->pin_ttl_s == 3600;
    writer_open(w, "usage", '{');
    writer_integer(w, "input_tokens", usage->prompt_tokens - usage->cached_tokens - n_created);
    writer_integer(w, "cache_creation_input_tokens", n_created);
    writer_integer(w, "cache_read_input_tokens", usage->cached_tokens);
    writer_value(w, "cache_creation",
                 json_pack("{s:I, s:I}", "ephemeral_5m_input_tokens", (json_int_t)(is_hour ? 0 : n_created),
                           "ephemeral_1h_input_tokens", (json_int_t)(is_hour ? n_created : 0)));
    writer_integer(w, "output_tokens", usage->completion_tokens);
    writer_close(w);
}

/* Write a message as the value of `key`; begins: as a stream begins, without content. */
static void write_message(openai_writer *w, const char *key, const openai_result *result, bool begins,
                          const openai_usage *usage) {
    const size_t n = begins ? 0 : result->choices[0].n_items;
    writer_open(w, key, '{');
    writer_string(w, "id", result->id);
    writer_string(w, "type", "message");
    writer_string(w, "role", "assistant");
    writer_string(w, "model", result->context->model_name);
    writer_open(w, "content", '[');
    for (size_t i = 0; i < n; i++) write_block(w, NULL, result, i, false);
    writer_close(w);
    if (begins) {
        writer_null(w, "stop_reason");
        writer_null(w, "stop_sequence");
    } else {
        write_stop(w, result);
    }
    write_usage(w, result->request, usage);
    writer_close(w);
}

void anthropic_write_answer(openai_writer *w, const char *key, const openai_result *result) {
    const openai_usage usage = openai_result_usage(result);
    write_message(w, key, result, false, &usage);
}

/* ---- Streams ---- */

static void put_delta(openai_writer *w, size_t i, const char *type, const char *name, const char *text, size_t size) {
    writer_begin_typed_event(w, "content_block_delta");
    writer_integer(w, "index", (int64_t)i);
    writer_open(w, "delta", '{');
    writer_string(w, "type", type);
    writer_bytes(w, name, text, size);
    writer_close(w);
    writer_end_typed_event(w);
}

static void put_text(openai_writer *w, const openai_result *result, size_t i, cl_str text) {
    switch (result->choices[0].items[i].kind) {
    case CL_REPLY_REASONING: put_delta(w, i, "thinking_delta", "thinking", text.data, text.size); break;
    case CL_REPLY_CONTENT: put_delta(w, i, "text_delta", "text", text.data, text.size); break;
    default: put_delta(w, i, "input_json_delta", "partial_json", text.data, text.size);
    }
}

static void put_change(openai_writer *w, const openai_result *result, const openai_change *change) {
    if (change->kind == OPENAI_ITEM_GROWS) {
        put_text(w, result, change->item, change->text);
        return;
    }
    const bool begins = change->kind == OPENAI_ITEM_BEGINS;
    if (!begins && result->choices[0].items[change->item].kind == CL_REPLY_REASONING)
        put_delta(w, change->item, "signature_delta", "signature", result->id, strlen(result->id));
    writer_begin_typed_event(w, begins ? "content_block_start" : "content_block_stop");
    writer_integer(w, "index", (int64_t)change->item);
    if (begins) write_block(w, "content_block", result, change->item, true);
    writer_end_typed_event(w);
}

void anthropic_stream_begin(openai_writer *w, openai_result *result) {
    /* What is in the cache is known with the first token; the last event but one repeats the usage. */
    const openai_usage usage = {.prompt_tokens = (int64_t)result->request->prompts[0].tokens.n};
    writer_begin_typed_event(w, "message_start");
    write_message(w, "message", result, true, &usage);
    writer_end_typed_event(w);
    writer_begin_typed_event(w, "ping");
    writer_end_typed_event(w);
}

void anthropic_stream_event(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event) {
    (void)i; /* there is one prompt, and one choice */
    (void)event;
    openai_change change;
    while (openai_next_change(result, &change)) put_change(w, result, &change);
}

void anthropic_stream_end(openai_writer *w, openai_result *result, const openai_error *error) {
    if (error) {
        writer_begin_event(w, "error");
        anthropic_write_error(w, NULL, error);
        writer_end_event(w);
        return;
    }
    const openai_usage usage = openai_result_usage(result);
    writer_begin_typed_event(w, "message_delta");
    writer_open(w, "delta", '{');
    write_stop(w, result);
    writer_close(w);
    write_usage(w, result->request, &usage);
    writer_end_typed_event(w);
    writer_begin_typed_event(w, "message_stop");
    writer_end_typed_event(w);
}
