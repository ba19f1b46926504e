/* Formats the message of a failure. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

void cl_error_set(cl_error *error, cl_status code, const char *format, ...) {
    if (!error) return;
    va_list args;
    va_start(args, format);
    error->code = code;
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
}
