/* Writes whole answers and the chunks of streams. */
#include "openai.h"

void openai_write_usage(openai_writer *w, const char *key, const openai_usage *usage) {
    writer_open(w, key, '{');
    writer_integer(w, "prompt_tokens", usage->prompt_tokens);
    writer_integer(w, "completion_tokens", usage->completion_tokens);
    writer_integer(w, "total_tokens", usage->prompt_tokens + usage->completion_tokens);
    writer_open(w, "prompt_tokens_details", '{');
    writer_integer(w, "cached_tokens", usage->cached_tokens);
    writer_close(w);
    writer_close(w);
}

/* The members that every answer and chunk begins with. */
static void write_head(openai_writer *w, const openai_result *result, const char *object) {
    writer_string(w, "id", result->id);
    writer_string(w, "object", object);
    writer_integer(w, "created", result->created);
    writer_string(w, "model", result->context->model_name);
}

/* The token ids from index `first` on. */
static void write_ids(openai_writer *w, const char *key, const cl_token_list *list, size_t first) {
    writer_open(w, key, '[');
    for (size_t i = first; i < list->n; i++) writer_integer(w, NULL, list->ids[i]);
    writer_close(w);
}

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
    if (r->endpoint == OPENAI_CHAT) {
        writer_open(w, "message", '{');
        writer_string(w, "role", "assistant");
        writer_bytes(w, "content", c->text, c->text_size);
        writer_null(w, "refusal");
        writer_close(w);
    } else {
        write_text(w, r->echo ? prompt : NULL, c->text, c->text_size);
    }
    openai_write_logprobs(w, result, i, 0, r->echo, &offset);
    if (r->n_prompt_top >= 0 && r->endpoint == OPENAI_COMPLETION)
        openai_write_prompt_logprobs(w, result, i / (size_t)r->params.n);
    writer_string(w, "finish_reason", openai_finish_name(c->finish));
    if (r->return_token_ids) {
        write_ids(w, "token_ids", &c->tokens, 0);
        write_ids(w, "prompt_token_ids", &prompt->tokens, 0);
    }
    writer_close(w);
}

void openai_write_answer(openai_writer *w, const char *key, const openai_result *result) {
    const openai_usage usage = openai_result_usage(result);
    const size_t n = (size_t)result->request->n, n_generated = (size_t)result->request->params.n;
    writer_open(w, key, '{');
    write_head(w, result, result->request->endpoint == OPENAI_CHAT ? "chat.completion" : "text_completion");
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

bool openai_has_chunk(const openai_request *r, const cl_engine_event *event) {
    if (event->prompt) return false; /* the choice's first chunk reports the prompt */
    return event->text_size || event->finish != CL_ENGINE_RUNNING ||
           (event->token >= 0 && (r->logprobs || r->return_token_ids));
}

/* What a chunk of choice c, with index `index` in the answer, reports; first: it is the choice's first chunk. */
static void write_piece(openai_writer *w, const openai_result *result, size_t index, openai_choice *c, bool first,
                        const cl_engine_event *event) {
    const openai_request *r = result->request;
    const openai_prompt *prompt = &r->prompts[index / (size_t)r->params.n];
    const bool has_token = event->token >= 0, echo = first && r->echo;
    const size_t first_token = c->tokens.n - has_token;
    writer_open(w, NULL, '{');
    writer_integer(w, "index", (int64_t)index);
    if (r->endpoint == OPENAI_CHAT) {
        writer_open(w, "delta", '{');
        if (first) writer_string(w, "role", "assistant");
        if (first || event->text_size) writer_bytes(w, "content", event->text, event->text_size);
        writer_close(w);
    } else {
        write_text(w, echo ? prompt : NULL, event->text, event->text_size);
    }
    if (has_token || echo)
        openai_write_logprobs(w, result, index, first_token, echo, &c->text_offset);
    else
        writer_null(w, "logprobs");
    writer_string(w, "finish_reason", openai_finish_name(event->finish));
    if (r->return_token_ids) {
        write_ids(w, "token_ids", &c->tokens, first_token);
        if (first) write_ids(w, "prompt_token_ids", &prompt->tokens, 0);
    }
    writer_close(w);
}

static void begin_chunk(openai_writer *w, const openai_result *result) {
    writer_open(w, NULL, '{');
    write_head(w, result, result->request->endpoint == OPENAI_CHAT ? "chat.completion.chunk" : "text_completion");
    writer_open(w, "choices", '[');
}

void openai_write_chunk(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event) {
    const openai_request *r = result->request;
    const size_t index = i * (size_t)r->params.n + (size_t)event->choice;
    openai_choice *c = &result->choices[index];
    begin_chunk(w, result);
    write_piece(w, result, index, c, !c->begun, event);
    writer_close(w);
    c->begun = true;
    openai_usage so_far = result->usage[i];
    so_far.completion_tokens = (int64_t)c->tokens.n;
    if (r->continuous_usage)
        openai_write_usage(w, "usage", &so_far);
    else if (r->include_usage)
        writer_null(w, "usage");
    if (r->timings_per_token || (r->timings && event->finish != CL_ENGINE_RUNNING)) openai_write_timings(w, result);
    writer_close(w);
}

void openai_write_usage_chunk(openai_writer *w, const openai_result *result) {
    const openai_usage usage = openai_result_usage(result);
    begin_chunk(w, result);
    writer_close(w);
    openai_write_usage(w, "usage", &usage);
    writer_close(w);
}
