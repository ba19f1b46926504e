/* Requests about tokens, which need no engine: tokenize, detokenize, and the prompt of another request. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/str.h"
#include "json.h"
#include "parse.h"

size_t openai_text_size(const cl_tokenizer *tok, const int32_t *ids, size_t n) {
    char nothing[1];
    size_t size = 0;
    for (size_t i = 0; i < n; i++) size += cl_tokenizer_piece(tok, ids[i], true, nothing, 0);
    return size;
}

char *openai_text_of(const cl_tokenizer *tok, const int32_t *ids, size_t n, size_t *size) {
    *size = openai_text_size(tok, ids, n);
    char *text = malloc(*size + 1);
    for (size_t i = 0, at = 0; text && i < n; i++) at += cl_tokenizer_piece(tok, ids[i], true, text + at, *size - at);
    if (text) text[*size] = '\0';
    return text;
}

/* ---- Tokenize ---- */

/* How text is tokenized. */
typedef struct text_form {
    const char *name; /* of the field with the text */
    bool around;      /* the tokens that the model wants around a text are added, such as BOS */
    bool special;     /* the names of special tokens stand for these tokens */
} text_form;

static bool encode(const openai_context *context, const json_t *body, const text_form *form, cl_token_list *tokens,
                   openai_error *error) {
    const cl_tokenizer *tok = context->model->tok;
    const json_t *value = field_get(body, form->name);
    const char *text = json_string_value(value);
    const size_t size = json_string_length(value);
    cl_error cause;
    if (!text) return openai_refuse(error, form->name, "must be a string, not %s", field_kind(value));
    if (!openai_check_size(context, form->name, size, error)) return false;
    cl_status status = CL_OK;
    if (form->around) status = cl_tokenizer_add_leading(tok, tokens, &cause);
    if (status == CL_OK)
        status = (form->special ? cl_tokenizer_encode_template : cl_tokenizer_encode)(tok, text, size, true, tokens, &cause);
    if (status == CL_OK && form->around) status = cl_tokenizer_add_trailing(tok, tokens, &cause);
    return status == CL_OK || openai_fail_from(error, form->name, &cause);
}

/*
 * Refuse more tokens than an answer may list: it has the values and objects at most that a body may have. n_values: of each
 * token.
 */
static bool check_list(const openai_context *context, const text_form *form, const cl_token_list *tokens, size_t most,
                       size_t n_values, openai_error *error) {
    if (tokens->n > most)
        return openai_refuse(error, form->name, "has %zu tokens; in this form an answer lists at most %zu: shorten it",
                             tokens->n, most);
    return openai_count_answer(context, tokens->n * n_values * OPENAI_VALUE_BYTES, error);
}

/* A token with its text, in llama-server's form: text that is not UTF-8 is an array of bytes. */
static void write_piece(openai_writer *w, const cl_tokenizer *tok, int32_t id) {
    size_t size;
    char *text = openai_text_of(tok, &id, 1, &size);
    writer_open(w, NULL, '{');
    writer_integer(w, "id", id);
    if (!text) {
        writer_fail(w);
    } else if (cl_utf8_valid(text, size) == size) {
        writer_bytes(w, "piece", text, size);
    } else {
        writer_byte_values(w, "piece", text, size);
    }
    writer_close(w);
    free(text);
}

static bool tokenize_content(const openai_context *context, const json_t *body, cl_token_list *tokens, openai_writer *w,
                             openai_error *error) {
    text_form form = {.name = "content", .special = true};
    bool with_pieces = false;
    if (!field_bool(body, "add_special", &form.around, error) || !field_bool(body, "parse_special", &form.special, error) ||
        !field_bool(body, "with_pieces", &with_pieces, error) || !encode(context, body, &form, tokens, error) ||
        !check_list(context, &form, tokens, with_pieces ? OPENAI_JSON_MAX_CONTAINERS : OPENAI_JSON_MAX_VALUES,
                    with_pieces ? 3 : 1, error))
        return false;
    writer_open(w, NULL, '{');
    if (with_pieces) {
        writer_open(w, "tokens", '[');
        for (size_t i = 0; i < tokens->n; i++) write_piece(w, context->model->tok, tokens->ids[i]);
        writer_close(w);
    } else {
        writer_integers(w, "tokens", tokens->ids, tokens->n);
    }
    writer_close(w);
    return true;
}

/* The tokens of a chat, as its request would compute them. */
static bool encode_messages(const openai_context *context, const json_t *body, cl_token_list *tokens, openai_error *error) {
    openai_request chat;
    if (!openai_request_parse(context, OPENAI_CHAT, body, &chat, error)) return false;
    *tokens = chat.prompts->tokens;
    chat.prompts->tokens = (cl_token_list){0};
    openai_request_free(&chat);
    return true;
}

static void write_strings(openai_writer *w, const cl_tokenizer *tok, const cl_token_list *tokens) {
    writer_open(w, "token_strs", '[');
    for (size_t i = 0; i < tokens->n; i++) {
        size_t size;
        char *text = openai_text_of(tok, &tokens->ids[i], 1, &size);
        text ? writer_bytes(w, NULL, text, size) : writer_fail(w);
        free(text);
    }
    writer_close(w);
}

static bool tokenize_prompt(const openai_context *context, const json_t *body, cl_token_list *tokens, openai_writer *w,
                            openai_error *error) {
    text_form form = {.name = "prompt", .around = true, .special = true};
    bool with_strings = false;
    if (!field_bool(body, "add_special_tokens", &form.around, error) ||
        !field_bool(body, "parse_special", &form.special, error) ||
        !field_bool(body, "return_token_strs", &with_strings, error))
        return false;
    const bool chat = field_get(body, "messages");
    if (!(chat ? encode_messages(context, body, tokens, error) : encode(context, body, &form, tokens, error)) ||
        !check_list(context, &form, tokens, OPENAI_JSON_MAX_VALUES / (1 + with_strings), 1 + with_strings, error))
        return false;
    writer_open(w, NULL, '{');
    writer_integer(w, "count", (int64_t)tokens->n);
    writer_integer(w, "max_model_len", context->n_ctx);
    writer_integers(w, "tokens", tokens->ids, tokens->n);
    if (with_strings)
        write_strings(w, context->model->tok, tokens);
    else
        writer_null(w, "token_strs");
    writer_close(w);
    return true;
}

bool openai_tokenize(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error) {
    cl_token_list tokens = {0};
    if (!openai_check_body(context, body, error)) return false;
    if (!field_get(body, "prompt") && !field_get(body, "messages") && !field_get(body, "content"))
        return openai_refuse(error, "prompt", "is missing; send 'prompt' or 'content', a string, or 'messages'");
    const bool ok = (field_get(body, "content") ? tokenize_content : tokenize_prompt)(context, body, &tokens, w, error);
    cl_token_list_free(&tokens);
    return ok;
}

/* ---- Detokenize ---- */

static bool read_ids(const openai_context *context, const json_t *value, int32_t *ids, openai_error *error) {
    const size_t n = json_array_size(value);
    for (size_t i = 0; i < n; i++)
        if (!field_token(json_array_get(value, i), path_of("tokens[%zu]", i).text, context->model, &ids[i], error))
            return false;
    const size_t size = openai_text_size(context->model->tok, ids, n);
    return openai_check_detokenized("tokens", size, error) &&
           openai_count_answer(context, 3 * size, error); /* the answer has it twice */
}

bool openai_detokenize(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error) {
    if (!openai_check_body(context, body, error)) return false;
    const json_t *value;
    if (!field_array(body, "tokens", "token ids", SIZE_MAX, &value, error)) return false;
    if (!value) return openai_refuse(error, "tokens", "is missing; it must be an array of token ids");
    const size_t n = json_array_size(value);
    int32_t *ids = calloc(n + 1, sizeof *ids);
    if (!ids) return openai_fail_memory(error);
    const bool ok = read_ids(context, value, ids, error);
    size_t size;
    char *text = ok ? openai_text_of(context->model->tok, ids, n, &size) : NULL;
    free(ids);
    if (!ok) return false;
    if (!text) return openai_fail_memory(error);
    writer_open(w, NULL, '{');
    writer_bytes(w, "prompt", text, size);
    writer_bytes(w, "content", text, size);
    writer_close(w);
    free(text);
    return true;
}

/* ---- Rendering ---- */

/* The limits on the tokens that may be drawn; a limit that allows all is left out. */
static void write_rules(openai_writer *w, const json_t *body, const cl_engine_request *p) {
    const json_t *bad_words = field_get_requested(body, "bad_words");
    writer_integer(w, "min_tokens", p->min_tokens);
    if (p->n_logit_bias > 0) {
        writer_open(w, "logit_bias", '{');
        for (int32_t i = 0; i < p->n_logit_bias; i++) {
            char token[16];
            snprintf(token, sizeof token, "%d", p->logit_bias[i].token);
            if (isinf(p->logit_bias[i].bias)) /* never drawn: llama-server's form, as JSON has no infinity */
                writer_value(w, token, json_false());
            else
                writer_real(w, token, (double)p->logit_bias[i].bias);
        }
        writer_close(w);
    }
    if (p->n_allowed_tokens > 0) writer_integers(w, "allowed_token_ids", p->allowed_tokens, (size_t)p->n_allowed_tokens);
    if (bad_words) writer_value(w, "bad_words", json_incref((json_t *)bad_words));
    if (p->grammar_kind == CL_GRAMMAR_NONE) return;
    writer_open(w, "structured_outputs", '{');
    writer_bytes(w,
                 p->grammar_kind == CL_GRAMMAR_JSON_SCHEMA ? "json"
                 : p->grammar_kind == CL_GRAMMAR_REGEX     ? "regex"
                                                           : "grammar",
                 p->grammar, p->grammar_size);
    writer_close(w);
}

static void write_sampling(openai_writer *w, const openai_context *context, const json_t *body, const openai_request *r,
                           size_t prompt) {
    const cl_engine_request *p = &r->params;
    const int64_t left = context->n_ctx > 0 ? context->n_ctx - (int64_t)r->prompts[prompt].tokens.n : INT32_MAX;
    const int64_t max_tokens = openai_max_tokens(r, prompt);
    writer_open(w, "sampling_params", '{');
    writer_integer(w, "n", r->n);
    writer_real(w, "temperature", (double)p->sampling.temperature);
    writer_real(w, "top_p", (double)p->sampling.top_p);
    writer_integer(w, "top_k", p->sampling.top_k);
    writer_real(w, "min_p", (double)p->sampling.min_p);
    writer_real(w, "presence_penalty", (double)p->sampling.presence_penalty);
    writer_real(w, "frequency_penalty", (double)p->sampling.frequency_penalty);
    writer_real(w, "repetition_penalty", (double)p->sampling.repetition_penalty);
    writer_integer(w, "seed", (int64_t)p->sampling.seed);
    writer_integer(w, "max_tokens", max_tokens < 0 ? left : max_tokens);
    writer_value(w, "ignore_eos", json_boolean(p->ignore_eos));
    writer_open(w, "stop", '[');
    for (int32_t i = 0; i < p->n_stop; i++) writer_string(w, NULL, p->stop[i]);
    writer_close(w);
    writer_integers(w, "stop_token_ids", p->stop_tokens, (size_t)p->n_stop_tokens);
    writer_value(w, "include_stop_str_in_output", json_boolean(p->include_stop));
    writer_value(w, "skip_special_tokens", json_boolean(!p->show_special));
    write_rules(w, body, p);
    if (p->max_reasoning_tokens >= 0) writer_integer(w, "thinking_token_budget", p->max_reasoning_tokens);
    if (r->logprobs)
        writer_integer(w, "logprobs", r->n_top);
    else
        writer_null(w, "logprobs");
    if (r->n_prompt_top >= 0)
        writer_integer(w, "prompt_logprobs", r->n_prompt_top);
    else
        writer_null(w, "prompt_logprobs");
    writer_close(w);
}

/*
 * Refuse to write more than other answers may repeat: the parameters stand beside each prompt. Their names and numbers are
 * those of a short request; what may be long is counted.
 */
static bool check_rendered(const openai_context *context, const openai_request *r, openai_error *error) {
    const cl_engine_request *p = &r->params;
    size_t n = 0, n_values = 64 + (size_t)p->n_logit_bias + (size_t)p->n_allowed_tokens + (size_t)p->n_bad_words;
    for (size_t i = 0; i < r->n_prompts; i++) n += r->prompts[i].tokens.n + n_values;
    const size_t size = n * OPENAI_VALUE_BYTES + r->n_prompts * (p->grammar_size + r->rules.n_bytes);
    if (size > OPENAI_MAX_REPEATED)
        return openai_refuse(
            error, "prompt",
            "takes %zu bytes with the parameters of each prompt; at most %d are possible: send fewer or shorter "
            "prompts",
            size, OPENAI_MAX_REPEATED);
    return openai_count_answer(context, size, error);
}

/* Write prompt i. body: of the request that would be sent; id: its id. */
static void write_rendered(openai_writer *w, const openai_context *context, const json_t *body, const openai_request *r,
                           size_t i, const char *id) {
    char name[OPENAI_MAX_REQUEST_ID + 64];
    snprintf(name, sizeof name, "%s-%zu", id, i);
    writer_open(w, NULL, '{');
    writer_string(w, "request_id", name);
    writer_integers(w, "token_ids", r->prompts[i].tokens.ids, r->prompts[i].tokens.n);
    write_sampling(w, context, body, r, i);
    writer_string(w, "model", context->model_name);
    writer_value(w, "stream", json_boolean(r->stream));
    writer_integer(w, "priority", r->params.priority);
    writer_close(w);
}

static bool render(const openai_context *context, openai_endpoint endpoint, const json_t *body, openai_writer *w,
                   openai_error *error) {
    openai_request r;
    openai_result result; /* for the id */
    if (!openai_request_parse(context, endpoint, body, &r, error)) return false;
    const bool fits = check_rendered(context, &r, error), ok = fits && openai_result_init(&result, context, &r);
    if (ok) {
        if (endpoint == OPENAI_COMPLETION) writer_open(w, NULL, '[');
        for (size_t i = 0; i < r.n_prompts; i++) write_rendered(w, context, body, &r, i, result.id);
        if (endpoint == OPENAI_COMPLETION) writer_close(w);
        openai_result_free(&result);
    }
    openai_request_free(&r);
    return ok || !fits ? ok : openai_fail_memory(error);
}

bool openai_render_chat(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error) {
    return render(context, OPENAI_CHAT, body, w, error);
}

bool openai_render_completion(const openai_context *context, const json_t *body, openai_writer *w, openai_error *error) {
    return render(context, OPENAI_COMPLETION, body, w, error);
}

/* ---- The tokenizer ---- */

/* Write the name of a special token; -1: null. */
static void write_name(openai_writer *w, const char *key, const cl_tokenizer *tok, int32_t id) {
    size_t size = 0;
    char *name = id < 0 ? NULL : openai_text_of(tok, &id, 1, &size);
    if (id < 0)
        writer_null(w, key);
    else
        name ? writer_bytes(w, key, name, size) : writer_fail(w);
    free(name);
}

void openai_write_template(openai_writer *w, const openai_context *context) {
    const cl_str template = context->chat ? cl_chat_text(context->chat, false) : (cl_str){0};
    const cl_tokenizer *tok = context->model->tok;
    write_name(w, "bos_token", tok, cl_tokenizer_bos(tok));
    write_name(w, "eos_token", tok, cl_tokenizer_eos(tok));
    if (template.data)
        writer_bytes(w, "chat_template", template.data, template.size);
    else
        writer_null(w, "chat_template");
}

void openai_write_tokenizer_info(openai_writer *w, const openai_context *context) {
    const cl_model *m = context->model;
    writer_open(w, NULL, '{');
    writer_string(w, "tokenizer_class", "PreTrainedTokenizerFast");
    writer_value(w, "add_bos_token", json_boolean(cl_tokenizer_adds_bos(m->tok)));
    writer_value(w, "add_eos_token", json_boolean(cl_tokenizer_adds_eos(m->tok)));
    writer_integer(w, "model_max_length", context->n_ctx);
    writer_integer(w, "vocab_size", cl_tokenizer_n_vocab(m->tok));
    openai_write_template(w, context);
    writer_close(w);
}
