/*
 * The dialects of llama-server's own endpoints: /completion, /infill and /embeddings, whose bodies are those of other dialects
 * with llama.cpp's defaults, and whose answers have llama-server's members. Also its /apply-template and /props.
 */
#include <stdlib.h>
#include <string.h>

#include "dialect.h"
#include "messages.h"
#include "parse.h"

/* ---- Bodies ---- */

static bool parse_completion(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const openai_context local = openai_local_context(context);
    if (!openai_request_parse(&local, OPENAI_COMPLETION, body, r, error)) return false;
    r->return_tokens = r->return_token_ids;
    r->return_token_ids = false; /* no ids of the prompt are repeated, but its text */
    if (field_bool(body, "return_tokens", &r->return_tokens, error) && openai_set_texts(&local, r, error) &&
        openai_check_repeated(r, error))
        return true;
    openai_request_free(r);
    return false;
}

static bool parse_embedding(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    const openai_context local = openai_local_context(context);
    return openai_embedding_parse(&local, body, r, error);
}

/* ---- Gaps ---- */

static bool add_id(cl_token_list *tokens, int32_t id, openai_error *error) {
    cl_error cause;
    return cl_token_list_add(tokens, id, &cause) == CL_OK || openai_fail_from(error, NULL, &cause);
}

/* Append the tokens of a field's text, in which the names of special tokens are text. */
static bool add_text(const openai_context *context, const json_t *body, const char *name, bool begins, cl_token_list *tokens,
                     openai_error *error) {
    const json_t *value = field_get(body, name);
    const size_t size = json_string_length(value);
    cl_error cause;
    if (!value) return true;
    if (!json_is_string(value)) return openai_refuse(error, name, "must be a string, not %s", field_kind(value));
    return openai_check_size(context, name, size, error) &&
           (cl_tokenizer_encode(context->model->tok, json_string_value(value), size, begins, tokens, &cause) == CL_OK ||
            openai_fail_from(error, name, &cause));
}

/* The prompt for the text between input_prefix and input_suffix that begins with `prompt`. */
static bool write_gap(const openai_context *context, const json_t *body, cl_token_list *tokens, openai_error *error) {
    const cl_tokenizer *tok = context->model->tok;
    cl_fim_tokens fim;
    cl_error cause;
    if (field_get_requested(body, "input_extra"))
        return openai_refuse(error, "input_extra", "is not supported by this server; put the text before 'input_prefix'");
    if (!cl_tokenizer_fim(tok, &fim)) return openai_fail_gaps(error, "input_suffix");
    if (cl_tokenizer_add_leading(tok, tokens, &cause) != CL_OK) return openai_fail_from(error, NULL, &cause);
    return add_id(tokens, fim.prefix, error) && add_text(context, body, "input_prefix", true, tokens, error) &&
           add_text(context, body, "prompt", false, tokens, error) && add_id(tokens, fim.suffix, error) &&
           add_text(context, body, "input_suffix", false, tokens, error) && add_id(tokens, fim.middle, error);
}

/* NULL: memory is lacking. */
static json_t *array_of(const cl_token_list *tokens) {
    json_t *array = json_array();
    for (size_t i = 0; array && i < tokens->n; i++) {
        if (json_array_append_new(array, json_integer(tokens->ids[i])) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static bool parse_infill(const openai_context *context, const json_t *body, openai_request *r, openai_error *error) {
    cl_token_list tokens = {0};
    *r = (openai_request){.endpoint = OPENAI_COMPLETION};
    bool ok = openai_check_body(context, body, error) && write_gap(context, body, &tokens, error) &&
              openai_check_count(context, "prompt", tokens.n, error);
    json_t *completion = ok ? json_copy((json_t *)body) : NULL;
    if (ok && (!completion || json_object_set_new(completion, "prompt", array_of(&tokens)) != 0))
        ok = openai_fail_memory(error);
    ok = ok && parse_completion(context, completion, r, error);
    json_decref(completion);
    cl_token_list_free(&tokens);
    return ok;
}

/* ---- Answers ---- */

/* Write the members that say how a choice ended. */
static void write_end(openai_writer *w, const openai_result *result, const openai_choice *c) {
    const bool word = c->finish == CL_ENGINE_STOP && c->stop >= 0;
    writer_string(w, "stop_type", word ? "word" : c->finish == CL_ENGINE_STOP ? "eos" : "limit");
    writer_string(w, "stopping_word", word ? result->request->stop[c->stop] : "");
}

/* Write how tokens are drawn; window: as in cl_engine_request. */
static void write_sampling(openai_writer *w, const cl_sampler_params *p, int32_t window) {
    writer_value(w, "temperature", writer_short_real(p->temperature));
    writer_integer(w, "top_k", p->top_k);
    writer_value(w, "top_p", writer_short_real(p->top_p));
    writer_value(w, "min_p", writer_short_real(p->min_p));
    writer_value(w, "repeat_penalty", writer_short_real(p->repetition_penalty));
    writer_integer(w, "repeat_last_n", window == INT32_MAX ? -1 : window);
    writer_value(w, "presence_penalty", writer_short_real(p->presence_penalty));
    writer_value(w, "frequency_penalty", writer_short_real(p->frequency_penalty));
}

static void write_settings(openai_writer *w, const openai_request *r, size_t prompt) {
    const cl_engine_request *p = &r->params;
    writer_open(w, "generation_settings", '{');
    writer_integer(w, "seed", (int64_t)p->sampling.seed);
    write_sampling(w, &p->sampling, p->penalty_window);
    writer_integer(w, "n_predict", openai_max_tokens(r, prompt));
    writer_value(w, "ignore_eos", json_boolean(p->ignore_eos));
    writer_value(w, "stream", json_boolean(r->stream));
    writer_close(w);
}

/* A token with its logprob, and its text. */
static void write_logprob(openai_writer *w, const openai_result *result, const cl_sampler_logprob *p) {
    size_t size;
    char *text = openai_text_of(result->context->model->tok, &p->id, 1, &size);
    writer_integer(w, "id", p->id);
    text ? writer_bytes(w, "token", text, size) : writer_fail(w);
    text ? writer_byte_values(w, "bytes", text, size) : writer_fail(w);
    writer_real(w, "logprob", openai_reported(p->logprob));
    free(text);
}

/* Write the member "completion_probabilities" of n_probs: those of tokens from `first` on. */
static void write_logprobs(openai_writer *w, const openai_result *result, const openai_choice *c, size_t first) {
    const openai_logprobs *all = &c->logprobs;
    writer_open(w, "completion_probabilities", '[');
    for (size_t i = first; i < all->n; i++) {
        writer_open(w, NULL, '{');
        write_logprob(w, result, &all->chosen[i]);
        writer_open(w, "top_logprobs", '[');
        for (int32_t k = 0; k < all->n_top[i] && k < result->request->n_top; k++) {
            writer_open(w, NULL, '{');
            write_logprob(w, result, &all->top[i * (size_t)result->request->params.n_top + (size_t)k]);
            writer_close(w);
        }
        writer_close(w);
        writer_close(w);
    }
    writer_close(w);
}

static void write_tokens(openai_writer *w, const openai_request *r, const openai_choice *c, size_t first) {
    const size_t n = r->return_tokens ? c->tokens.n - first : 0;
    writer_integers(w, "tokens", c->tokens.ids + (n > 0 ? first : 0), n);
}

/* Write the members of a choice that has ended; of a stream, whose text was sent, it has none. */
static void write_choice(openai_writer *w, const openai_result *result, size_t i) {
    const openai_request *r = result->request;
    const openai_choice *c = &result->choices[i];
    const size_t prompt = i / (size_t)r->params.n;
    writer_open(w, NULL, '{');
    writer_integer(w, "index", (int64_t)i);
    writer_bytes(w, "content", r->stream ? "" : c->text.data, r->stream ? 0 : c->text.size);
    write_tokens(w, r, c, r->stream ? c->tokens.n : 0);
    writer_integer(w, "id_slot", -1);
    writer_value(w, "stop", json_true());
    writer_string(w, "model", result->context->model_name);
    writer_integer(w, "tokens_predicted", (int64_t)c->tokens.n);
    writer_integer(w, "tokens_evaluated", result->usage[prompt].prompt_tokens);
    write_settings(w, r, prompt);
    writer_bytes(w, "prompt", r->prompts[prompt].text, r->prompts[prompt].text_size);
    writer_value(w, "has_new_line", json_boolean(c->text.size > 0 && memchr(c->text.data, '\n', c->text.size)));
    writer_value(w, "truncated", json_false());
    write_end(w, result, c);
    writer_integer(w, "tokens_cached", result->usage[prompt].cached_tokens);
    openai_write_timings(w, result);
    if (r->logprobs && !r->stream) write_logprobs(w, result, c, 0);
    writer_close(w);
}

/* One object, or for several choices an array. Lines of a batch, which have keys, are none of this dialect. */
static void write_answer(openai_writer *w, const char *key, const openai_result *result) {
    const openai_request *r = result->request;
    const size_t n = r->n_prompts * (size_t)r->n;
    if (n > 1) writer_open(w, key, '[');
    for (size_t i = 0; i < n; i++) write_choice(w, result, i / (size_t)r->n * (size_t)r->params.n + i % (size_t)r->n);
    if (n > 1) writer_close(w);
}

static void write_embeddings(openai_writer *w, const char *key, const openai_result *result) {
    writer_open(w, key, '[');
    for (size_t i = 0; i < result->request->n_prompts; i++) {
        writer_open(w, NULL, '{');
        writer_integer(w, "index", (int64_t)i);
        writer_open(w, "embedding", '['); /* of vectors, of which there is one unless all tokens have theirs */
        openai_write_embedding(w, NULL, result, i);
        writer_close(w);
        writer_close(w);
    }
    writer_close(w);
}

/* ---- Streams ---- */

static void stream_begin(openai_writer *w, openai_result *result) {
    (void)w;
    (void)result;
}

/* Write the text and the token that an event has added. */
static void write_part(openai_writer *w, const openai_result *result, size_t i, const cl_engine_event *event) {
    const openai_request *r = result->request;
    const openai_choice *c = &result->choices[i];
    const bool has_token = event->kind == CL_EVENT_TOKEN;
    const openai_delta *d = result->n_deltas > 0 ? result->deltas : NULL;
    if (!has_token && (!d || d->size == 0)) return;
    writer_begin_event(w, NULL);
    writer_open(w, NULL, '{');
    writer_integer(w, "index", (int64_t)i);
    writer_bytes(w, "content", d ? d->text : "", d ? d->size : 0);
    write_tokens(w, r, c, c->tokens.n - has_token);
    writer_value(w, "stop", json_false());
    writer_integer(w, "id_slot", -1);
    writer_integer(w, "tokens_predicted", (int64_t)c->tokens.n);
    writer_integer(w, "tokens_evaluated", event->n_prompt);
    if (r->timings_per_token) openai_write_timings(w, result);
    if (r->logprobs && has_token) write_logprobs(w, result, c, c->logprobs.n - 1);
    writer_close(w);
    writer_end_event(w);
}

static void stream_event(openai_writer *w, openai_result *result, size_t prompt, const cl_engine_event *event) {
    const size_t i = prompt * (size_t)result->request->params.n + (size_t)event->choice;
    if (event->kind == CL_EVENT_PROMPT) return;
    write_part(w, result, i, event);
    if (event->kind != CL_EVENT_END || event->end.finish == CL_ENGINE_ERROR) return;
    writer_begin_event(w, NULL);
    write_choice(w, result, i);
    writer_end_event(w);
}

static void stream_end(openai_writer *w, openai_result *result, const openai_error *error) {
    (void)result;
    if (!error) return;
    writer_begin_event(w, NULL);
    openai_write_error_body(w, NULL, error);
    writer_end_event(w);
}

#define IN_COMMON                                                                                                              \
    .write_error = openai_write_error_body, .stream_begin = stream_begin, .stream_event = stream_event,                        \
    .stream_end = stream_end, .no_memory_body = "{" OPENAI_NO_MEMORY_ERROR "}",                                                \
    .no_memory_end = "data: {" OPENAI_NO_MEMORY_ERROR "}\n\n"

const openai_dialect llama_server_completion = {
    .path = "/completion", .parse = parse_completion, .write_answer = write_answer, IN_COMMON};
const openai_dialect llama_server_infill = {.path = "/infill", .parse = parse_infill, .write_answer = write_answer, IN_COMMON};
const openai_dialect llama_server_embedding = {
    .path = "/embedding", .parse = parse_embedding, .write_answer = write_embeddings, IN_COMMON};

/* ---- Facts ---- */

/* The bytes of the BOS with which the text of a chat and the tokens of a completion begin alike. */
static size_t size_of_bos(const cl_tokenizer *tok) {
    return cl_tokenizer_adds_bos(tok) ? cl_tokenizer_piece(tok, cl_tokenizer_bos(tok), true, (char[1]){0}, 0) : 0;
}

bool llama_server_apply_template(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error) {
    openai_request r = {.endpoint = OPENAI_CHAT};
    cl_prompt text = {0};
    const bool ok = openai_check_body(context, body, error) && openai_check_offered(OPENAI_CHAT, body, error) &&
                    openai_check_texts(context, body, error) && openai_parse_tools(body, OPENAI_MAX_TOOL_NAME, &r, error) &&
                    openai_render_messages(context, body, &r, &text, error) && openai_count_answer(context, text.size, error);
    if (ok) {
        const size_t n_bos = size_of_bos(context->model->tok);
        writer_open(w, NULL, '{');
        writer_bytes(w, "prompt", text.text + n_bos, text.size - n_bos);
        writer_close(w);
    }
    cl_prompt_free(&text);
    openai_request_free(&r);
    return ok;
}

void llama_server_write_props(openai_writer *w, const openai_context *context, int32_t n_slots) {
    writer_open(w, NULL, '{');
    writer_open(w, "default_generation_settings", '{');
    writer_integer(w, "n_ctx", context->n_ctx);
    writer_open(w, "params", '{');
    write_sampling(w, &context->local.sampling, context->local.penalty_window);
    writer_integer(w, "n_predict", context->local.max_tokens_completion);
    writer_close(w);
    writer_close(w);
    writer_integer(w, "total_slots", n_slots);
    writer_string(w, "model_alias", context->model_name);
    writer_open(w, "modalities", '{');
    writer_value(w, "vision", json_false());
    writer_value(w, "audio", json_false());
    writer_close(w);
    openai_write_template(w, context);
    writer_string(w, "build_info", cl_version());
    writer_close(w);
}
