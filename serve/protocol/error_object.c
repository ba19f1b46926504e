/* Fills OpenAI's error object, also from the engine's errors, and writes it as JSON. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "chunkllama/common/deadline.h"
#include "openai.h"

static void fill(openai_error *error, const char *param, bool says_param, const char *format, va_list args) {
    *error = (openai_error){.status = 400, .type = "invalid_request_error", .says_param = says_param};
    if (param) snprintf(error->param, sizeof error->param, "%s", param);
    vsnprintf(error->message, sizeof error->message, format, args);
}

bool openai_fail(openai_error *error, const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(error, param, false, format, args);
    va_end(args);
    return false;
}

bool openai_refuse(openai_error *error, const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(error, param, true, format, args);
    va_end(args);
    return false;
}

const char *openai_error_text(const openai_error *error, char text[OPENAI_ERROR_TEXT]) {
    if (error->says_param)
        snprintf(text, OPENAI_ERROR_TEXT, "'%s' %s", error->param, error->message);
    else
        snprintf(text, OPENAI_ERROR_TEXT, "%s", error->message);
    return text;
}

bool openai_set_status(openai_error *error, int status, const char *code) {
    error->status = status;
    error->code = code;
    return false;
}

static bool set_kind(openai_error *error, int status, const char *type, const char *code) {
    error->type = type;
    return openai_set_status(error, status, code);
}

const openai_error *openai_unavailable(openai_error *error, int64_t retry_after_s) {
    set_kind(error, 503, "server_error", NULL);
    error->retry_after_s = retry_after_s;
    return error;
}

bool openai_fail_from(openai_error *error, const char *param, const cl_error *cause) {
    openai_fail(error, param, "%s", cause->message);
    switch (cause->code) {
    case CL_ERR_LIMIT:
        error->code = cl_deadline_passed() ? NULL : "context_length_exceeded"; /* the time is no length */
        break;
    case CL_ERR_ARG:
    case CL_ERR_FORMAT:
    case CL_ERR_UNSUPPORTED: break;
    case CL_ERR_BUSY: return set_kind(error, 429, "rate_limit_error", "rate_limit_exceeded");
    case CL_ERR_TIMEOUT: return set_kind(error, 504, "server_error", "timeout");
    case CL_ERR_NOMEM: return set_kind(error, 503, "server_error", NULL);
    default: return set_kind(error, 500, "server_error", NULL);
    }
    return false;
}

bool openai_fail_memory(openai_error *error) {
    return openai_fail_from(error, NULL,
                            &(cl_error){.code = CL_ERR_NOMEM, .message = "out of memory for the request; send it again later"});
}

/* ---- The engine's fields ---- */

/* The client's name for a field of cl_engine_request without its index; NULL: it sets no such field. */
static const char *name_of(const openai_request *r, const char *field, size_t size) {
    static const char *const names[][2] = {
        {"allowed_tokens", "allowed_token_ids"},
        {"bad_words", "bad_words"},
        {"cuts.min_keep", "min_keep"},
        {"generation_s", "t_max_predict_ms"},
        {"length_penalty", "length_penalty"},
        {"logit_bias", "logit_bias"},
        {"max_reasoning_tokens", "thinking_token_budget"},
        {"min_indent", "n_indent"},
        {"min_tokens", "min_tokens"},
        {"priority", "priority"},
        {"prompt_logprobs_from", "logprob_start_len"},
        {"salt", "cache_salt"},
        {"sampling.frequency_penalty", "frequency_penalty"},
        {"sampling.min_p", "min_p"},
        {"sampling.presence_penalty", "presence_penalty"},
        {"sampling.repetition_penalty", "repetition_penalty"},
        {"sampling.temperature", "temperature"},
        {"sampling.top_k", "top_k"},
        {"sampling.top_p", "top_p"},
        {"stop", "stop"},
        {"stop_tokens", "stop_token_ids"},
    };
    if (size == 1 && *field == 'n') return r->params.n > r->n ? "best_of" : "n";
    if (size == 7 && memcmp(field, "grammar", size) == 0) return r->grammar_field;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i][0]) == size && memcmp(names[i][0], field, size) == 0) return names[i][1];
    return NULL;
}

bool openai_fail_from_engine(openai_error *error, const openai_request *request, const cl_error *cause) {
    const size_t size = strcspn(cause->field, "[");
    const char *name = name_of(request, cause->field, size);
    openai_fail_from(error, NULL, cause);
    if (!name) return false;
    snprintf(error->param, sizeof error->param, "%s%s", name, cause->field + size);
    snprintf(error->message, sizeof error->message, "%s", cause->message + strlen(cause->field) + 1);
    error->says_param = true;
    error->code = NULL; /* agents shorten the conversation when they read context_length_exceeded */
    return false;
}

/* ---- JSON ---- */

void openai_write_error(openai_writer *w, const openai_error *error) {
    char text[OPENAI_ERROR_TEXT];
    writer_open(w, "error", '{');
    writer_string(w, "message", openai_error_text(error, text));
    writer_string(w, "type", error->type);
    writer_string(w, "param", error->param[0] ? error->param : NULL);
    writer_string(w, "code", error->code);
    writer_close(w);
}

void openai_write_error_body(openai_writer *w, const char *key, const openai_error *error) {
    writer_open(w, key, '{');
    openai_write_error(w, error);
    writer_close(w);
}
