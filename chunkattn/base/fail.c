/* Filling a cattn_error. */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

void ca_error_set(cattn_error *error, cattn_status code, int32_t entry, const char *format, ...) {
    if (!error) return;
    error->code = code;
    error->entry = entry;
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
}
