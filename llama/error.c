/* Formats the message of a failure. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

cl_status cl_fail(cl_error *error, cl_status code, const char *format, ...) {
    if (!error) return code;
    va_list args;
    va_start(args, format);
    error->code = code;
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return code;
}
