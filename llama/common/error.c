/* Formats the message of a failure. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "str.h"

void cl_error_set(cl_error *error, cl_status code, const char *format, ...) {
    if (!error) return;
    va_list args;
    va_start(args, format);
    error->code = code;
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    cl_str_disarm(error->message, strlen(error->message)); /* it may quote a file */
}
