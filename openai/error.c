/* Fills OpenAI's error object, and writes it as JSON. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

bool openai_fail_from(openai_error *error, const char *param, const cl_error *cause) {
    openai_fail(error, param, "%s", cause->message);
    switch (cause->code) {
    case CL_ERR_LIMIT: error->code = "context_length_exceeded"; break;
    case CL_ERR_ARG:
    case CL_ERR_FORMAT:
    case CL_ERR_UNSUPPORTED: break;
    default: error->status = 500; error->type = "server_error";
    }
    return false;
}

json_t *openai_error_json(const openai_error *error) {
    return json_pack("{s:{s:o, s:s, s:s?, s:s?}}", "error", "message", openai_text_json(error->message, strlen(error->message)),
                     "type", error->type, "param", error->param[0] ? error->param : NULL, "code", error->code);
}
