/* Fills OpenAI's error object, and writes it as JSON. */
#include <stdarg.h>
#include <stdio.h>

#include "openai.h"

bool openai_fail(openai_error *error, const char *param, const char *format, ...) {
    *error = (openai_error){.status = 400, .type = "invalid_request_error"};
    if (param) snprintf(error->param, sizeof error->param, "%s", param);
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return false;
}

static bool set_kind(openai_error *error, int status, const char *type, const char *code) {
    error->status = status;
    error->type = type;
    error->code = code;
    return false;
}

const openai_error *openai_unavailable(openai_error *error, int64_t retry_after_s) {
    set_kind(error, 503, "server_error", NULL);
    error->retry_after_s = retry_after_s;
    return error;
}

bool openai_fail_from(openai_error *error, const char *param, const cl_error *cause) {
    openai_fail(error, param, "%s", cause->message);
    switch (cause->code) {
    case CL_ERR_LIMIT: error->code = "context_length_exceeded"; break;
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

void openai_write_error(openai_writer *w, const openai_error *error) {
    writer_open(w, "error", '{');
    writer_string(w, "message", error->message);
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
