/* Writes whole answers and the chunks of streams. */
#include "json.h"
#include "openai.h"

void openai_write_usage(openai_writer *w, const char *key, const openai_usage *usage) {
    writer_open(w, key, '{');
    writer_integer(w, "prompt_tokens", usage->prompt_tokens);
    writer_integer(w, "completion_tokens", usage->completion_tokens);
    writer_integer(w, "total_tokens", usage->prompt_tokens + usage->completion_tokens);
    writer_value(w, "prompt_tokens_details", json_pack("{s:I}", "cached_tokens", (json_int_t)usage->cached_tokens));
    if (usage->reasoning_tokens > 0)
        writer_value(w, "completion_tokens_details",
                     json_pack("{s:I}", "reasoning_tokens", (json_int_t)usage->reasoning_tokens));
    writer_close(w);
}

void openai_write_head(openai_writer *w, const openai_result *result, const char *object) {
    writer_string(w, "id", result->id);
    writer_string(w, "object", object);
    writer_integer(w, "created", result->created);
    writer_string(w, "model", result->context->model_name);
}

/* ---- Messages ---- */

static void write_reasoning(openai_writer *w, const char *text, size_t size) {
    writer_bytes(w, "reasoning_content", text, size); /* DeepSeek's name, */
    writer_bytes(w, "reasoning", text, size);         /* and OpenRouter's */
}

/* Write the member "function" of a call: its name, unless that is NULL, and arguments [size]. */
static void write_function(openai_writer *w, const openai_text *name, const char *arguments, size_t size) {
    writer_open(w, "function", '{');
    if (name) writer_bytes(w, "name", name->data, name->size);
    writer_bytes(w, "arguments", arguments, size);
    writer_close(w);
}

void openai_write_split(openai_writer *w, const openai_choice *c) {
    if (c->reasoning.size > 0) write_reasoning(w, c->reasoning.data, c->reasoning.size);
    if (c->n_calls == 0) return;
    writer_open(w, "tool_calls", '[');
    for (size_t i = 0; i < c->n_calls; i++) {
        const openai_call *call = &c->calls[i];
        writer_open(w, NULL, '{');
        writer_string(w, "id", call->id);
        writer_string(w, "type", "function");
        write_function(w, &call->name, call->arguments.data, call->arguments.size);
        writer_close(w);
    }
    writer_close(w);
}

void openai_write_arguments(openai_writer *w, const char *key, cl_str arguments) {
    openai_error error = {0};
    json_t *object = arguments.size > 0 ? openai_json_parse("arguments", arguments.data, arguments.size, &error) : NULL;
    if (error.status >= 500) writer_fail(w);
    const bool is_object = json_is_object(object);
    if (!is_object) json_decref(object);
    writer_value(w, key, is_object ? object : json_object());
}

static void write_message(openai_writer *w, const openai_choice *c) {
    writer_open(w, "message", '{');
    writer_string(w, "role", "assistant");
    if (c->n_calls > 0 && c->text.size == 0)
        writer_null(w, "content");
    else
        writer_bytes(w, "content", c->text.data, c->text.size);
    writer_null(w, "refusal");
    openai_write_split(w, c);
    writer_close(w);
}

/* ---- Whole answers ---- */

/* A choice's text, after that of its prompt unless `echoed` is NULL. */
static void write_text(openai_writer *w, const openai_prompt *echoed, const char *text, size_t size) {
    if (echoed)
        writer_joined(w, "text", echoed->text, echoed->text_size, text, size);
    else
        writer_bytes(w, "text", text, size);
}

/* Write choice i of the result, with index `index` in the answer. */
static void write_choice(openai_writer *w, const openai_result *result, size_t i, size_t index) {
    const openai_request *r = result->request;
    const openai_choice *c = &result->choices[i];
    const openai_prompt *prompt = &r->prompts[i / (size_t)r->params.n];
    int64_t offset = 0;
    writer_open(w, NULL, '{');
    writer_integer(w, "index", (int64_t)index);
    if (r->endpoint == OPENAI_CHAT)
        write_message(w, c);
    else
        write_text(w, r->echo ? prompt : NULL, c->text.data, c->text.size);
    openai_write_logprobs(w, result, i, 0, r->echo, &offset);
    if (r->n_prompt_top >= 0 && r->endpoint == OPENAI_COMPLETION)
        openai_write_prompt_logprobs(w, result, i / (size_t)r->params.n);
    writer_string(w, "finish_reason", openai_finish_reason(c));
    if (r->return_token_ids) {
        writer_integers(w, "token_ids", c->tokens.ids, c->tokens.n);
        writer_integers(w, "prompt_token_ids", prompt->tokens.ids, prompt->tokens.n);
    }
    writer_close(w);
}

void openai_write_answer(openai_writer *w, const char *key, const openai_result *result) {
    const openai_usage usage = openai_result_usage(result);
    const size_t n = (size_t)result->request->n, n_generated = (size_t)result->request->params.n;
    writer_open(w, key, '{');
    openai_write_head(w, result, result->request->endpoint == OPENAI_CHAT ? "chat.completion" : "text_completion");
    writer_open(w, "choices", '[');
    for (size_t i = 0; i < result->n_choices; i++) {
        const size_t prompt = i / n_generated, choice = i % n_generated;
        if (choice < n) write_choice(w, result, i, prompt * n + choice);
    }
    writer_close(w);
    openai_write_usage(w, "usage", &usage);
    if (result->request->n_prompt_top >= 0 && result->request->endpoint == OPENAI_CHAT)
        openai_write_prompt_logprobs(w, result, 0);
    if (result->request->timings) openai_write_timings(w, result);
    writer_close(w);
}

/* ---- Streams ---- */

size_t openai_n_chunks(const openai_result *result, const cl_engine_event *event) {
    const openai_request *r = result->request;
    if (event->kind == CL_EVENT_PROMPT) return 0; /* the choice's first chunk reports the prompt */
    if (result->n_deltas > 0) return result->n_deltas;
    return event->kind == CL_EVENT_END || r->logprobs || r->return_token_ids;
}

/* Write the text or call that a delta of choice c adds to its message; first: it is the message's first. */
static void write_delta(openai_writer *w, const openai_choice *c, const openai_delta *delta, bool first) {
    writer_open(w, "delta", '{');
    if (first) writer_string(w, "role", "assistant");
    if (delta->kind == CL_REPLY_CONTENT && (first || delta->size > 0)) writer_bytes(w, "content", delta->text, delta->size);
    if (delta->kind != CL_REPLY_CONTENT && first) writer_null(w, "content");
    if (delta->kind == CL_REPLY_REASONING) write_reasoning(w, delta->text, delta->size);
    if (delta->kind == CL_REPLY_CALL || delta->kind == CL_REPLY_ARGUMENTS) {
        const openai_call *call = delta->kind == CL_REPLY_CALL ? &c->calls[delta->call] : NULL;
        writer_open(w, "tool_calls", '[');
        writer_open(w, NULL, '{');
        writer_integer(w, "index", (int64_t)delta->call);
        if (call) writer_string(w, "id", call->id);
        if (call) writer_string(w, "type", "function");
        write_function(w, call ? &call->name : NULL, delta->text, call ? 0 : delta->size);
        writer_close(w);
        writer_close(w);
    }
    writer_close(w);
}

/*
 * Write what chunk k of an event reports. The event is one of choice c, whose index in the answer is `index`. The first chunk
 * of an event reports its token, and the last chunk its end.
 */
static void write_event(openai_writer *w, const openai_result *result, size_t index, openai_choice *c,
                        const cl_engine_event *event, size_t k) {
    static const openai_delta nothing = {.kind = CL_REPLY_CONTENT, .text = ""};
    const openai_request *r = result->request;
    const openai_prompt *prompt = &r->prompts[index / (size_t)r->params.n];
    const openai_delta *delta = k < result->n_deltas ? &result->deltas[k] : &nothing;
    const bool first = !c->begun, has_token = event->kind == CL_EVENT_TOKEN && k == 0, echo = first && r->echo;
    const size_t first_token = c->tokens.n - has_token;
    writer_open(w, NULL, '{');
    writer_integer(w, "index", (int64_t)index);
    if (r->endpoint == OPENAI_CHAT)
        write_delta(w, c, delta, first);
    else
        write_text(w, echo ? prompt : NULL, delta->text, delta->size);
    if (has_token || echo)
        openai_write_logprobs(w, result, index, first_token, echo, &c->text_offset);
    else
        writer_null(w, "logprobs");
    const bool ends = event->kind == CL_EVENT_END && k + 1 >= result->n_deltas;
    writer_string(w, "finish_reason", ends ? openai_finish_reason(c) : NULL);
    if (r->return_token_ids) {
        writer_integers(w, "token_ids", has_token ? &c->tokens.ids[first_token] : NULL, has_token);
        if (first) writer_integers(w, "prompt_token_ids", prompt->tokens.ids, prompt->tokens.n);
    }
    writer_close(w);
}

static void begin_chunk(openai_writer *w, const openai_result *result) {
    writer_open(w, NULL, '{');
    openai_write_head(w, result, result->request->endpoint == OPENAI_CHAT ? "chat.completion.chunk" : "text_completion");
    writer_open(w, "choices", '[');
}

void openai_write_chunk(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event, size_t k) {
    const openai_request *r = result->request;
    const size_t index = i * (size_t)r->params.n + (size_t)event->choice;
    openai_choice *c = &result->choices[index];
    begin_chunk(w, result);
    write_event(w, result, index, c, event, k);
    writer_close(w);
    c->begun = true;
    openai_usage so_far = result->usage[i];
    so_far.completion_tokens = (int64_t)c->tokens.n;
    so_far.reasoning_tokens = c->reasoning_tokens;
    if (r->continuous_usage)
        openai_write_usage(w, "usage", &so_far);
    else if (r->include_usage)
        writer_null(w, "usage");
    if (r->timings_per_token || (r->timings && event->kind == CL_EVENT_END && k + 1 >= result->n_deltas))
        openai_write_timings(w, result);
    writer_close(w);
}

void openai_write_usage_chunk(openai_writer *w, const openai_result *result) {
    const openai_usage usage = openai_result_usage(result);
    begin_chunk(w, result);
    writer_close(w);
    openai_write_usage(w, "usage", &usage);
    writer_close(w);
}
