/* Versions, names of statuses, and messages of failures. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "str.h"

#define TEXT(x)                      #x
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *cl_version(void) { return VERSION(CL_VERSION_MAJOR, CL_VERSION_MINOR, CL_VERSION_PATCH); }

const char *cl_status_name(cl_status status) {
    switch (status) {
    case CL_OK: return "CL_OK";
    case CL_ERR_ARG: return "CL_ERR_ARG";
    case CL_ERR_FILE: return "CL_ERR_FILE";
    case CL_ERR_FORMAT: return "CL_ERR_FORMAT";
    case CL_ERR_UNSUPPORTED: return "CL_ERR_UNSUPPORTED";
    case CL_ERR_NOMEM: return "CL_ERR_NOMEM";
    case CL_ERR_LIMIT: return "CL_ERR_LIMIT";
    case CL_ERR_TIMEOUT: return "CL_ERR_TIMEOUT";
    case CL_ERR_BUSY: return "CL_ERR_BUSY";
    }
    return "unknown status";
}

/* The message is the field's name, a blank and the text, or only the text. */
static void fill(cl_error *error, cl_status code, const char *field, const char *format, va_list args) {
    if (!error) return;
    error->code = code;
    snprintf(error->field, sizeof error->field, "%s", field);
    const int used = snprintf(error->message, sizeof error->message, "%s%s", error->field, *field ? " " : "");
    vsnprintf(error->message + used, sizeof error->message - (size_t)used, format, args);
    cl_str_disarm(error->message, strlen(error->message)); /* it may quote a file */
}

void cl_error_set(cl_error *error, cl_status code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(error, code, "", format, args);
    va_end(args);
}

void cl_error_set_field(cl_error *error, cl_status code, const char *field, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(error, code, field, format, args);
    va_end(args);
}

cl_name cl_item(const char *array, int64_t i) {
    cl_name name;
    snprintf(name.text, sizeof name.text, "%s[%lld]", array, (long long)i);
    return name;
}

static cl_status report(ca_struct_fault fault, const char *message, cl_error *error) {
    if (fault == CA_STRUCT_OK) return CL_OK;
    return cl_fail(error, fault == CA_STRUCT_WRONG_SIZE ? CL_ERR_ARG : CL_ERR_UNSUPPORTED, "%s", message);
}

cl_status cl_struct_read(const ca_struct *type, void *to, const void *from, cl_error *error) {
    char message[CA_STRUCT_MESSAGE];
    return report(ca_struct_read(type, to, from, cl_version(), message), message, error);
}

cl_status cl_struct_write(const ca_struct *type, void *to, const void *from, cl_error *error) {
    char message[CA_STRUCT_MESSAGE];
    return report(ca_struct_write(type, to, from, message), message, error);
}
