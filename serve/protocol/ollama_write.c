/* Writes answers, errors, streams and facts about the model as Ollama's endpoints have them. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "ollama.h"
#include "parse.h"

/* ---- Errors ---- */

void ollama_write_error(openai_writer *w, const char *key, const openai_error *error) {
    char text[OPENAI_ERROR_TEXT];
    writer_open(w, key, '{');
    writer_string(w, "error", openai_error_text(error, text));
    writer_close(w);
}

/* ---- Times ---- */

/* Seconds since 1970 as RFC 3339 has them. */
static void write_date(openai_writer *w, const char *key, int64_t seconds) {
    char text[32] = "";
    const time_t at = (time_t)seconds;
    struct tm utc;
    if (gmtime_r(&at, &utc)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    writer_string(w, key, text);
}

/* A time in nanoseconds; at least 1, since clients divide by it. */
static void write_duration(openai_writer *w, const char *key, double seconds) {
    writer_integer(w, key, (int64_t)fmax(1, 1e9 * seconds));
}

/* ---- Answers ---- */

/* What the model says, in a whole answer or in a part of a stream. */
typedef struct said {
    cl_str content, thinking;
    const openai_call *calls; /* [n_calls] */
    size_t n_calls, first;    /* the index of the first one in the answer */
} said;

static void write_calls(openai_writer *w, const said *s) {
    writer_open(w, "tool_calls", '[');
    for (size_t i = 0; i < s->n_calls; i++) {
        const openai_call *call = &s->calls[i];
        writer_open(w, NULL, '{');
        writer_string(w, "id", call->id);
        writer_open(w, "function", '{');
        writer_integer(w, "index", (int64_t)(s->first + i));
        writer_bytes(w, "name", call->name.data, call->name.size);
        openai_write_arguments(w, "arguments", (cl_str){call->arguments.data, call->arguments.size});
        writer_close(w);
        writer_close(w);
    }
    writer_close(w);
}

static void write_said(openai_writer *w, bool as_message, const said *s) {
    if (as_message) {
        writer_open(w, "message", '{');
        writer_string(w, "role", "assistant");
    }
    writer_bytes(w, as_message ? "content" : "response", s->content.data, s->content.size);
    if (s->thinking.size > 0) writer_bytes(w, "thinking", s->thinking.data, s->thinking.size);
    if (s->n_calls > 0) write_calls(w, s);
    if (as_message) writer_close(w);
}

/* Open an answer, or a part of one, that says this. */
static void open_answer(openai_writer *w, const char *key, const openai_result *result, bool as_message, const said *s) {
    writer_open(w, key, '{');
    writer_string(w, "model", result->context->model_name);
    write_date(w, "created_at", result->created);
    write_said(w, as_message, s);
}

/* Write the member "context": the conversation as tokens, which a later body of /api/generate may repeat. */
static void write_context(openai_writer *w, const openai_result *result) {
    const cl_token_list *lists[] = {&result->request->prompts[0].tokens, &result->choices[0].tokens};
    writer_open(w, "context", '[');
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < lists[i]->n; k++) writer_integer(w, NULL, lists[i]->ids[k]);
    writer_close(w);
}

/* The prompt's time goes from the request's arrival to its first token, as in openai_write_timings. */
static void write_metrics(openai_writer *w, const openai_result *result) {
    const openai_usage usage = openai_result_usage(result);
    const openai_times *t = &result->times;
    write_duration(w, "total_duration", t->latest - t->begun);
    writer_integer(w, "load_duration", 0);
    writer_integer(w, "prompt_eval_count", usage.prompt_tokens);
    if (result->request->params.pooling != CL_ENGINE_POOL_NONE) return;
    write_duration(w, "prompt_eval_duration", t->first > 0 ? t->first - t->begun : 0);
    writer_integer(w, "eval_count", usage.completion_tokens);
    write_duration(w, "eval_duration", t->last - t->first);
}

/* Write how the only choice ended (NULL: the request had no prompt), and close the answer. */
static void close_answer(openai_writer *w, const openai_result *result, bool as_message, const openai_choice *c) {
    writer_value(w, "done", json_true());
    writer_string(w, "done_reason", c ? openai_finish_name(c->finish) : "load");
    if (c && !as_message && result->request->endpoint == OPENAI_CHAT) write_context(w, result);
    if (c) write_metrics(w, result);
    writer_close(w);
}

static void write_answer(openai_writer *w, const char *key, const openai_result *result, bool as_message) {
    const openai_choice *c = result->request->n_prompts > 0 ? &result->choices[0] : NULL;
    const said all = c ? (said){.content = {c->text.data, c->text.size},
                                .thinking = {c->reasoning.data, c->reasoning.size},
                                .calls = c->calls,
                                .n_calls = c->n_calls}
                       : (said){0};
    open_answer(w, key, result, as_message, &all);
    if (c && result->request->logprobs) openai_write_token_logprobs(w, "logprobs", result, &c->logprobs, 0);
    close_answer(w, result, as_message, c);
}

void ollama_write_message(openai_writer *w, const char *key, const openai_result *result) {
    write_answer(w, key, result, true);
}

void ollama_write_text(openai_writer *w, const char *key, const openai_result *result) { write_answer(w, key, result, false); }

/* ---- Streams ---- */

void ollama_stream_begin(openai_writer *w, openai_result *result) {
    (void)w;
    (void)result;
}

/* Write a part of a stream; with_token: with the logprobs of the last token. */
static void write_part(openai_writer *w, const openai_result *result, bool as_message, const said *s, bool with_token) {
    const openai_logprobs *l = &result->choices[0].logprobs;
    open_answer(w, NULL, result, as_message, s);
    if (with_token) openai_write_token_logprobs(w, "logprobs", result, l, l->n - 1);
    writer_value(w, "done", json_false());
    writer_close(w);
    writer_raw(w, "\n");
}

/* What a change to the items says: text that was added, or a call that has ended. */
static said said_by(const openai_result *result, const openai_change *change) {
    const openai_choice *c = &result->choices[0];
    const openai_item *item = &c->items[change->item];
    if (item->kind == CL_REPLY_CALL && change->kind == OPENAI_ITEM_ENDS)
        return (said){.calls = &c->calls[item->call], .n_calls = 1, .first = item->call};
    if (item->kind == CL_REPLY_CALL || change->kind != OPENAI_ITEM_GROWS) return (said){0};
    return item->kind == CL_REPLY_REASONING ? (said){.thinking = change->text} : (said){.content = change->text};
}

/* Logprobs of a token come with what it adds to the text, or alone. */
static void stream_event(openai_writer *w, openai_result *result, bool as_message, const cl_engine_event *event) {
    bool with_token = result->request->logprobs && event->kind == CL_EVENT_TOKEN;
    openai_change change;
    while (openai_next_change(result, &change)) {
        const said s = said_by(result, &change);
        if (s.content.size + s.thinking.size + s.n_calls == 0) continue;
        write_part(w, result, as_message, &s, with_token);
        with_token = false;
    }
    if (with_token) write_part(w, result, as_message, &(said){0}, true);
}

void ollama_stream_message(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event) {
    (void)i; /* there is one prompt */
    stream_event(w, result, true, event);
}

void ollama_stream_text(openai_writer *w, openai_result *result, size_t i, const cl_engine_event *event) {
    (void)i;
    stream_event(w, result, false, event);
}

static void stream_end(openai_writer *w, const openai_result *result, bool as_message, const openai_error *error) {
    if (error) {
        ollama_write_error(w, NULL, error);
    } else {
        open_answer(w, NULL, result, as_message, &(said){0});
        close_answer(w, result, as_message, &result->choices[0]);
    }
    writer_raw(w, "\n");
}

void ollama_end_message(openai_writer *w, openai_result *result, const openai_error *error) {
    stream_end(w, result, true, error);
}

void ollama_end_text(openai_writer *w, openai_result *result, const openai_error *error) {
    stream_end(w, result, false, error);
}

/* ---- Embeddings ---- */

void ollama_write_embed(openai_writer *w, const char *key, const openai_result *result) {
    writer_open(w, key, '{');
    writer_string(w, "model", result->context->model_name);
    writer_open(w, "embeddings", '[');
    for (size_t i = 0; i < result->request->n_prompts; i++) openai_write_embedding(w, NULL, result, i);
    writer_close(w);
    if (result->request->n_prompts > 0) write_metrics(w, result);
    writer_close(w);
}

void ollama_write_embedding(openai_writer *w, const char *key, const openai_result *result) {
    writer_open(w, key, '{');
    if (result->request->n_prompts > 0)
        openai_write_embedding(w, "embedding", result, 0);
    else
        writer_integers(w, "embedding", NULL, 0);
    writer_close(w);
}

/* ---- The model ---- */

/* A number of weights, such as "134.5M". */
static void write_weights(openai_writer *w, const char *key, double n) {
    char text[32];
    const bool is_large = n >= 1e9;
    snprintf(text, sizeof text, "%.1f%c", n / (is_large ? 1e9 : 1e6), is_large ? 'B' : 'M');
    writer_string(w, key, text);
}

static void write_details(openai_writer *w, const cl_model *m) {
    writer_open(w, "details", '{');
    writer_string(w, "parent_model", "");
    writer_string(w, "format", strncmp(cl_model_file_format(m->file), "GGUF", 4) == 0 ? "gguf" : "safetensors");
    writer_string(w, "family", m->params.arch->name);
    writer_open(w, "families", '[');
    writer_string(w, NULL, m->params.arch->name);
    writer_close(w);
    write_weights(w, "parameter_size", (double)cl_model_file_n_elements(m->file));
    writer_string(w, "quantization_level", cl_tensor_type_name(cl_model_file_main_type(m->file)));
    writer_close(w);
}

static void write_capabilities(openai_writer *w, const openai_context *context) {
    cl_fim_tokens ignored;
    const cl_chat *chat = context->chat;
    const struct {
        const char *name;
        bool has;
    } all[] = {
        {"embedding", context->model->params.embeddings_only},
        {"completion", !context->model->params.embeddings_only},
        {"tools", chat},
        {"thinking", chat && cl_chat_reply(chat)->think[0]},
        {"insert", cl_tokenizer_fim(context->model->tok, &ignored)},
    };
    writer_open(w, "capabilities", '[');
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].has) writer_string(w, NULL, all[i].name);
    writer_close(w);
}

/* Write a model under a name, which has a tag in Ollama. It is in memory for as long as the server runs. */
static void write_model(openai_writer *w, const openai_context *context, const char *name) {
    const char *tag = strchr(name, ':') ? "" : OPENAI_LATEST;
    char digest[20];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)context->model->sample);
    writer_open(w, NULL, '{');
    writer_joined(w, "name", name, strlen(name), tag, strlen(tag));
    writer_joined(w, "model", name, strlen(name), tag, strlen(tag));
    write_date(w, "modified_at", context->started_at);
    writer_integer(w, "size", (int64_t)cl_model_file_bytes(context->model->file));
    writer_string(w, "digest", digest);
    write_details(w, context->model);
    write_capabilities(w, context);
    writer_string(w, "expires_at", "9999-12-31T23:59:59Z");
    writer_integer(w, "size_vram", 0);
    writer_integer(w, "context_length", context->n_ctx);
    writer_close(w);
}

void ollama_write_models(openai_writer *w, const openai_context *context) {
    const openai_names *names = context->names;
    writer_open(w, NULL, '{');
    writer_open(w, "models", '[');
    if (!names) write_model(w, context, context->model_name);
    for (size_t i = 0; names && i < names->n; i++) write_model(w, context, names->names[i]);
    writer_close(w);
    writer_close(w);
}

/* Write the metadata that clients read. The context's length is what a request may use of it here. */
static void write_metadata(openai_writer *w, const openai_context *context) {
    const cl_model_params *p = &context->model->params;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"context_length", context->n_ctx}, {"embedding_length", p->n_embd}, {"block_count", p->n_layers}};
    writer_open(w, "model_info", '{');
    writer_string(w, "general.architecture", p->arch->name);
    writer_string(w, "general.basename", context->model_name);
    writer_integer(w, "general.parameter_count", cl_model_file_n_elements(context->model->file));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        writer_integer(w, path_of("%s.%s", p->arch->name, numbers[i].name).text, numbers[i].value);
    writer_close(w);
}

/* Whether the model has the name in a body: `model`, or `name`, as older clients call it. */
static bool check_name(const openai_context *context, const json_t *body, openai_error *error) {
    const json_t *value = field_get(body, "name");
    const char *name;
    if (!openai_check_body(context, body, error)) return false;
    if (field_get(body, "model") || !value) return true;
    return field_name(value, "name", &name, error) &&
           (openai_names_have(context->names, name) || openai_fail_model(error, name, context->names));
}

bool ollama_show(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error) {
    const cl_str template = context->chat ? cl_chat_text(context->chat, false) : (cl_str){0};
    if (!check_name(context, body, error)) return false;
    writer_open(w, NULL, '{');
    writer_string(w, "parameters", path_of("num_ctx %d", context->n_ctx).text);
    writer_bytes(w, "template", template.data, template.size);
    write_details(w, context->model);
    write_metadata(w, context);
    write_capabilities(w, context);
    write_date(w, "modified_at", context->started_at);
    writer_close(w);
    return true;
}
